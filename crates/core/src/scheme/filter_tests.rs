//! Filters split regions; the first match decides; the defaults are the kernel's.

use proptest::prelude::*;

use super::super::metrics::Process;
use super::super::testing::{pages, target};
use super::*;
use crate::act::PageKind;

fn mapping(at: u64, len: u64, kind: MappingKind, name: &str) -> Mapping {
    Mapping { range: pages(at, len), kind, name: Arc::from(name), unknown: None }
}

/// Pages 0 to 10 anonymous, 10 to 20 a file, 20 to 30 the heap.
fn view() -> TargetView {
    let mut view = target(1, &[]);
    view.mappings = Arc::new(vec![
        mapping(0, 10, MappingKind::Anonymous, ""),
        mapping(10, 10, MappingKind::File, "/usr/lib/libc.so"),
        mapping(20, 10, MappingKind::Heap, "[heap]"),
    ]);
    view
}

fn filter(kind: FilterKind, matching: bool, allow: bool) -> Filter {
    Filter { kind, matching, allow }
}

fn reject(kind: FilterKind) -> Filter {
    filter(kind, true, false)
}

fn allow(kind: FilterKind) -> Filter {
    filter(kind, true, true)
}

fn ranges(set: &RangeSet<u64>) -> Vec<AddrRange> {
    set.iter().map(|r| AddrRange::new(r.start, r.end)).collect()
}

/// The parts of pages 5 to 25 that are allowed.
fn through(filters: &[Filter]) -> Vec<AddrRange> {
    let parts = parts(filters, &[], pages(5, 20), &view(), &Metrics::default());
    ranges(&parts.allowed.union(&parts.undecided).collect())
}

#[test]
fn addresses_split_a_region() {
    let middle = || FilterKind::Addresses(pages(8, 4));
    assert_eq!(through(&[]), [pages(5, 20)]);
    assert_eq!(through(&[reject(middle())]), [pages(5, 3), pages(12, 13)]);
    assert_eq!(through(&[allow(middle())]), [pages(8, 4)]);
    assert_eq!(through(&[filter(middle(), false, false)]), [pages(8, 4)]);
    let elsewhere = FilterKind::Addresses(pages(100, 4));
    assert_eq!(through(&[reject(elsewhere.clone())]), [pages(5, 20)]);
    assert_eq!(through(&[allow(elsewhere)]), []);
}

/// `damos_test_filter_out`: a filter of pages 2 to 6.
#[test]
fn the_kernels_vectors() {
    let two_to_six = [reject(FilterKind::Addresses(pages(2, 4)))];
    let of = |range| {
        let p = parts(&two_to_six, &[], range, &view(), &Metrics::default());
        ranges(&p.undecided)
    };
    assert_eq!(of(pages(2, 4)), []);
    assert_eq!(of(pages(3, 2)), []);
    assert_eq!(of(pages(1, 1)), [pages(1, 1)]);
    assert_eq!(of(pages(6, 2)), [pages(6, 2)]);
    assert_eq!(of(pages(1, 3)), [pages(1, 1)]);
    assert_eq!(of(pages(2, 6)), [pages(6, 2)]);
}

#[test]
fn mappings_by_kind_and_name() {
    assert_eq!(through(&[allow(FilterKind::Mapping(MappingKind::File))]), [pages(10, 10)]);
    assert_eq!(through(&[allow(FilterKind::Name(Arc::from("")))]), [pages(5, 5)]);
    assert_eq!(through(&[allow(FilterKind::Name(Arc::from("/usr/lib")))]), []);
    assert_eq!(through(&[allow(FilterKind::NamePrefix(Arc::from("/usr/lib")))]), [pages(10, 10)]);
    let not_heap = reject(FilterKind::Name(Arc::from("[heap]")));
    assert_eq!(through(&[not_heap]), [pages(5, 15)]);
}

#[test]
fn the_first_answer_decides() {
    let file = || FilterKind::Mapping(MappingKind::File);
    let some = || FilterKind::Addresses(pages(8, 4));
    assert_eq!(through(&[allow(some()), reject(file())]), [pages(5, 7), pages(20, 5)]);
    assert_eq!(through(&[reject(file()), allow(some())]), [pages(8, 2)]);
}

#[test]
fn targets_and_cgroups_are_whole() {
    assert_eq!(through(&[reject(FilterKind::Target(TargetId(1)))]), []);
    assert_eq!(through(&[reject(FilterKind::Target(TargetId(2)))]), [pages(5, 20)]);
    let process = Process { pid: 7, comm: Arc::from("redis-server") };
    let metrics = Metrics {
        cgroups: [(TargetId(1), Arc::from("/a/b"))].into(),
        processes: [(TargetId(1), process)].into(),
        ..Metrics::default()
    };
    let is = |kind| !parts(&[allow(kind)], &[], pages(0, 9), &view(), &metrics).allowed.is_empty();
    assert!(is(FilterKind::Pid(7)) && is(FilterKind::Comm(Arc::from("redis-server"))));
    assert!(!is(FilterKind::Pid(8)) && !is(FilterKind::Comm(Arc::from("redis"))));
    let in_it = |path: &str| {
        let only = [allow(FilterKind::Cgroup(Arc::from(path)))];
        !parts(&only, &[], pages(0, 9), &view(), &metrics).allowed.is_empty()
    };
    assert!(in_it("/a/b") && in_it("/a") && in_it("/"));
    assert!(!in_it("/a/bc") && !in_it("/a/b/c") && !in_it("/b"));
}

/// Page filters decide for parts that core filters do not decide; they do not apply to parts that core
/// filters allow.
#[test]
fn page_filters_take_over() {
    let young = [PageFilter { kind: PageKind::Young, matching: true, allow: false }];
    let file = [allow(FilterKind::Mapping(MappingKind::File))];
    let p = parts(&file, &young, pages(5, 20), &view(), &Metrics::default());
    assert_eq!(ranges(&p.allowed), [pages(10, 10)]);
    assert_eq!(ranges(&p.undecided), [pages(5, 5), pages(20, 5)]);
}

#[test]
fn addresses_are_pages() {
    let check = |start, end| FilterKind::Addresses(AddrRange { start, end }).check();
    assert_eq!(check(0, 4096), Ok(()));
    assert!(check(0, 0).is_err() && check(5, 4096).is_err() && check(0, 5).is_err());
}

proptest! {
    /// Page by page: the first matching filter decides; without one, the opposite of the last filter.
    #[test]
    fn parts_follow_the_filters_of_each_page(
        filters in prop::collection::vec((0u64..30, 1u64..20, any::<bool>(), any::<bool>()), 0..6),
    ) {
        let filters: Vec<Filter> = filters.iter()
            .map(|&(at, len, matching, allow)| {
                filter(FilterKind::Addresses(pages(at, len)), matching, allow)
            })
            .collect();
        let through = through(&filters);
        for page in 5..25 {
            let addr = pages(page, 1).start;
            let answers = |f: &&Filter| match f.kind {
                FilterKind::Addresses(range) => range.contains(addr) == f.matching,
                _ => unreachable!(),
            };
            let last = filters.last().is_none_or(|f| !f.allow);
            let expected = filters.iter().find(answers).map_or(last, |f| f.allow);
            prop_assert_eq!(through.iter().any(|r| r.contains(addr)), expected, "page {}", page);
        }
    }
}
