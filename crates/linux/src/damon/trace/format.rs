//! The positions of the fields in a trace event, from the event's `format` file.

use isotherm_core::AddrRange;

use crate::damon::results::RawRegion;

/// The layout of `damon:damon_aggregated`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Format {
    id: u16,
    target: Field,
    nr_regions: Field,
    start: Field,
    end: Field,
    nr_accesses: Field,
    age: Field,
}

/// A region of a target in one result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    /// position of the target
    pub target: u64,
    /// number of regions of the target: as many events belong together
    pub nr_regions: u64,
    pub region: RawRegion,
}

/// An unsigned number in an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Field {
    offset: usize,
    size: usize,
}

impl Format {
    /// Parses the text of a `format` file; `Err` contains the name of a missing field.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok());
        let field = |name| {
            let found = text.lines().find_map(|line| parse_field(line, name));
            found.filter(|f| f.size == 4 || f.size == 8).ok_or(name)
        };
        Ok(Format {
            id: id.ok_or("ID")?,
            target: field("target_id")?,
            nr_regions: field("nr_regions")?,
            start: field("start")?,
            end: field("end")?,
            nr_accesses: field("nr_accesses")?,
            age: field("age")?,
        })
    }

    /// Decodes an event; `None` if it is another kind of event.
    pub fn decode(&self, bytes: &[u8]) -> Option<Event> {
        let id = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let small = |f: Field| Some(u32::try_from(f.of(bytes)?).unwrap_or(u32::MAX));
        if id != self.id {
            return None;
        }
        Some(Event {
            target: self.target.of(bytes)?,
            nr_regions: self.nr_regions.of(bytes)?,
            region: RawRegion {
                range: AddrRange::new(self.start.of(bytes)?, self.end.of(bytes)?),
                nr_accesses: small(self.nr_accesses)?,
                age: small(self.age)?,
            },
        })
    }
}

impl Field {
    fn of(self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(self.offset..self.offset.checked_add(self.size)?)?;
        match self.size {
            4 => Some(u32::from_ne_bytes(bytes.try_into().ok()?).into()),
            _ => Some(u64::from_ne_bytes(bytes.try_into().ok()?)),
        }
    }
}

/// Example: `field:unsigned long start; offset:24; size:8; signed:0;`, with tabs.
fn parse_field(line: &str, name: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declared = parts.next()?.strip_prefix("field:")?;
    if declared.rsplit(' ').next()? != name {
        return None;
    }
    let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
    let size = parts.next()?.strip_prefix("size:")?.parse().ok()?;
    Some(Field { offset, size })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = include_str!("format.txt");

    #[test]
    fn of_7_2() {
        let format = Format::parse(TEXT).unwrap();
        assert_eq!(format.id, 743);
        assert_eq!(format.end, Field { offset: 32, size: 8 });
        assert_eq!(format.age, Field { offset: 44, size: 4 });
    }

    /// Fields may move, and others come between them.
    #[test]
    fn fields_are_found_by_name() {
        let moved = TEXT.replace("offset:40", "offset:60").replace("ID: 743", "ID: 7");
        let format = Format::parse(&moved).unwrap();
        let mut bytes = vec![0; 64];
        bytes[0] = 7;
        bytes[60] = 11;
        assert_eq!(format.decode(&bytes).unwrap().region.nr_accesses, 11);
        assert_eq!(format.decode(&bytes[..60]), None, "it is cut");
        bytes[0] = 8;
        assert_eq!(format.decode(&bytes), None, "another event");
    }

    #[test]
    fn a_missing_field_is_named() {
        assert_eq!(Format::parse(&TEXT.replace(" age;", " ages;")), Err("age"));
        assert_eq!(
            Format::parse(&TEXT.replace("offset:24;\tsize:8", "offset:24;\tsize:3")),
            Err("start")
        );
    }
}
