//! A record as a trace of Perfetto: counters of bytes by heat over time, for ui.perfetto.dev.
//!
//! The trace is a protobuf message of a few fields, written here: <https://perfetto.dev/docs/reference/synthetic-track-event>.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;

use isotherm_core::{Nanos, TargetId, Thresholds};

use super::{ExportError, Exported, each};
use crate::event::Event;
use crate::header::{RecordingHeader, TargetInfo};
use crate::reader::Reader;

/// The counters of each target.
const COUNTERS: [&str; 5] = ["hot", "warm", "cold", "unknown", "in swap"];
const SWAP: usize = 4;

// fields of TracePacket
const CLOCK_SNAPSHOT: u64 = 6;
const TIMESTAMP: u64 = 8;
const SEQUENCE: u64 = 10;
const TRACK_EVENT: u64 = 11;
const TIMESTAMP_CLOCK: u64 = 58;
const TRACK_DESCRIPTOR: u64 = 60;
// fields of ClockSnapshot and of its Clock, and values of BuiltinClock
const CLOCKS: u64 = 1;
const PRIMARY_TRACE_CLOCK: u64 = 2;
const CLOCK: u64 = 1;
const CLOCK_TIME: u64 = 2;
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;
// fields of TrackDescriptor
const UUID: u64 = 1;
const NAME: u64 = 2;
const PROCESS: u64 = 3;
const PARENT: u64 = 5;
const COUNTER: u64 = 8;
// fields of ProcessDescriptor
const PID: u64 = 1;
const PROCESS_NAME: u64 = 6;
// a field of CounterDescriptor, and its value
const UNIT: u64 = 3;
const SIZE_BYTES: u64 = 3;
// fields of TrackEvent, and a value of TYPE
const TYPE: u64 = 9;
const TRACK: u64 = 11;
const VALUE: u64 = 30;
const TYPE_COUNTER: u64 = 4;

/// Writes a record as a trace of Perfetto. Each target has counters in bytes: hot, warm, cold, unknown, and in swap.
///
/// Times are those of the record, and the trace states their clock: the monotonic one, beside the wall clock at the
/// start; or, in an import, the wall clock alone. Perfetto converts them to the clock of another trace. A record whose
/// start is not known has an unknown clock, which the trace does not state.
///
/// # Errors
/// If the record cannot be read (a missing end is not an error), or `out` cannot be written.
pub fn export_perfetto(
    reader: Reader,
    thresholds: &Thresholds,
    mut out: impl Write,
) -> Result<Exported, ExportError> {
    let mut named: HashMap<TargetId, Option<u32>> = HashMap::new();
    let mut shown = BTreeSet::new();
    let mut clock = None;
    let exported = each(reader, |event| {
        match event {
            Event::Header(facts) => {
                clock = clock_of(facts);
                if let Some(clock) = clock {
                    clocks(&mut out, facts, clock)?;
                }
            }
            Event::Target(t) if named.insert(t.id, t.pid).is_none() => describe(&mut out, t)?,
            Event::Attribution(a) => {
                value(&mut out, (a.at, clock), track(a.target, SWAP), a.swapped)?;
            }
            Event::Snapshot(s) => {
                let now = s.targets.iter().map(|view| view.id).collect();
                // A counter has its value until the next one.
                for &gone in shown.difference(&now) {
                    for i in 0..COUNTERS.len() {
                        value(&mut out, (s.start, clock), track(gone, i), 0)?;
                    }
                }
                shown = now;
                for view in &s.targets {
                    let b = view.bytes(thresholds);
                    for (i, bytes) in [b.hot, b.warm, b.cold, b.unknown].into_iter().enumerate() {
                        // The figures are those of the interval, so that they hold from its beginning.
                        value(&mut out, (s.start, clock), track(view.id, i), bytes)?;
                    }
                }
                return Ok(true);
            }
            _ => {}
        }
        Ok(false)
    })?;
    out.flush()?;
    Ok(exported)
}

/// The number of the track of a target, above those of its counters.
fn parent(id: TargetId) -> u64 {
    (u64::from(id.0) + 1) * 16
}

fn track(id: TargetId, counter: usize) -> u64 {
    parent(id) + 1 + counter as u64
}

/// The clock of a record's times, unless it is not known.
fn clock_of(facts: &RecordingHeader) -> Option<u64> {
    match (facts.started_unix_ms, facts.started.0 / 1_000_000) {
        (0, _) => None,
        // an import whose times are those of the wall clock
        (unix_ms, start_ms) if unix_ms == start_ms => Some(REALTIME),
        _ => Some(MONOTONIC),
    }
}

/// Writes the time of the recording's start on each clock that the record has.
fn clocks(out: &mut impl Write, facts: &RecordingHeader, clock: u64) -> std::io::Result<()> {
    let mut snapshot = Message::default();
    let unix_ns = facts.started_unix_ms.saturating_mul(1_000_000);
    let wall = (clock != REALTIME).then_some((REALTIME, unix_ns));
    for (id, ns) in [(clock, facts.started.0)].into_iter().chain(wall) {
        let mut reading = Message::default();
        reading.number(CLOCK, id).number(CLOCK_TIME, ns);
        snapshot.message(CLOCKS, &reading);
    }
    snapshot.number(PRIMARY_TRACE_CLOCK, clock);
    packet(out, None, CLOCK_SNAPSHOT, &snapshot)
}

/// Writes the tracks of a target.
fn describe(out: &mut impl Write, target: &TargetInfo) -> std::io::Result<()> {
    let mut head = Message::default();
    head.number(UUID, parent(target.id)).text(NAME, &target.command);
    if let Some(pid) = target.pid {
        let mut process = Message::default();
        process.number(PID, pid.into()).text(PROCESS_NAME, &target.command);
        head.message(PROCESS, &process);
    }
    packet(out, None, TRACK_DESCRIPTOR, &head)?;
    for (i, name) in COUNTERS.iter().enumerate() {
        let mut unit = Message::default();
        unit.number(UNIT, SIZE_BYTES);
        let mut counter = Message::default();
        counter
            .number(UUID, track(target.id, i))
            .text(NAME, name)
            .number(PARENT, parent(target.id))
            .message(COUNTER, &unit);
        packet(out, None, TRACK_DESCRIPTOR, &counter)?;
    }
    Ok(())
}

/// A time, and its clock if that is known.
type Time = (Nanos, Option<u64>);

fn value(out: &mut impl Write, at: Time, track: u64, bytes: u64) -> std::io::Result<()> {
    let mut event = Message::default();
    event.number(TYPE, TYPE_COUNTER).number(TRACK, track).number(VALUE, bytes);
    packet(out, Some(at), TRACK_EVENT, &event)
}

/// Writes a packet of the trace, field 1 of it.
fn packet(
    out: &mut impl Write,
    at: Option<Time>,
    field: u64,
    content: &Message,
) -> std::io::Result<()> {
    let mut packet = Message::default();
    if let Some((at, clock)) = at {
        packet.number(TIMESTAMP, at.0);
        if let Some(clock) = clock {
            packet.number(TIMESTAMP_CLOCK, clock);
        }
    }
    packet.number(SEQUENCE, 1).message(field, content);
    let mut trace = Message::default();
    trace.message(1, &packet);
    out.write_all(&trace.0)
}

/// An encoded message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.0.push(n.to_le_bytes()[0] | 0x80);
            n >>= 7;
        }
        self.0.push(n.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u64, n: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(n);
        self
    }

    fn text(&mut self, field: u64, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(&mut self, field: u64, message: &Message) -> &mut Self {
        self.bytes(field, &message.0)
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_encoded_as_protobuf() {
        let mut inner = Message::default();
        inner.number(1, 150);
        let mut outer = Message::default();
        outer.text(2, "testing").message(3, &inner).number(60, 0);
        // the examples of protobuf's own description of its encoding
        let expected = b"\x12\x07testing\x1a\x03\x08\x96\x01\xe0\x03\x00";
        assert_eq!(outer.0, expected);
    }
}
