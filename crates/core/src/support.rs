//! The support of a rate: whether it is measured, extended from a sample, or old.

use std::iter::Sum;
use std::ops::AddAssign;

/// The shares of a region's visible resident pages whose rate is measured or extended, of 10,000. The rest is
/// [old](RateSupport::old_bp).
///
/// Example: 6 MiB were cleared and read recently, 1 MiB is presumed similar to these, and the last exposure
/// of 1 MiB is too long ago: 7,500 measured, 1,250 extended, and 1,250 old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateSupport {
    /// The monitor looked at these pages itself, recently enough to describe the present.
    pub measured_bp: u32,
    /// The rate of these pages is presumed from a sample of the same stretch.
    pub extended_bp: u32,
}

impl RateSupport {
    /// The whole rate is measured. A region without a visible page has this support too.
    pub const MEASURED: RateSupport = RateSupport { measured_bp: WHOLE_BP, extended_bp: 0 };
    /// The whole rate is old.
    pub const OLD: RateSupport = RateSupport { measured_bp: 0, extended_bp: 0 };

    /// The support for `measured` and `extended` of `all` pages or bytes. If their sum exceeds `all`, the
    /// excess is dropped.
    #[must_use]
    pub fn of(measured: u64, extended: u64, all: u64) -> Self {
        if all == 0 {
            return RateSupport::MEASURED;
        }
        let bp = |n: u64| u128::from(n.min(all)) * u128::from(WHOLE_BP) / u128::from(all);
        let bp = |n: u64| u32::try_from(bp(n)).unwrap_or(WHOLE_BP);
        let measured_bp = bp(measured);
        // The sum is rounded, not each share, so that rounding never produces old memory.
        RateSupport {
            measured_bp,
            extended_bp: bp(measured.saturating_add(extended)) - measured_bp,
        }
    }

    /// Share of the pages whose rate is known only from an earlier time.
    #[must_use]
    pub fn old_bp(&self) -> u32 {
        WHOLE_BP.saturating_sub(self.measured_bp.saturating_add(self.extended_bp))
    }
}

/// Visible bytes by support of their rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SupportBytes {
    /// see [`RateSupport::measured_bp`]
    pub measured: u64,
    /// see [`RateSupport::extended_bp`]
    pub extended: u64,
    /// see [`RateSupport::old_bp`]
    pub old: u64,
}

impl SupportBytes {
    /// Divides `bytes` by the shares of `support`.
    pub(crate) fn of(bytes: u64, support: RateSupport) -> Self {
        let upto = |bp: u32| share(bytes, bp.min(WHOLE_BP));
        let measured = upto(support.measured_bp);
        let known = upto(support.measured_bp.saturating_add(support.extended_bp));
        SupportBytes { measured, extended: known - measured, old: bytes - known }
    }

    /// Sum of all bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.measured + self.extended + self.old
    }
}

impl AddAssign for SupportBytes {
    fn add_assign(&mut self, o: Self) {
        self.measured += o.measured;
        self.extended += o.extended;
        self.old += o.old;
    }
}

impl Sum for SupportBytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        let mut all = SupportBytes::default();
        iter.for_each(|b| all += b);
        all
    }
}

/// A whole, in basis points.
pub const WHOLE_BP: u32 = 10_000;

/// `bp` of 10,000 of `bytes`, without overflow. Schemes call it for every region: a division of 128 bits would be slow.
pub(crate) fn share(bytes: u64, bp: u32) -> u64 {
    let (whole, bp) = (u64::from(WHOLE_BP), u64::from(bp));
    (bytes / whole).saturating_mul(bp).saturating_add(bytes % whole * bp / whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_of_all_pages() {
        let support = RateSupport::of(6, 1, 8);
        assert_eq!(support, RateSupport { measured_bp: 7_500, extended_bp: 1_250 });
        assert_eq!(support.old_bp(), 1_250);
        assert_eq!(RateSupport::of(0, 0, 8), RateSupport::OLD);
        assert_eq!(RateSupport::of(0, 0, 0), RateSupport::MEASURED);
        let bytes = SupportBytes::of(800, support);
        assert_eq!(bytes, SupportBytes { measured: 600, extended: 100, old: 100 });
    }

    proptest! {
        /// This also holds for counts that contradict each other.
        #[test]
        fn shares_never_exceed_the_whole(measured: u64, extended: u64, all: u64, bytes: u64) {
            let support = RateSupport::of(measured, extended, all);
            let known = support.measured_bp + support.extended_bp;
            prop_assert!(known <= 10_000);
            prop_assert_eq!(support.old_bp(), 10_000 - known);
            prop_assert_eq!(SupportBytes::of(bytes, support).total(), bytes);
        }

        #[test]
        fn shares_are_exact(bytes: u64, bp in 0u32..=10_000) {
            let exact = u128::from(bytes) * u128::from(bp) / 10_000;
            prop_assert_eq!(u128::from(share(bytes, bp)), exact);
        }

        #[test]
        fn nothing_is_old_by_rounding(measured in 0u64..1 << 40, extended in 0u64..1 << 40) {
            prop_assert_eq!(RateSupport::of(measured, extended, measured + extended).old_bp(), 0);
        }

        /// A caller may set the fields directly.
        #[test]
        fn bytes_add_up_whatever_the_shares(measured_bp: u32, extended_bp: u32, bytes: u64) {
            let support = RateSupport { measured_bp, extended_bp };
            prop_assert_eq!(SupportBytes::of(bytes, support).total(), bytes);
        }
    }
}
