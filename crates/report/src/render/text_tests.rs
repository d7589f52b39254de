use super::*;
use crate::filter::Options;
use crate::scene::{absent, mapping, region, snapshot, target, unknown};
use crate::summary::Summarizer;
use isotherm_core::{MonitorKind, Quality, RateSupport, RegionView, Restraint, Unknown};

const MIB: u64 = 1 << 20;

fn summary() -> Summary {
    let maps = vec![
        mapping(0, 8 * MIB, "[heap]"),
        mapping(8 * MIB, 9 * MIB, "/usr/lib/x86_64-linux-gnu/a-library-with-a-long-name.so.6"),
        mapping(9 * MIB, 10 * MIB, ""),
        mapping(10 * MIB, 11 * MIB, "/usr/lib/b.so"),
    ];
    let regions = vec![
        region(0, 2 * MIB, 50.0),
        region(2 * MIB, 5 * MIB, 0.0),
        unknown(5 * MIB, 6 * MIB, Unknown::Shared),
        absent(6 * MIB, 8 * MIB),
        region(8 * MIB, 11 * MIB, 1.0),
    ];
    let title = "redis-server (pid 1234)".to_owned();
    let mut s = Summarizer::new(Options { title, ..Options::default() });
    s.push(&snapshot(0, 0.4, vec![target(0, maps, regions)]));
    s.finish().unwrap()
}

#[test]
fn the_summary_is_read_at_a_glance() {
    let expected = "\
redis-server (pid 1234)
0 s to 400 ms of the record, 1 snapshot of 400 ms, sampled every 20 ms

                               mean     share       last
hot                         2.0 MiB    22.2 %    2.0 MiB
warm                        3.0 MiB    33.3 %    3.0 MiB
cold                        3.0 MiB    33.3 %    3.0 MiB
unknown                     1.0 MiB    11.1 %    1.0 MiB
  shared                    1.0 MiB    11.1 %    1.0 MiB
resident                    9.0 MiB   100.0 %    9.0 MiB
not resident                2.0 MiB              2.0 MiB

working set (hot + warm): p50 5.0 MiB, p95 5.0 MiB, max 5.0 MiB

by mapping, mean                hot       warm       cold    unknown   resident
[heap]                      2.0 MiB        0 B    3.0 MiB    1.0 MiB    6.0 MiB
a-library-wit..ame.so.6         0 B    1.0 MiB        0 B        0 B    1.0 MiB
2 more                          0 B    2.0 MiB        0 B        0 B    2.0 MiB

target    ran 50.0 % of one CPU
monitor   1.00 % of one CPU, 125 looks/s, 50 clears/s
          (a clear is a TLB shootdown on each CPU that runs the target)
rates     100.0 % measured, 0.0 % extended, 0.0 % old
regions   5 on average, 5 at most, 1,000 allowed

hot: touched at 10 Hz or more; cold: untouched for 5 s or more; warm: the rest
unknown: resident, but its accesses cannot be observed
nothing can be cold in the first 5 s: --time 5s.. leaves them out
p95: not exceeded for 95 % of the time; mean: over time; share: of resident
looked at: the record does not say how
";
    let text = summary_text(&summary(), 2);
    assert_eq!(text, expected);
}

#[test]
fn lines_fit_80_columns() {
    assert!(summary_text(&summary(), 10).lines().all(|l| l.chars().count() <= 80));
}

#[test]
fn targets_get_a_table_if_there_are_several() {
    let mut s = summary();
    assert!(!summary_text(&s, 2).contains("by target"));
    s.targets.push(s.targets[0].clone());
    s.targets[1].label = "worker".into();
    s.targets[1].cpu_percent = None;
    let text = summary_text(&s, 2);
    assert!(text.contains("\nworker                      2.0 MiB"), "{text}");
    assert!(text.contains("without targets whose time is unknown"));
}

#[test]
fn names_of_files_by_kind_of_access_differ() {
    let mut s = summary();
    let path = "/var/lib/postgresql/15/main/base/16384/16397";
    for (target, kind) in s.targets.iter_mut().zip(["(read)"]) {
        target.label = format!("{path} {kind}");
    }
    for label in [format!("{path} (mapped)"), format!("/deep/{}{path} (written)", "a".repeat(80))] {
        s.targets.push(TargetRow { label, ..s.targets[0].clone() });
    }
    let text = summary_text(&s, 2);
    let cut = format!("/deep/aaaaaaa..{} (written) ", &path[path.len() - 35..]);
    for name in [&format!("\n{path} (read) "), &format!("\n{path} (mapped) "), &cut] {
        assert!(text.contains(name.as_str()), "no {name} in {text}");
    }
}

#[test]
fn mappings_with_a_few_bytes_of_heat_are_not_named() {
    let mut s = summary();
    let row = |name: &str, hot: u64, unknown: u64| {
        let resident_bytes = Some(hot + unknown);
        let bytes =
            Bytes { hot_bytes: hot, unknown_bytes: unknown, resident_bytes, ..Bytes::default() };
        MappingRow { name: name.into(), bytes }
    };
    s.mappings = vec![row("data", 9 * MIB, 0), row("little", 221, 100), row("locked", 62, MIB)];
    let text = summary_text(&s, 9);
    assert!(text.contains("\ndata ") && !text.contains("little"), "{text}");
    assert!(text.contains("\nlocked                      < 4 KiB"), "{text}");
    assert!(text.contains("\n1 more                      < 4 KiB"), "{text}");
}

/// The quality of a monitor that has a budget and counts its coverage.
#[test]
fn a_budget_and_its_result_are_reported() {
    let mut s = Summarizer::new(Options::default());
    for (seq, coverage_bp) in [(0, 9_000), (1, 10_000)] {
        let support = Some(RateSupport { measured_bp: 9_200, extended_bp: 700 });
        let regions = vec![RegionView { support, ..region(0, MIB, 50.0) }];
        let heap = || target(0, vec![mapping(0, MIB, "[heap]")], regions.clone());
        let mut snapshot = snapshot(seq, 0.5, vec![heap()]);
        snapshot.attrs.monitor = MonitorKind::Exposure;
        snapshot.cost.lost = snapshot.cost.cpu / 2;
        let restraint = if seq == 0 { Restraint::None } else { Restraint::ShortRuns };
        let error_log2 = Some(0.5);
        snapshot.quality =
            Some(Quality { coverage_bp, error_log2, externally_cleared: 60, restraint });
        s.push(&snapshot);
    }
    let text = summary_text(&s.finish().unwrap(), 2);
    assert!(text.contains("2 snapshots of 500 ms on average\n"), "{text}");
    let expected = "\
monitor   1.00 % of one CPU + 0.50 % lost (budget 1 %), 100 looks/s, 40 clears/s
          (a clear is a TLB shootdown on each CPU that runs the target)
seen      95.0 % of the observable memory, rates within a factor of 1.41
          cleared less in 50.0 % of the time: memory was short
          120 pages/s were cleared by others (reclaim, a kdamond)
rates     92.0 % measured, 7.0 % extended, 1.0 % old
";
    assert!(text.contains(expected), "{text}");
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
}
