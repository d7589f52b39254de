//! A pool of pages over two zones, a small one for a device and a large one for all users. A user that allocates a
//! page does not see the zones, and each zone provides its share.
//!
//! `cargo run -p isotherm-mm --example pool`

use isotherm_mm::{AllocRequest, Fair, FrameId, Layout, LruType, Memory, PageOwner, ZoneKind};

/// The content of the pool, by key; the oldest page is dropped when room is needed.
#[derive(Default)]
struct Pool {
    pages: Vec<Option<FrameId>>,
    dropped: u64,
}

impl PageOwner for Pool {
    fn give_up(&mut self, owner: u64, _frame: FrameId) -> bool {
        self.dropped += 1;
        usize::try_from(owner)
            .ok()
            .and_then(|key| self.pages.get_mut(key))
            .is_some_and(|p| p.take().is_some())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let layout = Layout::single(1, &[(ZoneKind::Dma32, 10_000), (ZoneKind::Normal, 30_000)]);
    let mut memory = Memory::new(&layout, Fair::Landed.rules())?;
    let mut pool = Pool { pages: vec![None; 100_000], ..Pool::default() };

    // More than there is room for: kswapd makes some, as far as it is let.
    for key in 0..100_000_u64 {
        let request = AllocRequest {
            cpu: 0,
            node: 0,
            class: ZoneKind::Normal,
            kind: Some(LruType::File),
            write: false,
            owner: key,
        };
        let page = memory.allocate(request, &mut pool)?.frame;
        pool.pages[usize::try_from(key)?] = Some(page);
        memory.run_kswapd(0, 4, &mut pool);
    }

    let held = pool.pages.iter().flatten().count();
    println!("{held} pages are held, {} were dropped", pool.dropped);
    for zone in memory.zones() {
        println!(
            "{:7} gave {} pages, {} are free",
            zone.kind.name(),
            zone.stats.allocated,
            zone.free.exact()
        );
    }
    let small = memory.zones()[0].stats.allocated as f64 / 100_000.0;
    assert!((small - 0.25).abs() < 0.01, "a quarter is in the small zone: {small}");
    Ok(())
}

#[test]
fn each_zone_gives_its_share() -> Result<(), Box<dyn std::error::Error>> {
    main()
}
