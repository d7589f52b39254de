//! Windows of resident memory: the unit of reading, comparing and moving.

use isotherm_core::AddrRange;

/// Size of a window, a multiple of huge pages.
const PART: u64 = 64 << 20;

/// Cuts stretches at multiples of [`PART`], and joins those within one part: one read of page tables and one
/// move can handle them together.
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
    fn windows_lie_within_one_part() {
        let r = AddrRange::new;
        let found = windows(&[r(0, 4096), r(8192, PART + 4096), r(2 * PART, 2 * PART + 4096)]);
        assert_eq!(found, [r(0, PART), r(PART, PART + 4096), r(2 * PART, 2 * PART + 4096)]);
    }
}
