//! How the values of a workload are written in its file.

use std::fmt;

use isotherm_core::units;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Rate;

/// A value that is parsed from a text and printed as one.
macro_rules! as_text {
    ($name:ident, $type:ty, $read:path, $write:path) => {
        pub(super) mod $name {
            use super::*;

            pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<$type, D::Error> {
                $read(&String::deserialize(d)?).map_err(D::Error::custom)
            }

            pub fn serialize<S: Serializer>(value: &$type, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(&$write(*value).to_string())
            }
        }
    };
}

as_text!(size, u64, units::size, units::size_text);
as_text!(duration, std::time::Duration, units::duration, humantime::format_duration);

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Rate::Hz(hz) => s.serialize_f64(*hz),
            Rate::Max => s.serialize_str("max"),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(RateVisitor)
    }
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = Rate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("touches of a page a second, as 0.5 or 100, or \"max\"")
    }

    fn visit_f64<E: Error>(self, hz: f64) -> Result<Rate, E> {
        Ok(Rate::Hz(hz))
    }

    fn visit_i64<E: Error>(self, hz: i64) -> Result<Rate, E> {
        Ok(Rate::Hz(hz as f64))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Rate, E> {
        if word == "max" {
            Ok(Rate::Max)
        } else {
            Err(E::invalid_value(serde::de::Unexpected::Str(word), &self))
        }
    }
}
