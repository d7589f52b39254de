//! Fragmentation of free memory: mm/vmstat.c.

/// The unusable free space index of a zone for blocks of 2^`order` pages, 0 to 1: the share of its free pages
/// that cannot form such a block. `by_order` holds the number of free blocks of 2^i pages at index i. `None`
/// if no page is free, which the kernel treats as 1.
///
/// Example: with 6 single pages and 1 block of 2 pages free, 6 of 8 pages are not usable for an allocation of
/// order 1.
#[must_use]
pub fn unusable_free_index(by_order: &[u64], order: usize) -> Option<f64> {
    let pages = |blocks: &[u64], from: usize| -> f64 {
        let sizes = (from..).map(|i| (i as f64).exp2());
        blocks.iter().skip(from).zip(sizes).map(|(&n, size)| n as f64 * size).sum()
    };
    let free = pages(by_order, 0);
    (free > 0.0).then(|| (free - pages(by_order, order)) / free)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_are_of_no_use() {
        assert_eq!(unusable_free_index(&[6, 1], 0), Some(0.0));
        assert_eq!(unusable_free_index(&[6, 1], 1), Some(0.75));
        assert_eq!(unusable_free_index(&[6, 1], 2), Some(1.0));
        assert_eq!(unusable_free_index(&[6, 1], 99), Some(1.0));
        assert_eq!(unusable_free_index(&[0, 0, 3], 2), Some(0.0));
        assert_eq!(unusable_free_index(&[], 0), None);
        assert_eq!(unusable_free_index(&[0, 0], 1), None);
    }
}
