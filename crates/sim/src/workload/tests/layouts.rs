use isotherm_core::PAGE_SIZE;
use proptest::prelude::*;

use super::*;

fn workload() -> impl Strategy<Value = Workload> {
    let region = (1u64..2000, 0u64..3000, 0u8..3);
    (proptest::collection::vec(region, 1..8), 0u32..30).prop_map(|(regions, islands)| {
        let region = |(i, (size, gap, kind))| WorkloadRegion {
            name: format!("r{i}"),
            size: size * PAGE_SIZE,
            gap: gap * PAGE_SIZE,
            huge: kind == 1,
            shared: kind == 2,
        };
        let regions: Vec<WorkloadRegion> = regions.into_iter().enumerate().map(region).collect();
        let phase = Phase { name: "p".into(), duration: Duration::from_secs(1), accesses: vec![] };
        let islands = islands.min(room(&regions));
        Workload { about: String::new(), repeat: 1, islands, regions, phases: vec![phase] }
    })
}

/// Islands that surely have room.
fn room(regions: &[WorkloadRegion]) -> u32 {
    regions.iter().map(|r| (r.gap / (8 * ISLAND_SIZE)) as u32).sum()
}

proptest! {
    #[test]
    fn parts_tile_the_memory_and_are_aligned_to_nothing(w in workload(), seed in any::<u64>()) {
        let w = w.checked().unwrap();
        let layout = WorkloadLayout::new(&w, seed);
        let mut at = 0;
        for part in &layout.parts {
            prop_assert_eq!(part.range.start, at);
            prop_assert!(!part.range.is_empty() && part.range.end.is_multiple_of(PAGE_SIZE));
            at = part.range.end;
            let odd = !(part.range.start / PAGE_SIZE).is_multiple_of(2);
            match part.of {
                Owner::Cold => prop_assert_eq!(part.memory, MemoryKind::Base),
                Owner::Island => {
                    prop_assert!(odd && part.range.len() == ISLAND_SIZE, "{:?}", part);
                }
                Owner::Region(i) => {
                    prop_assert!(odd && part.range.len() == w.regions[i].size, "{:?}", part);
                }
            }
        }
        let islands = layout.parts.iter().filter(|p| p.of == Owner::Island).count();
        prop_assert_eq!(islands, w.islands as usize);
        // All touched memory has cold memory before and after it.
        for pair in layout.parts.windows(2) {
            prop_assert!((pair[0].of == Owner::Cold) != (pair[1].of == Owner::Cold), "{:?}", pair);
        }
        prop_assert_eq!(layout.mappings().iter().map(|(r, _)| r.len()).sum::<u64>(), layout.len());
        prop_assert_eq!(&layout, &WorkloadLayout::new(&w, seed));
    }
}

#[test]
fn another_seed_lays_it_out_elsewhere() {
    let w = Named::find("stairs").unwrap().workload().unwrap();
    let starts = |seed| WorkloadLayout::new(&w, seed).range(Owner::Region(0)).start;
    let mut all: Vec<u64> = (0..20).map(starts).collect();
    all.sort_unstable();
    all.dedup();
    assert!(all.len() > 15, "{all:?}");
}

#[test]
fn a_field_numbers_the_touched_pages() {
    let w = Named::find("sparse").unwrap().workload().unwrap();
    let layout = WorkloadLayout::new(&w, 1);
    let first = layout.range(Owner::Region(0)).start / PAGE_SIZE;
    let field = layout.field(Owner::Region(0), 16);
    assert_eq!(field.pages(), (256 << 20) / PAGE_SIZE / 16);
    assert_eq!(field.at(3).map(|(part, page)| (part, page - first)), Some((0, 48)));
    let islands = layout.field(Owner::Island, 1);
    let (part, page) = islands.at(17).unwrap();
    let place = layout.parts[islands.part(part).unwrap()].range;
    assert_eq!((part, page - place.start / PAGE_SIZE), (1, 1));
    assert_eq!((islands.pages(), islands.at(256)), (256, None));
}

#[test]
fn blocks_and_windows_are_parts_of_their_own() {
    let w = Named::find("moving-window").unwrap().workload().unwrap();
    let layout = WorkloadLayout::new(&w, 1);
    let windows = layout.parts.iter().filter(|p| p.of == Owner::Region(0));
    assert!(windows.clone().all(|p| p.range.len() == 32 << 20));
    assert_eq!((windows.count(), layout.range(Owner::Region(0)).len()), (16, 512 << 20));
}
