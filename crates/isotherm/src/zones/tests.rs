//! Over what guests and old kernels say.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A file system with the files of a guest with three nodes.
struct Machine(TempDir);

impl Machine {
    fn new(files: &[(&str, &str)]) -> Self {
        let machine = Machine(TempDir::new().unwrap());
        fs::create_dir_all(machine.0.path().join("proc/sys/vm")).unwrap();
        files.iter().for_each(|(name, text)| machine.write(name, text));
        machine
    }

    fn guest(version: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../linux/tests/fixtures");
        let read = |name: &str| fs::read_to_string(fixtures.join(name).join(version)).unwrap();
        let names = ["zoneinfo", "buddyinfo", "pagetypeinfo", "vmstat"];
        let texts = names.map(|name| (name, read(name)));
        let machine = Machine::new(&texts.each_ref().map(|(name, text)| (*name, text.as_str())));
        machine.write("sys/vm/min_free_kbytes", "90112\n");
        machine.write("sys/vm/watermark_scale_factor", "10\n");
        machine
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join("proc").join(name), text).unwrap();
    }

    fn reading(&self) -> ZoneSample {
        ZoneSample::take(self.0.path()).unwrap()
    }

    /// Adds to a counter of vmstat.
    fn count(&self, name: &str, by: u64) {
        let path = self.0.path().join("proc/vmstat");
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().find(|l| l.starts_with(&format!("{name} "))).unwrap();
        let value: u64 = line.split_once(' ').unwrap().1.parse().unwrap();
        fs::write(path, text.replace(line, &format!("{name} {}", value + by))).unwrap();
    }
}

#[test]
fn a_guest_follows_the_formula() {
    for version in ["6.1", "7.2"] {
        let reading = Machine::guest(version).reading();
        assert!(reading.missing.is_empty(), "{:?}", reading.missing);
        let state = State::new(&reading);
        let names: Vec<String> = state.zones.iter().map(ZoneState::name).collect();
        assert_eq!(names, ["node 0 DMA", "node 0 DMA32", "node 1 DMA32", "node 2 Normal"]);
        assert!(state.empty.contains(&"node 1 Normal".to_owned()), "{:?}", state.empty);
        for z in &state.zones {
            let e = z.expected.unwrap();
            for (is, should) in [
                (z.min_bytes, e.min_bytes),
                (z.low_bytes, e.low_bytes),
                (z.high_bytes, e.high_bytes),
            ] {
                assert!(is.abs_diff(should) <= should / 50 + 8 * 4096, "{z:?}");
            }
            assert_eq!(z.unusable.len(), 11);
        }
        assert!(text::state(&state).contains("node 1 DMA32"));
    }
}

#[test]
fn a_new_kernel_reports_reclaim_by_node() {
    let guest = Machine::guest("7.2");
    let before = guest.reading();
    let path = guest.0.path().join("proc/zoneinfo");
    let text = fs::read_to_string(&path).unwrap();
    let (first, last) = text.rsplit_once("pgsteal_kswapd 0").unwrap();
    fs::write(&path, format!("{first}pgsteal_kswapd 7{last}")).unwrap();
    let change = Change::between(&before, &guest.reading());
    let stolen = |n: &NodeChange| n.reclaim.unwrap().kswapd_stolen_bytes;
    let by_node: Vec<_> = change.nodes.iter().map(stolen).collect();
    assert_eq!(by_node, [Some(0), Some(0), Some(7 * 4096)]);
    assert!(text::change(&change).contains("node 2: kswapd"));
}

#[test]
fn unusual_figures_have_remarks() {
    let guest = Machine::guest("6.1");
    let before = guest.reading();
    guest.write("sys/vm/min_free_kbytes", "9011\n");
    guest.count("pgalloc_normal", 100_000);
    guest.count("pgalloc_dma32", 1000);
    guest.count("allocstall_normal", 3);
    guest.count("pgscan_kswapd", 20);
    guest.count("pgscan_direct_throttle", 7);
    let after = guest.reading();
    let said = remarks::of_state(&State::new(&after)).join("\n");
    assert!(said.contains("node 2 Normal has a min watermark of"), "{said}");
    let change = Change::between(&before, &after);
    assert_eq!(change.reclaim.kswapd_scanned_bytes, Some(20 * 4096));
    assert_eq!(change.reclaim.direct_scanned_bytes, Some(0), "throttling is no scan");
    assert!(change.kinds.iter().all(|k| k.reclaimed_bytes.is_none()));
    let said = remarks::of_change(&change).join("\n");
    for part in ["Normal gave 99 %", "Linux 4.8", "3 times for Normal"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let still = Change::between(&after, &after);
    assert_eq!((still.fairness, still.allocated()), (None, 0));
    assert!(remarks::of_change(&still).is_empty());
}

/// Two zones as Linux 3.15 shows them.
const OLD: &str = "Node 0, zone    DMA32
  pages free     1000
        min      1057
        low      1321
        high     1585
        scanned  0
        spanned  1044480
        present  782304
        managed  757760
    nr_free_pages 1000
    nr_inactive_file 100
        protection: (0, 0, 5040, 5040)
  pagesets
    cpu: 0
              count: 10
              high:  186
              batch: 31
  vm stats threshold: 42
  all_unreclaimable: 0
  start_pfn:         4096
  inactive_ratio:    5
Node 0, zone   Normal
  pages free     2000
        min      1800
        low      2250
        high     2700
        scanned  0
        spanned  1310720
        present  1310720
        managed  1290240
    nr_free_pages 2000
        protection: (0, 0, 0, 0)
  pagesets
  all_unreclaimable: 0
  start_pfn:         1048576
  inactive_ratio:    11
";

#[test]
fn an_old_kernel_counts_reclaim_by_zone_and_stalls_as_one() {
    let old = |alloc, stall, scan| {
        let steal = scan * 5 / 8;
        format!(
            "pgalloc_dma32 {alloc}\npgalloc_normal 0\nallocstall {stall}\npgscan_kswapd_dma32 {scan}\npgscan_kswapd_normal {scan}\npgsteal_kswapd_dma32 {steal}\n"
        )
    };
    let machine = Machine::new(&[("zoneinfo", OLD), ("vmstat", &old(0, 0, 0))]);
    let before = machine.reading();
    assert_eq!(before.missing.len(), 2, "{:?}", before.missing);
    machine.write("vmstat", &old(50_000, 2, 8));
    machine.write("sys/vm/min_free_kbytes", "11459\n");
    let after = machine.reading();
    let state = State::new(&after);
    let said = remarks::of_state(&state).join("\n");
    assert!(said.contains("node 0 DMA32 is below its min watermark"), "{said}");
    assert!(said.contains("node 0 Normal is below its low watermark"), "{said}");
    let change = Change::between(&before, &after);
    assert_eq!(change.reclaim.kswapd_scanned_bytes, Some(16 * 4096));
    assert_eq!(change.reclaim.direct_scanned_bytes, None);
    assert_eq!(change.kinds[0].reclaimed_bytes, Some(5 * 4096));
    assert_eq!((change.kswapd_runs, change.nodes[0].kswapd_cpu_ms), (None, None));
    let said = remarks::of_change(&change).join("\n");
    assert!(said.contains("DMA32 gave 100 %") && said.contains("younger or older"), "{said}");
    assert!(said.contains("2 times for Normal"), "{said}");
    let _ = text::state(&state) + &text::change(&change);
}
