//! A page of the kernel's ring buffer of trace events.
//!
//! Source: `include/linux/ring_buffer.h`, and `events/header_page` and `events/header_event` in tracefs,
//! which are the same on all 64-bit kernels.

use isotherm_core::Nanos;

/// Time stamp and length, which precede the events of a page.
const HEADER: usize = 16;
/// Bits of the length field that contain the length.
const LENGTH: u64 = (1 << 27) - 1;
/// Flag of the length field: events before this page were overwritten.
const MISSED_EVENTS_FLAG: u64 = 1 << 31;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// The events of a page, with their times.
#[derive(Debug)]
pub(super) struct Page<'a> {
    events: &'a [u8],
    time: u64,
    /// Whether events before this page were lost.
    pub missed: bool,
}

impl<'a> Page<'a> {
    /// Parses the bytes from a read of `trace_pipe_raw`; `None` if they are too few.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let commit = word(bytes, 8)?;
        let len = usize::try_from(commit & LENGTH).ok()?;
        let events = bytes.get(HEADER..)?;
        Some(Page {
            events: events.get(..len).unwrap_or(events),
            time: word(bytes, 0)?,
            missed: commit & MISSED_EVENTS_FLAG != 0,
        })
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.events.split_at_checked(len)?;
        self.events = rest;
        Some(taken)
    }

    fn take_u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.take(4)?.try_into().ok()?))
    }
}

/// Yields the time and the bytes of each event.
impl<'a> Iterator for Page<'a> {
    type Item = (Nanos, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let header = self.take_u32()?;
            let (kind, delta) = (header & 31, u64::from(header >> 5));
            match kind {
                PADDING if delta == 0 => return None,
                TIME_EXTEND => {
                    let delta = delta | u64::from(self.take_u32()?) << 27;
                    self.time = self.time.wrapping_add(delta);
                }
                // The time stamp has 59 bits; the higher bits stay unchanged.
                TIME_STAMP => {
                    let low = delta | u64::from(self.take_u32()?) << 27;
                    self.time = self.time >> 59 << 59 | low;
                }
                _ => {
                    let len = match kind {
                        0 | PADDING => self.take_u32()?.checked_sub(4)?,
                        words => words * 4,
                    };
                    self.time = self.time.wrapping_add(delta);
                    let bytes = self.take(usize::try_from(len).ok()?)?;
                    if kind != PADDING {
                        return Some((Nanos(self.time), bytes));
                    }
                }
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::format::Format;
    use super::*;

    /// Two pages as Linux 7.2 gave them: what `trace` showed at the same time.
    #[test]
    fn pages_of_a_kernel() {
        let format = Format::parse(include_str!("format.txt")).unwrap();
        let bytes = include_bytes!("two_pages.bin");
        let pages = bytes.chunks(4096).flat_map(|b| {
            let page = Page::new(b).unwrap();
            assert!(!page.missed);
            page.map(|(at, bytes)| (at, format.decode(bytes).unwrap()))
        });
        let events: Vec<_> = pages.collect();
        assert_eq!(events.len(), 131);
        assert!(events.is_sorted_by_key(|(at, _)| *at));
        let us = |i: usize| (events[i].0.0 + 500) / 1000;
        assert_eq!((us(0), us(1), us(14)), (6_790_349, 6_791_071, 6_908_199));
        let first = events[0].1;
        assert_eq!((first.target, first.nr_regions, first.region.age), (0, 14, 21));
        assert_eq!(first.region.range.end, 276_369_408);
        assert_eq!(events[1].1.region.nr_accesses, 12);
    }

    fn page(commit: u64, words: &[u32]) -> Vec<u8> {
        let mut bytes = [1_000u64.to_ne_bytes(), commit.to_ne_bytes()].concat();
        bytes.extend(words.iter().flat_map(|w| w.to_ne_bytes()));
        bytes
    }

    #[test]
    fn times_and_lengths_of_all_kinds() {
        let words: Vec<u32> = [
            &[1 | (5 << 5), 7][..],       // 4 bytes, 5 ns later
            &[TIME_EXTEND | (1 << 5), 2], // 2 x 2^27 + 1 ns later
            &[0, 8, 9],                   // with a length of its own
            &[PADDING | (3 << 5), 8, 0],  // left out, but its time counts
            &[1, 10],
            &[TIME_STAMP | (4 << 5), 1], // at 2^27 + 4
            &[1, 11],
            &[PADDING, 1], // the rest of the page is empty
        ]
        .concat();
        let bytes = page((words.len() as u64 * 4) | MISSED_EVENTS_FLAG, &words);
        let page = Page::new(&bytes).unwrap();
        assert!(page.missed);
        let events: Vec<_> = page.map(|(at, b)| (at.0, b[0])).collect();
        let later = 1_005 + (2 << 27) + 1;
        assert_eq!(events, [(1_005, 7), (later, 9), (later + 3, 10), ((1 << 27) + 4, 11)]);
    }

    #[test]
    fn a_page_that_is_cut_ends() {
        assert!(Page::new(&[0; 12]).is_none());
        for words in [&[1u32][..], &[0, 100, 1], &[0, 2], &[TIME_EXTEND], &[28, 0]] {
            assert_eq!(Page::new(&page(1 << 20, words)).unwrap().count(), 0, "{words:?}");
        }
    }
}
