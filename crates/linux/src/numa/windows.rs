//! Resident memory in windows: what is read, compared and moved at a time.

use isotherm_core::AddrRange;

/// A multiple of huge pages.
const PART: u64 = 64 << 20;

/// Stretches cut at multiples of [`PART`], and those within one of these joined: one read of page
/// tables and one move take the same.
pub(super) fn windows(stretches: &[AddrRange]) -> Vec<AddrRange> {
    let mut out: Vec<AddrRange> = Vec::new();
    for s in stretches {
        let mut at = s.start;
        while at < s.end {
            let end = s.end.min((at / PART + 1) * PART);
            match out.last_mut() {
                Some(last) if last.start / PART == at / PART => last.end = end,
                _ => out.push(AddrRange::new(at, end)),
            }
            at = end;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_take_what_lies_in_one_part() {
        let r = AddrRange::new;
        let found = windows(&[r(0, 4096), r(8192, PART + 4096), r(2 * PART, 2 * PART + 4096)]);
        assert_eq!(found, [r(0, PART), r(PART, PART + 4096), r(2 * PART, 2 * PART + 4096)]);
    }
}
