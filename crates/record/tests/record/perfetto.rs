//! Traces of Perfetto, decoded by the rules of protobuf.

use std::process::Command;

use isotherm_core::Thresholds;
use isotherm_record::{RecordingHeader, export_perfetto};

use crate::python::python_with;
use crate::samples::{facts, few, reader, record_attributed, record_with};

/// values of Perfetto's BuiltinClock
const REALTIME: u64 = 1;
const MONOTONIC: u64 = 3;

/// A field of a message: its number, and its value or content.
#[derive(Debug, PartialEq)]
enum Field<'a> {
    Number(u64, u64),
    Bytes(u64, &'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut n = 0;
    for i in 0.. {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return n;
        }
    }
    n
}

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = varint(&mut bytes);
        fields.push(match key & 7 {
            0 => Field::Number(key >> 3, value),
            2 => {
                let (content, rest) = bytes.split_at(usize::try_from(value).unwrap());
                bytes = rest;
                Field::Bytes(key >> 3, content)
            }
            kind => panic!("a field of kind {kind}"),
        });
    }
    fields
}

fn number(fields: &[Field<'_>], wanted: u64) -> Option<u64> {
    fields.iter().find_map(|f| match f {
        Field::Number(id, n) if *id == wanted => Some(*n),
        _ => None,
    })
}

fn bytes<'a>(fields: &[Field<'a>], wanted: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|f| match f {
        Field::Bytes(id, content) if *id == wanted => Some(*content),
        _ => None,
    })
}

#[test]
fn each_target_has_counters_of_all_its_bytes() {
    let mut trace = Vec::new();
    let mut snapshots = few(10);
    snapshots[9].targets.clear();
    let record = record_attributed(&snapshots);
    let exported = export_perfetto(reader(&record), &Thresholds::default(), &mut trace).unwrap();
    assert_eq!(exported.snapshots, 10);
    let packets = fields(&trace);
    assert!(packets.iter().all(|p| matches!(p, Field::Bytes(1, _))));

    let (mut tracks, mut values, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    for packet in &packets {
        let Field::Bytes(_, packet) = packet else { unreachable!() };
        let packet = fields(packet);
        assert_eq!(number(&packet, 10), Some(1), "a sequence");
        if let Some(snapshot) = bytes(&packet, 6) {
            let snapshot = fields(snapshot);
            assert_eq!(number(&snapshot, 2), Some(MONOTONIC), "the clock of the trace");
            clocks.extend(snapshot.iter().filter_map(|field| match field {
                Field::Bytes(1, clock) => {
                    let clock = fields(clock);
                    Some((number(&clock, 1)?, number(&clock, 2)?))
                }
                _ => None,
            }));
        } else if let Some(track) = bytes(&packet, 60) {
            let track = fields(track);
            let name = String::from_utf8(bytes(&track, 2).unwrap().to_vec()).unwrap();
            tracks.push((number(&track, 1).unwrap(), number(&track, 5), name));
        } else {
            let event = fields(bytes(&packet, 11).unwrap());
            assert_eq!(number(&event, 9), Some(4), "a counter");
            assert_eq!(number(&packet, 58), Some(MONOTONIC), "the clock of its time");
            let at = number(&packet, 8).unwrap();
            values.push((at, number(&event, 11).unwrap(), number(&event, 30).unwrap()));
        }
    }
    let facts = facts();
    let start = facts.started.0;
    assert_eq!(clocks, [(MONOTONIC, start), (REALTIME, facts.started_unix_ms * 1_000_000)]);
    let app = tracks.iter().find(|t| t.2 == "app 1").unwrap().0;
    let counters: Vec<_> = tracks.iter().filter(|t| t.1 == Some(app)).collect();
    let names: Vec<&str> = counters.iter().map(|t| t.2.as_str()).collect();
    assert_eq!(names, ["hot", "warm", "cold", "unknown", "in swap"]);
    let value =
        |at: u64, i: usize| values.iter().find(|v| v.0 == at && v.1 == counters[i].0).map(|v| v.2);
    // all snapshots have three regions of 4 KiB
    assert_eq!((0..4).map(|i| value(start, i).unwrap()).sum::<u64>(), 0x3000);
    assert_eq!(value(start + 2 * 400_000_000 - 1, 4), Some(1 << 20));
    // The target is not in the last snapshot: it has ended.
    let last = snapshots[9].start.0;
    assert_eq!((0..5).map(|i| value(last, i)).collect::<Vec<_>>(), [Some(0); 5]);
}

/// The times of an import may be those of the wall clock, or of a clock that is not known.
#[test]
fn the_clock_is_that_of_the_record() {
    for (started_unix_ms, clock) in [(0, None), (5_000, Some(REALTIME))] {
        let facts = RecordingHeader { started_unix_ms, ..facts() };
        let mut trace = Vec::new();
        let record = record_with(&facts, &few(1));
        export_perfetto(reader(&record), &Thresholds::default(), &mut trace).unwrap();
        let (mut stated, mut used) = (None, Vec::new());
        for packet in fields(&trace) {
            let Field::Bytes(1, packet) = packet else { unreachable!() };
            let packet = fields(packet);
            stated = stated.or(bytes(&packet, 6).and_then(|snapshot| number(&fields(snapshot), 2)));
            if bytes(&packet, 11).is_some() {
                used.push(number(&packet, 58));
            }
        }
        assert_eq!(stated, clock);
        assert!(!used.is_empty() && used.iter().all(|used| *used == clock), "{used:?}");
    }
}

/// Parses a trace by Perfetto's own schema. Its argument is the file.
const SCRIPT: &str = r#"
import sys
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import BUILTIN_CLOCK_MONOTONIC, BUILTIN_CLOCK_REALTIME, CounterDescriptor, Trace, TrackEvent

trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())

def check(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for _, value in message.ListFields():
        for part in [value] if isinstance(value, Message) else value if hasattr(value, "add") else []:
            check(part)

check(trace)
[clock] = [p.clock_snapshot for p in trace.packet if p.HasField("clock_snapshot")]
assert clock.primary_trace_clock == BUILTIN_CLOCK_MONOTONIC, clock
assert [c.clock_id for c in clock.clocks] == [BUILTIN_CLOCK_MONOTONIC, BUILTIN_CLOCK_REALTIME], clock
assert all(p.timestamp_clock_id == BUILTIN_CLOCK_MONOTONIC for p in trace.packet if p.HasField("track_event"))
tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
process = next(t for t in tracks.values() if t.name == "app 1")
assert process.process.pid == 4001 and process.process.process_name == "app 1", process
counters = {t.name: uuid for uuid, t in tracks.items() if t.parent_uuid == process.uuid}
assert list(counters) == ["hot", "warm", "cold", "unknown", "in swap"], counters
for uuid in counters.values():
    assert tracks[uuid].counter.unit == CounterDescriptor.UNIT_SIZE_BYTES, tracks[uuid]
values = {}
for packet in trace.packet:
    if packet.HasField("track_event"):
        event = packet.track_event
        assert event.type == TrackEvent.TYPE_COUNTER and packet.trusted_packet_sequence_id == 1, packet
        assert event.track_uuid in tracks, packet
        values.setdefault(event.track_uuid, []).append((packet.timestamp, event.counter_value))
of = [values[counters[name]] for name in ("hot", "warm", "cold", "unknown")]
assert all(len(rows) == 10 for rows in of), of
assert all(sum(value for _, value in rows) == 0x3000 for rows in zip(*of)), of
assert [time for time, _ in of[0]] == [5_000_000_000 + n * 400_000_000 for n in range(10)], of[0]
"#;

#[test]
fn the_schema_of_perfetto_knows_every_field() {
    let module = "perfetto.protos.perfetto.trace.perfetto_trace_pb2";
    let Some(python) = python_with(module, "perfetto==0.59.1") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("record.pftrace");
    let record = record_attributed(&few(10));
    let out = std::fs::File::create(&file).unwrap();
    export_perfetto(reader(&record), &Thresholds::default(), out).unwrap();
    let out = Command::new(python).args(["-c", SCRIPT]).arg(&file).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
