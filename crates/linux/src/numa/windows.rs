//! Windows of resident memory: the unit of reading, comparing and moving.

use isotherm_core::AddrRange;

/// Size of a window, a multiple of huge pages.
const WINDOW_BYTES: u64 = 64 << 20;

/// Cuts stretches at multiples of [`WINDOW_BYTES`], and joins those within one part: one read of page tables and one
/// move can handle them together.
pub(super) fn windows(stretches: &[AddrRange]) -> Vec<AddrRange> {
    let mut out: Vec<AddrRange> = Vec::new();
    for s in stretches {
        let mut at = s.start;
        while at < s.end {
            let end = s.end.min((at / WINDOW_BYTES + 1) * WINDOW_BYTES);
            match out.last_mut() {
                Some(last) if last.start / WINDOW_BYTES == at / WINDOW_BYTES => last.end = end,
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
        let found = windows(&[
            r(0, 4096),
            r(8192, WINDOW_BYTES + 4096),
            r(2 * WINDOW_BYTES, 2 * WINDOW_BYTES + 4096),
        ]);
        assert_eq!(
            found,
            [
                r(0, WINDOW_BYTES),
                r(WINDOW_BYTES, WINDOW_BYTES + 4096),
                r(2 * WINDOW_BYTES, 2 * WINDOW_BYTES + 4096)
            ]
        );
    }
}
