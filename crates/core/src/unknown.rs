//! Memory whose accesses cannot be observed.

/// The reason why accesses to a page cannot be observed. Such memory is neither hot nor cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Unknown {
    /// mapped more than once: the kernel silently skips such pages when it clears
    Shared,
    /// locked by `mlock`
    Mlocked,
    /// explicit huge pages
    Hugetlb,
    /// the process has a KVM VM: accesses of the guest set bits in other page tables
    Kvm,
    /// a device may access it (VFIO, RDMA, fixed `io_uring` buffers)
    Dma,
    /// memory of the kernel or of a driver
    Special,
    /// part of a large folio that is not completely mapped: clearing would split the folio
    Partial,
    /// no look succeeded in the interval, or the page is too new to have been cleared
    Unseen,
    /// page cache that no process maps, on a kernel that does not record reads and writes by page frame
    Cache,
}

impl Unknown {
    /// All reasons, in index order.
    pub const ALL: [Unknown; 9] = [
        Unknown::Shared,
        Unknown::Mlocked,
        Unknown::Hugetlb,
        Unknown::Kvm,
        Unknown::Dma,
        Unknown::Special,
        Unknown::Partial,
        Unknown::Unseen,
        Unknown::Cache,
    ];

    /// Index in [`Unknown::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The name in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["shared", "mlocked", "hugetlb", "kvm", "dma", "special", "partial", "unseen", "cache"]
            [self.index()]
    }
}

/// A count for each reason in [`Unknown::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnknownPages<T>(pub [T; Unknown::ALL.len()]);

impl<T: Copy + Into<u64>> UnknownPages<T> {
    /// Sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|&n| n.into()).sum()
    }
}
