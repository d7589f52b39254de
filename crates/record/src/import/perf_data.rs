//! `perf.data` of the tracepoints `damon:damon_aggregated` and `damon:damos_before_apply`.
//!
//! perf's format is in the kernel's `tools/perf/Documentation/perf.data-file-format.txt`. This reader uses no
//! length without a limit, which the crates for perf.data do. It reads what `perf record` writes to a file:
//! little-endian, neither compressed nor in pipe mode.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

use super::events::{Event, Events, kdamond};
use super::fault::Fault;
use super::series::{MAX_IMPORTED_TARGETS, NO_AGE, Name, Region, Results};

/// First bytes.
pub(super) const MAGIC: &[u8; 8] = b"PERFILE2";
/// Maximal number of events: they are sorted by time in memory, 72 bytes each.
const MAX_EVENTS: usize = 8 << 20;
/// Maximal size of the formats of tracepoints.
const MAX_FORMATS: u64 = 16 << 20;
/// Maximal number of attributes of events.
const MAX_ATTRS: u64 = 4096;

/// Size of the header with its offsets of sections; a header of pipe mode has 16 bytes.
const HEADER: usize = 104;
const TYPE_TRACEPOINT: u64 = 2;
const RECORD_COMM: u32 = 3;
const RECORD_SAMPLE: u32 = 9;
const RECORD_AUXTRACE: u32 = 71;
const RECORD_COMPRESSED: [u32; 2] = [81, 83];
const FEATURE_FORMATS: u32 = 1;
const FEATURE_HOSTNAME: u32 = 3;
const FEATURE_OSRELEASE: u32 = 4;

/// The parts of a sample, in their order, by their bit in `sample_type`. All have 8 bytes but the last two.
const BEFORE_THREAD: [u64; 2] = [1 << 16, 1];
const THREAD: u64 = 1 << 1;
const TIME: u64 = 1 << 2;
const AFTER_TIME: [u64; 5] = [1 << 3, 1 << 6, 1 << 9, 1 << 7, 1 << 8];
const READ: u64 = 1 << 4;
const CALLCHAIN: u64 = 1 << 5;
const RAW: u64 = 1 << 10;

pub(super) fn read(mut input: impl Read + Seek) -> Result<Results, Fault> {
    let mut head = [0; HEADER];
    bytes(&mut input, 0, &mut head)?;
    if le64(&head, 8) != Some(HEADER as u64) {
        let why =
            "it was written in pipe mode: record to a file, or import what perf script prints";
        return Err(Fault::at(8, why));
    }
    let section = |at| le64(&head, at).zip(le64(&head, at + 8)).unwrap_or_default();
    let (attrs, data) = (section(24), section(40));
    let sample_type = sample_type(&mut input, attrs, le64(&head, 16).unwrap_or(0))?;
    let features = le64(&head, 72).unwrap_or(0);
    let formats = feature(&mut input, data, features, FEATURE_FORMATS)?;
    let formats = formats.ok_or_else(|| Fault::at(72, "it has no formats of tracepoints"))?;
    let formats = String::from_utf8_lossy(&formats);
    let layouts: Vec<Layout> = ["damon_aggregated", "damos_before_apply"]
        .into_iter()
        .filter_map(|name| Layout::parse(&formats, name))
        .collect();

    let (mut all, mut kdamonds) = (Vec::new(), HashMap::new());
    for_each_record(&mut input, data, |at, kind, body| {
        if kind == RECORD_COMM {
            kdamonds.extend(kdamond_thread(body));
            if kdamonds.len() > MAX_IMPORTED_TARGETS {
                return Err(Fault::large(at, MAX_IMPORTED_TARGETS, "kdamonds"));
            }
        }
        if kind != RECORD_SAMPLE {
            return Ok(());
        }
        // Samples of other events may have other parts.
        let Some((thread, time, raw)) = split(body, sample_type) else { return Ok(()) };
        if let Some(mut event) = layouts.iter().find_map(|layout| layout.decode(raw, time)) {
            if all.len() >= MAX_EVENTS {
                return Err(Fault::large(at, MAX_EVENTS, "events"));
            }
            // until all names of threads are known
            event.name = event.name.of_kdamond(thread.into());
            all.push((event, at));
        }
        Ok(())
    })?;
    // Each CPU has its own buffer, so that events of different CPUs are not in order, nor are names and events.
    all.sort_by_key(|(event, _)| event.end);
    let mut events = Events::default();
    for (mut event, at) in all {
        let number = kdamonds.get(&event.name.kdamond()).copied().unwrap_or(0);
        event.name = event.name.of_kdamond(number);
        events.push(event, at)?;
    }
    let mut results = events.finish(data.0.saturating_add(data.1))?;
    let host = feature(&mut input, data, features, FEATURE_HOSTNAME)?;
    let kernel = feature(&mut input, data, features, FEATURE_OSRELEASE)?;
    results.machine = host.zip(kernel).map(|(host, kernel)| (text(&host), text(&kernel)));
    Ok(results)
}

/// The parts of samples. All tracepoints must have the same.
fn sample_type(input: &mut (impl Read + Seek), attrs: (u64, u64), size: u64) -> Result<u64, Fault> {
    let (offset, len) = attrs;
    let count = len.checked_div(size).unwrap_or(0);
    if !(1..=MAX_ATTRS).contains(&count) || size < 40 {
        return Err(Fault::at(24, "it has no attributes of events, or more than any has"));
    }
    let mut found = None;
    for i in 0..count {
        let at = offset.saturating_add(i.saturating_mul(size));
        let mut attr = [0; 32];
        bytes(input, at, &mut attr)?;
        let sample_type = le64(&attr, 24).unwrap_or(0);
        if le64(&attr, 0).map(|n| n & 0xffff_ffff) != Some(TYPE_TRACEPOINT) {
            continue;
        }
        if sample_type & TIME == 0 || sample_type & RAW == 0 {
            let why = "samples of its tracepoints have no time or no raw data: record them with perf record -e";
            return Err(Fault::at(at, why));
        }
        if found.is_some_and(|found| found != sample_type) || sample_type & READ != 0 {
            let why = "its tracepoints were recorded with different parts: import what perf script prints";
            return Err(Fault::at(at, why));
        }
        found = Some(sample_type);
    }
    found.ok_or_else(|| Fault::at(offset, "it has no tracepoints"))
}

/// The content of a feature, if the file has it. The sections are described behind the data, in the order of
/// their bits.
fn feature(
    input: &mut (impl Read + Seek),
    data: (u64, u64),
    features: u64,
    bit: u32,
) -> Result<Option<Vec<u8>>, Fault> {
    if features & (1 << bit) == 0 {
        return Ok(None);
    }
    let before = (features & ((1 << bit) - 1)).count_ones();
    let place = data.0.checked_add(data.1).and_then(|end| end.checked_add(u64::from(before) * 16));
    let place = place.ok_or_else(|| Fault::at(40, "its data end behind all files"))?;
    let mut section = [0; 16];
    bytes(input, place, &mut section)?;
    let (offset, len) = le64(&section, 0).zip(le64(&section, 8)).unwrap_or_default();
    if len > MAX_FORMATS {
        return Err(Fault::at(place, "a section is larger than any is"));
    }
    let mut content = Vec::new();
    input.seek(SeekFrom::Start(offset))?;
    let read = input.by_ref().take(len).read_to_end(&mut content)?;
    if (read as u64) < len {
        return Err(Fault::at(offset, "the file ends too early"));
    }
    Ok(Some(content))
}

/// Calls `take` with the offset, the kind and the content of each record.
fn for_each_record(
    input: &mut (impl Read + Seek),
    data: (u64, u64),
    mut take: impl FnMut(u64, u32, &[u8]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let end = data.0.saturating_add(data.1);
    let mut input = std::io::BufReader::with_capacity(256 << 10, input);
    let mut at = data.0;
    input.seek(SeekFrom::Start(at))?;
    let mut body = Vec::new();
    while at < end {
        let mut head = [0; 8];
        exact(&mut input, at, &mut head)?;
        let kind = u32::from_le_bytes(std::array::from_fn(|i| head[i]));
        let len = u16::from_le_bytes([head[6], head[7]]);
        let Some(rest) = usize::from(len).checked_sub(8) else {
            return Err(Fault::at(at, "a record of perf is shorter than its head"));
        };
        if RECORD_COMPRESSED.contains(&kind) || kind == RECORD_AUXTRACE {
            let why = "it has records that are compressed or of hardware traces: import what perf script prints";
            return Err(Fault::at(at, why));
        }
        body.resize(rest, 0);
        exact(&mut input, at, &mut body)?;
        take(at, kind, &body)?;
        at += u64::from(len);
    }
    Ok(())
}

/// The thread of a kdamond and the number of the kdamond, from the record of a thread's name.
fn kdamond_thread(body: &[u8]) -> Option<(i64, i64)> {
    let name = body.get(8..)?.split(|byte| *byte == 0).next()?;
    Some((le32(body, 4)?.into(), kdamond(str::from_utf8(name).ok()?)?))
}

/// Thread, time and raw data of a sample. The thread is 0 if the sample does not have it.
fn split(sample: &[u8], sample_type: u64) -> Option<(u32, u64, &[u8])> {
    let words = |bits: &[u64]| bits.iter().filter(|bit| sample_type & **bit != 0).count() * 8;
    let before = words(&BEFORE_THREAD);
    // pid and tid
    let thread = le32(sample, before + 4).filter(|_| sample_type & THREAD != 0).unwrap_or(0);
    let before = before + words(&[THREAD]);
    let time = le64(sample, before).filter(|_| sample_type & TIME != 0)?;
    let mut at = before + 8 + words(&AFTER_TIME);
    if sample_type & CALLCHAIN != 0 {
        let callers = usize::try_from(le64(sample, at)?).ok()?;
        at = at.checked_add(8)?.checked_add(callers.checked_mul(8)?)?;
    }
    let len = le32(sample, at).filter(|_| sample_type & RAW != 0)? as usize;
    Some((thread, time, sample.get(at + 4..)?.get(..len)?))
}

/// Where the fields of a tracepoint are.
struct Layout {
    id: u16,
    name: Vec<Field>,
    nr_regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    age: Option<Field>,
}

#[derive(Clone, Copy)]
struct Field {
    offset: usize,
    size: usize,
}

impl Layout {
    /// The layout of an event, from the texts of all formats.
    fn parse(formats: &str, event: &str) -> Option<Self> {
        let (_, text) = formats.split_once(&format!("name: {event}\n"))?;
        let (text, _) = text.split_once("print fmt:")?;
        let id = text.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok())?;
        let field = |name: &str| text.lines().find_map(|line| Field::parse(line, name));
        let names: &[&str] = match field("target_id") {
            Some(_) => &["target_id"],
            None => &["context_idx", "scheme_idx", "target_idx"],
        };
        Some(Layout {
            id,
            name: names.iter().map(|name| field(name)).collect::<Option<_>>()?,
            nr_regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            nr_accesses: field("nr_accesses")?,
            age: field("age"),
        })
    }

    /// `None` if it is another event.
    fn decode(&self, raw: &[u8], end: u64) -> Option<Event> {
        if u16::from_le_bytes(*raw.first_chunk()?) != self.id {
            return None;
        }
        let small = |field: Field| Some(u32::try_from(field.of(raw)?).unwrap_or(u32::MAX));
        let index = |field: &Field| Some(i64::from(small(*field)?));
        let name = match self.name.as_slice() {
            [target] => Name::Target(0, 0, target.of(raw)?),
            [context, scheme, target] => {
                Name::Scheme(0, index(context)?, index(scheme)?, index(target)?)
            }
            _ => return None,
        };
        let region = Region {
            start: self.start.of(raw)?,
            end: self.end.of(raw)?,
            nr_accesses: small(self.nr_accesses)?,
            age: self.age.and_then(small).unwrap_or(NO_AGE),
        };
        Some(Event { name, nr_regions: self.nr_regions.of(raw)?, region, end })
    }
}

impl Field {
    /// A line of a format: `field:unsigned int age; offset:44; size:4; signed:0;`, with tabs between.
    fn parse(line: &str, name: &str) -> Option<Self> {
        let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        if declared.rsplit(' ').next() != Some(name) {
            return None;
        }
        let number = |key: &str| rest.split_once(key)?.1.split(';').next()?.parse().ok();
        let (offset, size) = (number("offset:")?, number("size:")?);
        matches!(size, 4 | 8).then_some(Field { offset, size })
    }

    fn of(self, raw: &[u8]) -> Option<u64> {
        if self.size == 4 { le32(raw, self.offset).map(u64::from) } else { le64(raw, self.offset) }
    }
}

fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// A text with its length before it, padded with zeros.
fn text(bytes: &[u8]) -> String {
    let text = bytes.get(4..).unwrap_or_default();
    let end = text.iter().position(|b| *b == 0).unwrap_or(text.len());
    String::from_utf8_lossy(text.get(..end.min(256)).unwrap_or_default()).into_owned()
}

/// Reads the bytes at an offset.
fn bytes(input: &mut (impl Read + Seek), at: u64, out: &mut [u8]) -> Result<(), Fault> {
    input.seek(SeekFrom::Start(at))?;
    exact(input, at, out)
}

fn exact(input: &mut impl Read, at: u64, out: &mut [u8]) -> Result<(), Fault> {
    match input.read_exact(out) {
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(Fault::at(at, "the file ends too early"))
        }
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    const FORMAT: &str = "name: damon_aggregated\nID: 767\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned long target_id;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_regions;\toffset:16;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned long start;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long end;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned int nr_accesses;\toffset:40;\tsize:4;\tsigned:0;\n\
        \tfield:unsigned int age;\toffset:44;\tsize:4;\tsigned:0;\n\nprint fmt: \"...\"\n";

    fn sample(time: u64, start: u64, nr_accesses: u32) -> Vec<u8> {
        sample_of(0, time, start, nr_accesses)
    }

    /// A sample of `perf record -e damon:damon_aggregated -g`, as perf 6.18 writes it.
    fn sample_of(thread: u32, time: u64, start: u64, nr_accesses: u32) -> Vec<u8> {
        let mut raw = vec![0; 48];
        raw[..2].copy_from_slice(&767u16.to_le_bytes());
        raw[8..16].copy_from_slice(&5u64.to_le_bytes());
        raw[16..20].copy_from_slice(&2u32.to_le_bytes());
        raw[24..32].copy_from_slice(&start.to_le_bytes());
        raw[32..40].copy_from_slice(&(start + 4096).to_le_bytes());
        raw[40..44].copy_from_slice(&nr_accesses.to_le_bytes());
        raw[44..48].copy_from_slice(&9u32.to_le_bytes());
        let mut body = Vec::new();
        // identifier, ip, pid and tid, time, cpu, period, two callers
        let thread = u64::from(thread);
        for word in [29, 0, thread << 32 | thread, time, 0, 1, 2, 111, 222] {
            body.extend(u64::to_le_bytes(word));
        }
        body.extend(52u32.to_le_bytes());
        body.extend(raw);
        body.extend([0; 4]);
        record(RECORD_SAMPLE, &body)
    }

    fn record(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = u16::try_from(body.len() + 8).unwrap();
        [&kind.to_le_bytes()[..], &[0, 0], &len.to_le_bytes(), body].concat()
    }

    fn file(records: &[Vec<u8>]) -> Vec<u8> {
        let data = records.concat();
        let (attrs, attr_size) = (HEADER as u64, 144u64);
        let data_at = attrs + attr_size;
        let end = data_at + data.len() as u64;
        let mut bytes = MAGIC.to_vec();
        // sizes; attributes; data; event types; bits of features
        for word in [HEADER as u64, attr_size, attrs, attr_size, data_at, data.len() as u64, 0, 0] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(
            (1u64 << FEATURE_FORMATS | 1 << FEATURE_HOSTNAME | 1 << FEATURE_OSRELEASE)
                .to_le_bytes(),
        );
        bytes.resize(HEADER, 0);
        let sample_type = 1 << 16 | 0b111 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10;
        for word in [TYPE_TRACEPOINT | 128 << 32, 767, 1, sample_type] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(data_at as usize, 0);
        bytes.extend(data);
        let text = |text: &str| [&8u32.to_le_bytes()[..], text.as_bytes(), &[0; 2]].concat();
        let sections = [FORMAT.as_bytes().to_vec(), text("lab"), text("6.12")];
        let mut at = end + 16 * sections.len() as u64;
        for section in &sections {
            bytes.extend(at.to_le_bytes());
            bytes.extend((section.len() as u64).to_le_bytes());
            at += section.len() as u64;
        }
        bytes.extend(sections.concat());
        bytes
    }

    #[test]
    fn events_of_several_cpus_are_read_in_order_of_time() {
        let records = [
            record(68, &[0; 8]),
            sample(2_000, 0, 3),
            // one of another event, such as cycles: it has no raw data
            record(RECORD_SAMPLE, &[0; 48]),
            sample(2_001, 4096, 4),
            sample(1_000, 0, 1),
            sample(1_001, 4096, 2),
            // a result that breaks off
            sample(3_000, 0, 1),
        ];
        let results = read(Cursor::new(file(&records))).unwrap();
        let series = &results.series[0];
        assert_eq!((series.name, results.incomplete), (Name::Target(0, 0, 5), 1));
        let ends: Vec<u64> = series.spans.iter().map(|s| s.end).collect();
        assert_eq!(ends, [1_000, 2_000]);
        let region = |start, nr_accesses| Region { start, end: start + 4096, nr_accesses, age: 9 };
        assert_eq!(series.regions(1), [region(0, 3), region(4096, 4)]);
        assert_eq!(results.machine, Some(("lab".to_owned(), "6.12".to_owned())));
    }

    /// Found by an audit: the targets of two kdamonds were one, because both count theirs from 0.
    #[test]
    fn targets_of_two_kdamonds_are_two() {
        let name = |thread: u32, name: &[u8; 16]| {
            record(RECORD_COMM, &[&thread.to_le_bytes()[..], &thread.to_le_bytes(), name].concat())
        };
        let records = [
            name(70, b"kdamond.0\0\0\0\0\0\0\0"),
            name(72, b"redis-server\0\0\0\0"),
            sample_of(70, 1_000, 0, 1),
            sample_of(71, 1_000, 8192, 2),
            sample_of(70, 1_001, 4096, 1),
            sample_of(71, 1_001, 12288, 2),
            // A buffer of another CPU may have the name behind the events.
            name(71, b"kdamond.1\0\0\0\0\0\0\0"),
        ];
        let results = read(Cursor::new(file(&records))).unwrap();
        let found: Vec<_> = results.series.iter().map(|s| (s.name, s.regions(0).len())).collect();
        assert_eq!(found, [(Name::Target(0, 0, 5), 2), (Name::Target(1, 0, 5), 2)]);
        assert_eq!(results.incomplete, 0);
    }

    #[test]
    fn compressed_or_truncated_perf_data_is_refused() {
        let whole = file(&[sample(1_000, 0, 1), sample(1_001, 4096, 2)]);
        for len in 0..whole.len() {
            assert!(read(Cursor::new(&whole[..len])).is_err(), "{len}");
        }
        let compressed = file(&[record(81, &[0; 8])]);
        assert!(matches!(read(Cursor::new(compressed)), Err(Fault::At { at: 248, .. })));
    }
}
