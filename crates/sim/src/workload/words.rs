//! How the values of a workload are written in its file.

use std::fmt;

use isotherm_core::units;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::TouchRate;

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

impl Serialize for TouchRate {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            TouchRate::Hz(hz) => s.serialize_f64(*hz),
            TouchRate::Max => s.serialize_str("max"),
        }
    }
}

impl<'de> Deserialize<'de> for TouchRate {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(RateVisitor)
    }
}

struct RateVisitor;

impl Visitor<'_> for RateVisitor {
    type Value = TouchRate;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("touches of a page a second, as 0.5 or 100, or \"max\"")
    }

    fn visit_f64<E: Error>(self, hz: f64) -> Result<TouchRate, E> {
        Ok(TouchRate::Hz(hz))
    }

    fn visit_i64<E: Error>(self, hz: i64) -> Result<TouchRate, E> {
        Ok(TouchRate::Hz(hz as f64))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<TouchRate, E> {
        if word == "max" {
            Ok(TouchRate::Max)
        } else {
            Err(E::invalid_value(serde::de::Unexpected::Str(word), &self))
        }
    }
}
