//! A mapping and its pages.

use std::sync::Arc;

use isotherm_core::{AddrRange, BLOCK_SIZE, Mapping, MappingKind, Nanos, PAGE_SIZE, Unknown};

use crate::space::outside;

/// The properties of a mapping.
#[derive(Debug, Clone)]
pub struct MappingSpec {
    /// kind of mapping
    pub kind: MappingKind,
    /// as in `/proc/PID/maps`
    pub name: Arc<str>,
    /// resident from the start, instead of from the first touch of each page
    pub populated: bool,
    /// in huge pages wherever an aligned huge page fits: one accessed bit per 2 MiB
    pub huge: bool,
    /// the reason why accesses cannot be observed; `None`: they can
    pub unknown: Option<Unknown>,
}

impl MappingSpec {
    /// Private memory in base pages, resident from the start.
    #[must_use]
    pub fn anonymous() -> Self {
        MappingSpec {
            kind: MappingKind::Anonymous,
            name: Arc::from(""),
            populated: true,
            huge: false,
            unknown: None,
        }
    }

    /// The `brk` area; each page is resident from its first touch.
    #[must_use]
    pub fn heap() -> Self {
        let name = Arc::from("[heap]");
        MappingSpec { kind: MappingKind::Heap, name, populated: false, ..MappingSpec::anonymous() }
    }

    /// A stack; each page is resident from its first touch.
    #[must_use]
    pub fn stack() -> Self {
        let name = Arc::from("[stack]");
        MappingSpec { kind: MappingKind::Stack, name, populated: false, ..MappingSpec::anonymous() }
    }

    /// The same memory, but each page is resident from its first touch.
    #[must_use]
    pub fn on_touch(self) -> Self {
        MappingSpec { populated: false, ..self }
    }

    /// The same memory in huge pages.
    #[must_use]
    pub fn huge(self) -> Self {
        MappingSpec { huge: true, ..self }
    }

    /// The same memory, with accesses that cannot be observed.
    #[must_use]
    pub fn unknown(self, why: Unknown) -> Self {
        MappingSpec { unknown: Some(why), ..self }
    }
}

/// Zero, or the first moment whose touch counts: it sets the accessed bit, or makes the page resident again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Since(u64);

impl Since {
    /// All touches later than `now`.
    pub fn after(now: Nanos) -> Self {
        Since(now.0.saturating_add(1))
    }

    /// Whether the page counts as touched; `touched` returns whether it was touched after a time.
    pub fn holds(self, touched: impl FnOnce(Nanos) -> bool) -> bool {
        self.0.checked_sub(1).is_none_or(|after| touched(Nanos(after)))
    }
}

/// State of a base page, or, at its first page, of a huge page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SimPage {
    /// the accessed bit is set if it was touched since then
    pub young: Since,
    /// it is resident if it was touched since then
    pub resident: Since,
}

/// A mapping and its pages.
#[derive(Debug, Clone)]
pub(crate) struct MappedArea {
    pub range: AddrRange,
    pub memory: MappingSpec,
    pub mapped_at: Nanos,
    pages: Vec<SimPage>,
}

impl MappedArea {
    pub fn new(range: AddrRange, memory: MappingSpec, now: Nanos) -> Self {
        let pages = vec![fresh(&memory, now); index(range.len())];
        MappedArea { range, memory, mapped_at: now, pages }
    }

    pub fn mapping(&self) -> Mapping {
        let MappingSpec { kind, ref name, unknown, .. } = self.memory;
        Mapping { range: self.range, kind, name: Arc::clone(name), unknown }
    }

    /// The memory that shares one accessed bit: the base page at `addr`, or the huge page that contains it.
    pub fn page_at(&self, addr: u64) -> AddrRange {
        let around = |size: u64| AddrRange::new(addr - addr % size, addr - addr % size + size);
        let huge = around(BLOCK_SIZE);
        if self.memory.huge && huge.intersect(&self.range) == Some(huge) {
            huge
        } else {
            around(PAGE_SIZE)
        }
    }

    /// The state of the page that starts at `addr`; `None` outside of the mapping.
    pub fn state(&mut self, addr: u64) -> Option<&mut SimPage> {
        self.pages.get_mut(index(addr.checked_sub(self.range.start)?))
    }

    /// The parts outside `hole`.
    pub fn without(mut self, hole: AddrRange) -> impl Iterator<Item = MappedArea> {
        let [left, right] = outside(self.range, hole);
        let right_pages = self.pages.split_off(self.pages.len() - index(right.len()));
        self.pages.truncate(index(left.len()));
        let right =
            MappedArea { range: right, pages: right_pages, memory: self.memory.clone(), ..self };
        self.range = left;
        [self, right].into_iter().filter(|a| !a.range.is_empty())
    }

    /// Extends the mapping to `range`, which must contain all of it. New pages start at `now`.
    pub fn grow(&mut self, range: AddrRange, now: Nanos) {
        let new = fresh(&self.memory, now);
        let below = index(self.range.start - range.start);
        self.pages.splice(0..0, std::iter::repeat_n(new, below));
        self.pages.resize(index(range.len()), new);
        self.range = range;
    }
}

/// The state of a page when it is mapped: a populated page is resident, and young until it is first cleared.
fn fresh(memory: &MappingSpec, now: Nanos) -> SimPage {
    let resident = if memory.populated { Since::default() } else { Since::after(now) };
    SimPage { young: Since::default(), resident }
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes / PAGE_SIZE).unwrap_or(usize::MAX)
}
