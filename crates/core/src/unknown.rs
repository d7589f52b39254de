//! Memory whose accesses cannot be seen.

/// Why accesses to a page cannot be seen. Such memory is neither hot nor cold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unknown {
    /// mapped more than once: clearing is skipped in silence by the kernel
    Shared,
    /// locked by `mlock`
    Mlocked,
    /// explicit huge pages
    Hugetlb,
    /// the process holds a KVM VM: the guest's accesses set other bits
    Kvm,
    /// a device may access it (VFIO, RDMA, fixed `io_uring` buffers)
    Dma,
    /// memory of the kernel or of a driver
    Special,
    /// a part of a large folio that is not mapped whole: clearing would split it
    Partial,
    /// no look succeeded in the interval, or the page is too new to be cleared
    Unseen,
    /// page cache that no process maps, where the kernel does not note by page frame that it is read or written
    Cache,
}

impl Unknown {
    /// All reasons, in the order of their index.
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

    /// Position in [`Unknown::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// The word used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["shared", "mlocked", "hugetlb", "kvm", "dma", "special", "partial", "unseen", "cache"]
            [self.index()]
    }
}

/// A count for each reason of [`Unknown::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pages<T>(pub [T; Unknown::ALL.len()]);

impl<T: Copy + Into<u64>> Pages<T> {
    /// Over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().map(|&n| n.into()).sum()
    }
}
