use std::sync::Arc;

use isotherm_core::{Attrs, Heat, MonitorKind, Nanos, Snapshot, Thresholds, Unknown};

use super::*;
use crate::{GroundTruth, delays, score};

/// A workload in a word, at a hundredth of the size of the named ones.
fn played(regions: &str, phases: &str, seconds: u64) -> MonitorRun {
    let text = format!("about = \"\"\nislands = 0\nregion = [{regions}]\nphase = [{phases}]");
    let w = Workload::parse(&text).unwrap();
    let layout = WorkloadLayout::new(&w, 1);
    let schedule = Schedule::new(&w, &layout, Some(Duration::from_secs(seconds))).unwrap();
    let attrs = Attrs { monitor: MonitorKind::Regions, ..Attrs::default() };
    let played = play(("test", &w), &schedule, 1, attrs).unwrap();
    MonitorRun { truth: played.truth.checked().unwrap(), ..played }
}

const HOT: &str = r#"{ name = "hot", size = "8M", gap = "16M" }"#;
const ALL_THE_TIME: &str =
    r#"{ name = "on", duration = "9s", access = [{ region = "hot", rate = 100 }] }"#;
const ON_AND_OFF: &str = r#"
    { name = "on", duration = "6s", access = [{ region = "hot", rate = 100 }] },
    { name = "off", duration = "8s" }"#;

fn index(truth: &GroundTruth, name: &str) -> usize {
    truth.stretches.iter().position(|s| s.name == name).unwrap()
}

#[test]
fn the_truth_of_a_steady_workload_is_its_plan() {
    let MonitorRun { truth, .. } = played(HOT, ALL_THE_TIME, 9);
    let (hot, cold) = (index(&truth, "hot"), index(&truth, "cold"));
    assert_eq!(truth.intervals.len(), 9);
    let v = &truth.intervals[7];
    assert_eq!((v.touches[hot], v.touched[hot], v.idle[hot]), (204_800, 2048, 0));
    let pages = truth.stretches[cold].pages();
    assert_eq!((v.touches[cold], v.touched[cold], v.idle[cold]), (0, 0, pages));
    assert_eq!(truth.intervals[3].idle[cold], 0, "nothing can be idle before 5 s");
}

#[test]
fn steady_rates_are_found() {
    let MonitorRun { truth, snapshots, target } = played(HOT, ALL_THE_TIME, 9);
    let last = score(&truth, snapshots.last().unwrap(), target).unwrap();
    for heat in [Heat::Hot, Heat::Cold] {
        let score = last.of(heat);
        assert!(score.precision() > Some(0.95) && score.recall() > Some(0.95), "{score:?}");
    }
    assert_eq!(last.hot.real, 8 << 20);
    assert!(last.rate_error < Some(0.5), "{last:?}");
}

/// The same snapshot with every region called hot, or unknown, or gone.
fn altered(s: &Snapshot, alter: impl FnOnce(&mut Vec<isotherm_core::RegionView>)) -> Snapshot {
    let mut s = s.clone();
    alter(&mut s.targets[0].regions);
    s
}

#[test]
fn scores_count_errors() {
    let MonitorRun { truth, snapshots, target } = played(HOT, ALL_THE_TIME, 9);
    let last = snapshots.last().unwrap();
    let all: u64 = truth.stretches.iter().map(|s| s.range().len()).sum();
    let touched_at = |hz| {
        altered(last, |regions| {
            for r in regions {
                (r.rate.hz, r.touched_bp) = (hz, 10_000);
            }
        })
    };
    let all_hot = touched_at(99.0);
    let scores = score(&truth, &all_hot, target).unwrap();
    assert_eq!((scores.hot.reported, scores.hot.both, scores.cold.both), (all, 8 << 20, 0));
    assert_eq!(scores.cold.recall(), Some(0.0));
    let nothing = score(&truth, &altered(last, Vec::clear), target).unwrap();
    assert_eq!((nothing.hot.recall(), nothing.hot.precision()), (Some(0.0), None));
    let hidden = altered(last, |regions| {
        for r in regions {
            r.unknown_bp.0[Unknown::Shared.index()] = 10_000;
        }
    });
    let scores = score(&truth, &hidden, target).unwrap();
    assert_eq!((scores.unknown, scores.hot.real, scores.rate_error), (all, 0, None));
    let doubled = touched_at(200.0);
    let error = score(&truth, &doubled, target).unwrap().rate_error.unwrap();
    assert!((error - 1.0).abs() < 0.01, "{error}");
    let later = Snapshot { end: Nanos(u64::MAX), ..(**last).clone() };
    assert_eq!(score(&truth, &later, target), None);
}

#[test]
fn close_or_changing_rates_are_left_out() {
    let regions = r#"{ name = "close", size = "8M" }, { name = "rare", size = "8M" }, { name = "on", size = "8M" }"#;
    let phases = r#"
        { name = "off", duration = "8.2s", access = [
            { region = "close", rate = 11 }, { region = "rare", rate = 0.2 } ] },
        { name = "on", duration = "2s", access = [
            { region = "close", rate = 11 }, { region = "rare", rate = 0.2 },
            { region = "on", rate = 50 } ] }"#;
    let MonitorRun { truth, snapshots, target } = played(regions, phases, 10);
    let at = |end| {
        let s = snapshots.iter().find(|s| s.end == Nanos(end)).unwrap();
        score(&truth, s, target).unwrap()
    };
    let (across, after) = (at(8_400_000_000), at(8_800_000_000));
    assert_eq!((across.hot.left_out, after.hot.left_out), (16 << 20, 8 << 20));
    assert_eq!((across.hot.real, after.hot.real), (0, 8 << 20));
    // Whether a page of `rare` is cold changes with each touch; `close` is not.
    assert_eq!((across.cold.left_out, after.cold.left_out), (16 << 20, 8 << 20));
}

#[test]
fn the_pages_between_are_cold() {
    let phase = r#"{ name = "on", duration = "9s",
        access = [{ region = "hot", rate = 100, order = { strided = { stride = 16 } } }] }"#;
    let MonitorRun { truth, snapshots, target } = played(HOT, phase, 9);
    let scores = score(&truth, snapshots.last().unwrap(), target).unwrap();
    let all: u64 = truth.stretches.iter().map(|s| s.range().len()).sum();
    assert_eq!((scores.hot.real, scores.cold.real), (512 << 10, all - (512 << 10)));
}

#[test]
fn changes_are_seen_or_missed() {
    let MonitorRun { truth, snapshots, target } = played(HOT, ON_AND_OFF, 28);
    let found = delays(&truth, &snapshots, target, Nanos(3_000_000_000));
    // Off at 6, cold at 11, on at 14, off at 20, cold at 25.
    assert_eq!((found.seen.len(), found.missed), (5, 0), "{found:?}");
    assert!(found.seen.iter().all(|d| *d < Duration::from_secs(3)), "{found:?}");
    let blind: Vec<Arc<Snapshot>> =
        snapshots.iter().map(|s| Arc::new(altered(s, Vec::clear))).collect();
    let found = delays(&truth, &blind, target, Nanos(3_000_000_000));
    assert_eq!((found.seen.len(), found.missed), (0, 5));
}

#[test]
fn memory_is_as_described_in_the_file() {
    let regions = r#"{ name = "huge", size = "8M", huge = true }, { name = "shared", size = "4M", shared = true }"#;
    let phase = r#"{ name = "on", duration = "1s", access = [{ region = "huge", rate = 100 }] }"#;
    let MonitorRun { truth, snapshots, .. } = played(regions, phase, 3);
    let bytes = snapshots.last().unwrap().bytes(&Thresholds::default());
    let shared = truth.stretches[index(&truth, "shared")].range().len();
    assert!(bytes.unknown.abs_diff(shared) < 256 << 10, "{bytes:?}");
}

#[test]
fn the_same_seed_gives_the_same_answers() {
    let [a, b] = [(), ()].map(|()| played(HOT, ON_AND_OFF, 3));
    assert_eq!((a.snapshots, a.truth), (b.snapshots, b.truth));
}

#[test]
fn a_broken_truth_is_refused() {
    let truth = played(HOT, ALL_THE_TIME, 3).truth;
    let broken = |alter: fn(&mut GroundTruth)| {
        let mut truth = truth.clone();
        alter(&mut truth);
        truth.checked().unwrap_err()
    };
    use crate::TruthError::*;
    assert_eq!(broken(|t| t.schema_version = 2), Version(2));
    assert_eq!(broken(|t| t.stretches.swap(0, 1)), Order("stretches"));
    assert_eq!(broken(|t| t.stretches[0].stride = 0), Stretch);
    assert_eq!(broken(|t| t.stretches[0].end += 1), Stretch);
    assert_eq!(broken(|t| t.intervals.swap(0, 1)), Order("intervals"));
    assert_eq!(broken(|t| t.intervals[0].idle.clear()), Counts);

    let text = serde_json::to_vec(&truth).unwrap();
    assert_eq!(GroundTruth::read(&text[..]), Ok(truth));
    assert!(matches!(GroundTruth::read(&text[..text.len() - 1]), Err(Json(_))));
    assert_eq!(GroundTruth::read(std::io::repeat(b' ')), Err(Long));
}
