//! Memory by call stack as a profile of pprof, which Go's tools, Pyroscope, Speedscope and Grafana read:
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>.

use std::collections::HashMap;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::RenderError;
use crate::code::{Code, StackFrame};

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    str: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
    #[prost(bool, tag = "7")]
    has_functions: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

/// The profile, compressed with gzip. Its sample types are resident (`memory`, if the record does not contain that), hot,
/// warm and cold, in bytes.
///
/// # Errors
/// If it cannot be compressed.
pub fn pprof(c: &Code) -> Result<Vec<u8>, RenderError> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(&profile(c).encode_to_vec())
        .and_then(|()| out.finish())
        .map_err(RenderError::Gzip)
}

/// Gives each value an id, counting from 1.
struct Ids<K>(HashMap<K, u64>);

impl<K: std::hash::Hash + Eq + Clone> Ids<K> {
    fn get(&mut self, key: &K, new: impl FnOnce(u64)) -> u64 {
        if let Some(&id) = self.0.get(key) {
            return id;
        }
        let id = self.0.len() as u64 + 1;
        self.0.insert(key.clone(), id);
        new(id);
        id
    }
}

fn profile(c: &Code) -> Profile {
    let mut strings = Strings::default();
    let bytes = strings.get("bytes");
    let all = if c.all.resident.is_some() { "resident" } else { "memory" };
    let sample_type =
        [all, "hot", "warm", "cold"].map(|kind| ValueType { kind: strings.get(kind), unit: bytes });
    let default_sample_type = strings.get("cold");
    let title = strings.get(&format!("isotherm report code: {}", c.title));
    let mut p = Profile {
        sample_type: sample_type.to_vec(),
        default_sample_type,
        comment: vec![title],
        ..Profile::default()
    };
    let thread = strings.get("thread");
    let (mut locations, mut functions, mut mappings) =
        (Ids::<StackFrame>(HashMap::new()), Ids(HashMap::new()), Ids(HashMap::new()));
    for row in &c.stacks {
        let m = &row.memory;
        let mut location_id = Vec::new();
        for frame in row.frames.iter().rev() {
            let mapping_id = match &*frame.library {
                "" => 0,
                path => mappings.get(&path.to_owned(), |id| {
                    let filename = strings.get(path);
                    p.mapping.push(Mapping { id, filename, has_functions: true });
                }),
            };
            let (file, line) =
                frame.line.as_deref().and_then(|l| l.rsplit_once(':')).unwrap_or_default();
            let function_id = functions.get(&(frame.function.clone(), file.to_owned()), |id| {
                let (name, filename) = (strings.get(&frame.function), strings.get(file));
                p.function.push(Function { id, name, system_name: name, filename });
            });
            let line = line.parse().unwrap_or(0);
            location_id.push(locations.get(frame, |id| {
                let line = vec![Line { function_id, line }];
                p.location.push(Location { id, mapping_id, line });
            }));
        }
        let value = [m.of_any_heat, m.hot, m.warm, m.cold].map(|e| e.bytes.round() as i64);
        let label = vec![Label { key: thread, str: strings.get(&row.thread) }];
        p.sample.push(Sample { location_id, value: value.to_vec(), label });
    }
    p.string_table = strings.all;
    p
}

/// The table of strings, whose first one is empty.
struct Strings {
    all: Vec<String>,
    index: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Strings { all: vec![String::new()], index: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
    fn get(&mut self, text: &str) -> i64 {
        let next = i64::try_from(self.all.len()).unwrap_or(0);
        let index = *self.index.entry(text.to_owned()).or_insert(next);
        if index == next {
            self.all.push(text.to_owned());
        }
        index
    }
}
