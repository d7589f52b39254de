//! The metadata of a recording.

use std::collections::HashMap;
use std::str::FromStr;

use arrow_schema::Metadata;
use isotherm_core::{Attrs, EndReason, Missing, Nanos, TargetId};

use crate::bad::InvalidField;
use crate::scalars::{self, ATTRS};
use crate::versions;

/// The properties of a recording that are known at its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordingHeader {
    /// version of the isotherm that recorded
    pub isotherm_version: String,
    /// name of the machine
    pub host: String,
    /// its kernel, as `uname -r` prints it
    pub kernel: String,
    /// the command line of the recorder
    pub command: String,
    /// start of the recording, on the clock of the snapshots
    pub started: Nanos,
    /// the same moment on the wall clock, in milliseconds since 1970 (UTC)
    pub started_unix_ms: u64,
    /// attributes of the monitor at the start; snapshots contain later changes
    pub attrs: Attrs,
    /// seed of the monitor's random numbers
    pub seed: u64,
    /// the way of observing accesses
    pub look: String,
    /// free text
    pub note: String,
    /// figures that the source does not report
    pub missing: Missing,
}

/// Prefix of each key, so that the keys do not collide with those of other users of a schema's metadata.
const PREFIX: &str = "isotherm.";

impl RecordingHeader {
    /// A header with these values; all other fields are empty or zero.
    #[must_use]
    pub fn new(isotherm_version: &str, attrs: Attrs, started: Nanos) -> Self {
        RecordingHeader {
            isotherm_version: isotherm_version.to_owned(),
            host: String::new(),
            kernel: String::new(),
            command: String::new(),
            started,
            started_unix_ms: 0,
            attrs,
            seed: 0,
            look: String::new(),
            note: String::new(),
            missing: Missing::default(),
        }
    }

    /// The facts as keys and values.
    pub(crate) fn entries(&self) -> Result<Vec<(String, String)>, InvalidField> {
        let missing = self.missing.names().collect::<Vec<_>>().join(",");
        let words = [
            ("version", &self.isotherm_version),
            ("host", &self.host),
            ("kernel", &self.kernel),
            ("command", &self.command),
            ("look", &self.look),
            ("note", &self.note),
            ("missing", &missing),
        ];
        let words = words.into_iter().map(|(key, value)| (key, value.clone()));
        let numbers = [
            ("started_ns", self.started.0),
            ("started_unix_ms", self.started_unix_ms),
            ("seed", self.seed),
        ];
        let attrs = ATTRS.into_iter().zip(scalars::from_attrs(&self.attrs)?);
        let numbers = numbers.into_iter().chain(attrs).map(|(key, n)| (key, n.to_string()));
        Ok(words.chain(numbers).map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect())
    }

    /// The facts as metadata of a schema.
    pub(crate) fn metadata(&self) -> Result<HashMap<String, String>, InvalidField> {
        Ok(self.entries()?.into_iter().collect())
    }

    /// Reads facts from the metadata of a schema. Unknown keys of a later isotherm are ignored.
    pub(crate) fn from_metadata(metadata: &Metadata) -> Result<Self, InvalidField> {
        let mut attrs = [0; ATTRS.len()];
        for (value, key) in attrs.iter_mut().zip(ATTRS) {
            *value = match versions::added_in_2(key) {
                Some(before) if !metadata.contains_key(&format!("{PREFIX}{key}")) => before,
                _ => entry(metadata, key)?,
            };
        }
        Ok(RecordingHeader {
            isotherm_version: entry(metadata, "version")?,
            host: entry(metadata, "host")?,
            kernel: entry(metadata, "kernel")?,
            command: entry(metadata, "command")?,
            started: Nanos(entry(metadata, "started_ns")?),
            started_unix_ms: entry(metadata, "started_unix_ms")?,
            attrs: scalars::to_attrs(attrs)?,
            seed: entry(metadata, "seed")?,
            look: entry(metadata, "look")?,
            note: entry(metadata, "note")?,
            // Earlier records do not have this fact.
            missing: Missing::from_names(
                entry::<String>(metadata, "missing").unwrap_or_default().split(','),
            ),
        })
    }
}

fn entry<T: FromStr>(metadata: &Metadata, key: &str) -> Result<T, InvalidField> {
    metadata.get(&format!("{PREFIX}{key}")).and_then(|value| value.parse().ok()).ok_or_else(|| {
        InvalidField::because(format!("the fact {PREFIX}{key} is missing or no number"))
    })
}

/// A target of a recording. It may appear during the recording, such as a new child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetInfo {
    /// its id in the snapshots
    pub id: TargetId,
    /// pid, if it is a process
    pub pid: Option<u32>,
    /// its command line, or `physical memory`
    pub command: String,
}

impl TargetInfo {
    /// Maximal length of a command in bytes. The kernel's command lines are read up to it.
    pub const MAX_COMMAND: usize = 4096;
}

/// The longest beginning of `text` that has at most `max` bytes.
#[must_use]
pub fn cut(text: &str, max: usize) -> &str {
    let mut ends = (0..=max.min(text.len())).rev();
    ends.find_map(|end| text.get(..end)).unwrap_or_default()
}

/// The reason why a file of a record ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileEndReason {
    /// all targets ended
    TargetsGone,
    /// a user or program stopped the recorder
    Stopped,
    /// the played record had no more snapshots
    Played,
    /// the size limit was reached
    MaxSize,
    /// the record continues in the next file
    Rotated,
    /// recording failed; the end's note contains the error
    Failed,
}

impl FileEndReason {
    const ALL: [FileEndReason; 6] = [
        FileEndReason::TargetsGone,
        FileEndReason::Stopped,
        FileEndReason::Played,
        FileEndReason::MaxSize,
        FileEndReason::Rotated,
        FileEndReason::Failed,
    ];

    /// The word in the record.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileEndReason::TargetsGone => "targets-gone",
            FileEndReason::Stopped => "stopped",
            FileEndReason::Played => "played",
            FileEndReason::MaxSize => "max-size",
            FileEndReason::Rotated => "rotated",
            FileEndReason::Failed => "failed",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        FileEndReason::ALL.into_iter().find(|why| why.name() == name)
    }
}

impl From<EndReason> for FileEndReason {
    fn from(reason: EndReason) -> Self {
        match reason {
            EndReason::TargetsGone => FileEndReason::TargetsGone,
            EndReason::Stopped => FileEndReason::Stopped,
            EndReason::Played => FileEndReason::Played,
        }
    }
}

/// The last row of a complete file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// why the file ends
    pub why: FileEndReason,
    /// details of the reason; may be empty
    pub note: String,
    /// snapshots written since the recording started
    pub snapshots: u64,
    /// files begun since the recording started
    pub files: u64,
}
