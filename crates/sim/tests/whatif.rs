//! What a played record predicts, against the same schemes on the machine that was recorded.

// What clippy allows in tests, for their helpers too.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Engine, Goal, Metrics, Pattern, Quota, Scheme, WatermarkMetric, Watermarks, Weights,
};
use isotherm_core::{
    Act, Action, AddrRange, Applied, Attrs, Cost, DirtyBytes, Exposure, Nanos, OpsError, PAGE_SIZE,
    PageFilter, PageKind, Rate, Snapshot, Source, Step, Support, TargetId, Unknown, Work,
};
use isotherm_sim::whatif::{
    DelayModel, Player, Setting, SettingEffect, SettingPolicy, Surroundings, Tier,
};
use isotherm_sim::{Machine, MappingSpec, Ops, TouchPattern as Touches};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x7f00_0000_0000;

fn mib(at: u64, len: u64) -> AddrRange {
    AddrRange::new(BASE + at * MIB, BASE + (at + len) * MIB)
}

fn secs(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Rates of a zipf law over pages, strewn over the memory.
fn zipf(pages: u64, exponent: f64, total: f64) -> Arc<[f64]> {
    let weight = |rank: u64| 1.0 / (rank as f64 + 1.0).powf(exponent);
    let sum: f64 = (0..pages).map(weight).sum();
    (0..pages).map(|page| weight(page.wrapping_mul(0x9E37_79B1) % pages) / sum * total).collect()
}

/// Pages of all rates side by side, a slow part, a hot part, and idle memory.
fn mixed(machine: &mut Machine, target: TargetId) {
    machine.map(target, mib(0, 48), MappingSpec::anonymous()).unwrap();
    let hz = zipf(16 * 256, 0.9, 80.0 * 16.0);
    machine.touch(target, mib(0, 16), Touches::Blocks { block: PAGE_SIZE, hz }).unwrap();
    machine.touch(target, mib(16, 8), Touches::Poisson { hz: 0.03 }).unwrap();
    machine.touch(target, mib(24, 8), Touches::Poisson { hz: 20.0 }).unwrap();
}

/// Memory that is idle as a whole for a while, and then touched as a whole.
fn in_turns(machine: &mut Machine, target: TargetId) {
    machine.map(target, mib(0, 48), MappingSpec::anonymous()).unwrap();
    machine.touch(target, mib(0, 8), Touches::Poisson { hz: 20.0 }).unwrap();
    let every = secs(15);
    let moving = Touches::Moving { window: 8 * MIB, every, hz: 4.0 };
    machine.touch(target, mib(8, 32), moving).unwrap();
}

fn machine(lay: fn(&mut Machine, TargetId)) -> (Ops, TargetId) {
    let mut machine = Machine::new(5);
    let target = machine.spawn();
    lay(&mut machine, target);
    (Ops::new(machine), target)
}

/// Steps the default monitor until `until`; `push` gets each snapshot.
fn watch(ops: &Ops, target: TargetId, until: u64, mut push: impl FnMut(&Arc<Snapshot>)) {
    let mut monitor = Exposure::new(ops.clone(), Attrs::default(), &[target], 1).unwrap();
    loop {
        let now = ops.machine().now();
        match monitor.step(now).unwrap() {
            Step::Snapshot(s) => push(&s),
            Step::Wait(next) if next > Nanos(until * 1_000_000_000) => return,
            Step::Wait(next) => ops.machine().advance_to(next),
            Step::End(why) => panic!("{why:?}"),
        }
    }
}

/// Acts on the machine, and knows from its truth which pages were touched when.
struct Real {
    ops: Ops,
    target: TargetId,
    /// when each page was paged out that is not back
    out: HashMap<u64, Nanos>,
    returned: u64,
}

impl Real {
    fn last_touch(&self, page: u64) -> Option<Nanos> {
        let machine = self.ops.machine();
        machine.truth(self.target).unwrap().last_touch(page, machine.now())
    }

    /// Counts the pages that are back.
    fn count(&mut self) {
        let back = |(page, at): (&u64, &Nanos)| {
            self.last_touch(*page).is_some_and(|last| last > *at).then_some(*page)
        };
        let back: HashSet<u64> = self.out.iter().filter_map(back).collect();
        self.returned += back.len() as u64;
        self.out.retain(|page, _| !back.contains(page));
    }
}

impl Act for Real {
    fn supports(&self, action: &Action) -> Support {
        self.ops.supports(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        self.count();
        let now = self.ops.machine().now();
        for work in works {
            let mut done = Applied::default();
            for page in (work.range.start..work.range.end).step_by(PAGE_SIZE as usize) {
                let age = self.last_touch(page).map_or(Duration::MAX, |last| now.since(last));
                let young = work
                    .filters
                    .iter()
                    .any(|f| matches!(f.kind, PageKind::Touched { within } if age < within));
                if young || age < work.recheck || self.out.contains_key(&page) {
                    done.passed += PAGE_SIZE;
                } else if done.tried + PAGE_SIZE > work.budget.bytes {
                    break;
                } else {
                    let range = AddrRange::new(page, page + PAGE_SIZE);
                    let one = Work { range, filters: &[], recheck: Duration::ZERO, ..work.clone() };
                    self.ops.apply(&[one], &mut Vec::new())?;
                    self.out.insert(page, now);
                    done.tried += PAGE_SIZE;
                    done.applied += PAGE_SIZE;
                }
            }
            out.push(done);
        }
        Ok(())
    }
}

const LENGTH: u64 = 180;

/// Pages saved in the mean, and pages that come back per second: what the schemes really do, counted from `from`.
fn real(lay: fn(&mut Machine, TargetId), scheme: &Scheme, from: f64) -> [f64; 2] {
    let (ops, target) = machine(lay);
    let mut real = Real { ops: ops.clone(), target, out: HashMap::new(), returned: 0 };
    let mut engine = Engine::new(vec![scheme.clone()]).unwrap();
    let (mut saved, mut time, mut before, mut last) = (0.0, 0.0, 0, 0.0);
    watch(&ops, target, LENGTH, |s| {
        let now = ops.machine().now();
        engine.step(now, s, &Metrics::default(), &mut real, &mut Vec::new()).unwrap();
        real.count();
        let at = now.0 as f64 / 1e9;
        if at < from {
            before = real.returned;
        } else {
            saved += real.out.len() as f64 * (at - last);
            time += at - last;
        }
        last = at;
    });
    [saved / time, (real.returned - before) as f64 / time]
}

fn setting(name: &str, policy: SettingPolicy) -> Setting {
    Setting { name: name.to_owned(), policy }
}

fn played(
    lay: fn(&mut Machine, TargetId),
    length: u64,
    settings: Vec<Setting>,
) -> Vec<SettingEffect> {
    let (ops, target) = machine(lay);
    let mut player =
        Player::new(settings, DelayModel::default(), &Surroundings::default()).unwrap();
    watch(&ops, target, length, |s| player.push(s).unwrap());
    player.finish().unwrap()
}

/// The scheme of `reclaim`.
fn reclaim(age: Duration, pages: bool, bytes: Option<u64>) -> Scheme {
    let hz = if pages { 0.0..=f64::INFINITY } else { 0.0..=0.0 };
    let from = if pages { Duration::ZERO } else { age };
    let pattern = Pattern { hz, age: from..=Duration::MAX, ..Pattern::default() };
    let mut scheme = Scheme::new("reclaim", pattern, Action::PageOut);
    if pages {
        let kind = PageKind::Touched { within: age };
        scheme.page_filters = vec![PageFilter { kind, matching: true, allow: false }];
    }
    let weights = Weights { age: 1, ..Weights::default() };
    scheme.quota = Quota { bytes, weights, ..Quota::default() };
    scheme
}

/// Prediction and truth, as pages saved and pages that come back per second.
fn compare(name: &str, lay: fn(&mut Machine, TargetId), scheme: &Scheme) -> [[f64; 2]; 2] {
    let policy = SettingPolicy::Schemes(vec![scheme.clone()]);
    let played = played(lay, LENGTH, vec![setting(name, policy)]);
    assert_eq!(played[0].refused, None);
    let m = &played[0].counted;
    let page = PAGE_SIZE as f64;
    let predicted = [m.saved / page, m.returned / page / m.seconds()];
    let real = real(lay, scheme, m.from);
    println!(
        "{name:<28} saved {:>8.1} pages, really {:>8.1}; back {:>7.2}/s, really {:>7.2}",
        predicted[0], real[0], predicted[1], real[1]
    );
    [predicted, real]
}

fn is_near(of: f64, truth: f64, factor: f64) -> bool {
    of <= truth * factor && of >= truth / factor
}

#[test]
fn single_pages_are_saved_and_come_back_as_predicted() {
    for age in [10, 20, 40] {
        let [of, truth] =
            compare(&format!("pages {age} s"), mixed, &reclaim(secs(age), true, None));
        assert!(
            is_near(of[0], truth[0], 1.04) && is_near(of[1], truth[1], 1.15),
            "{of:?} {truth:?}"
        );
    }
}

#[test]
fn a_quota_holds_back_as_predicted() {
    let [of, truth] =
        compare("pages 10 s, 128K a second", mixed, &reclaim(secs(10), true, Some(128 << 10)));
    assert!(is_near(of[0], truth[0], 1.05) && is_near(of[1], truth[1], 1.4), "{of:?} {truth:?}");
}

#[test]
fn regions_are_saved_and_come_back_as_predicted() {
    let [of, truth] = compare("regions 20 s", mixed, &reclaim(secs(20), false, None));
    assert!(is_near(of[0], truth[0], 1.02), "{of:?} {truth:?}");
    let [of, truth] = compare("regions in turns 20 s", in_turns, &reclaim(secs(20), false, None));
    assert!(is_near(of[0], truth[0], 1.04) && is_near(of[1], truth[1], 1.15), "{of:?} {truth:?}");
}

#[test]
fn a_limit_pages_out_the_oldest_memory() {
    let limit = |mib: u64| setting("limit", SettingPolicy::Limit(mib * MIB));
    let of = played(mixed, LENGTH, vec![limit(64), limit(36), limit(24)]);
    let back = |i: usize| of[i].counted.returned / PAGE_SIZE as f64 / of[i].counted.seconds();
    let saved = |i: usize| of[i].counted.saved / MIB as f64;
    assert_eq!((saved(0), back(0)), (0.0, 0.0));
    // 16 MiB are idle: a limit that leaves out less costs nothing.
    assert!((11.0..13.0).contains(&saved(1)) && back(1) < 2.0, "{} {}", saved(1), back(1));
    assert!((23.0..25.0).contains(&saved(2)) && back(2) > 20.0, "{} {}", saved(2), back(2));
}

/// Half a minute cannot show what comes back after half a minute.
#[test]
fn limits_of_a_short_record_are_refused() {
    let limit = || setting("limit", SettingPolicy::Limit(24 * MIB));
    let of = |seconds| played(mixed, seconds, vec![limit()])[0].refused.clone();
    assert!(of(30).unwrap().contains("a minute or longer"));
    assert_eq!(of(90), None);
}

/// The effect of a policy on [`mixed`] memory, with changed snapshots.
fn played_with(
    policy: SettingPolicy,
    surroundings: &Surroundings,
    change: impl Fn(&mut Snapshot),
) -> SettingEffect {
    let settings = vec![setting("x", policy)];
    let mut player = Player::new(settings, DelayModel::default(), surroundings).unwrap();
    let (ops, target) = machine(mixed);
    watch(&ops, target, 90, |s| {
        let mut changed = Snapshot::clone(s);
        change(&mut changed);
        player.push(&Arc::new(changed)).unwrap();
    });
    player.finish().unwrap().remove(0)
}

/// Adds memory that cannot be observed.
fn add_locked(s: &mut Snapshot, mib: u64) {
    let view = &mut s.targets[0];
    let mut locked = *view.regions.last().unwrap();
    let end = locked.range.end + (64 << 20);
    locked.range = AddrRange::new(end, end + mib * MIB);
    locked.resident_bp = 10_000;
    locked.unknown_bp.0[Unknown::Mlocked.index()] = 10_000;
    view.regions.push(locked);
}

/// Found by a review: cached files that are older than all memory of processes used up each turn of a scheme.
#[test]
fn files_are_not_simulated() {
    let of = |files: u32| {
        let policy = SettingPolicy::Schemes(vec![reclaim(secs(10), false, Some(MIB))]);
        played_with(policy, &Surroundings::default(), |s| {
            for id in 1000..1000 + files {
                let mut file = s.targets[0].clone();
                (file.id, file.dirty, file.ages) =
                    (TargetId(id), Some(DirtyBytes::default()), None);
                for r in &mut file.regions {
                    (r.accesses_bp, r.rate, r.age) = (0, Rate::default(), secs(1000));
                }
                s.targets.push(file);
            }
        })
    };
    let [without, with] = [0, 16].map(of);
    assert!(without.counted.saved > 0.0);
    assert_eq!(with.counted.saved, without.counted.saved);
}

/// Found by a review: of 100 MiB, 48 MiB are in use, and 8 MiB that cannot be observed.
#[test]
fn unknown_memory_is_not_free() {
    let (metric, interval) = (WatermarkMetric::Free, secs(5));
    let watermarks = Watermarks { metric, interval, high: 9000, mid: 5000, low: 1000 };
    let scheme = Scheme { watermarks: Some(watermarks), ..reclaim(secs(10), true, None) };
    let machine = Surroundings { memory: Some(100 * MIB), ..Surroundings::default() };
    let saved = |mib: u64| {
        let policy = SettingPolicy::Schemes(vec![scheme.clone()]);
        played_with(policy, &machine, |s| add_locked(s, mib)).counted.saved
    };
    assert_eq!(saved(0), 0.0, "52 % are free");
    assert!(saved(8) > 0.0, "44 % are free");
}

/// Memory that cannot be observed needs room within a limit: `mib` of it beside the 48 MiB.
#[test]
fn unknown_memory_counts_within_a_limit() {
    let of = |mib: u64, limit: u64| {
        let policy = SettingPolicy::Limit(limit * MIB);
        played_with(policy, &Surroundings::default(), |s| add_locked(s, mib))
    };
    let saved = of(8, 44).counted.saved / MIB as f64;
    assert!((11.0..13.0).contains(&saved), "{saved}");
    assert!(of(48, 80).refused.unwrap().contains("50 % of the resident memory is unknown"));
}

#[test]
fn memory_beyond_the_first_tier_is_slower() {
    let tier = |mib: u64, ns| Tier { bytes: mib * MIB, latency: Duration::from_nanos(ns) };
    let tiers =
        |first| setting("tiers", SettingPolicy::Tiers(vec![tier(first, 80), tier(64, 250)]));
    let of = played(mixed, LENGTH, vec![tiers(64), tiers(34), tiers(20)]);
    let slow = |i: usize| of[i].tiers[1].accesses / of[i].tiers[0].accesses;
    assert_eq!(slow(0), 0.0);
    assert!(slow(1) < slow(2) && slow(2) < 0.1, "{} {}", slow(1), slow(2));
    assert!(of[2].tiers[0].moved_down > of[1].tiers[0].moved_down);
    assert_eq!(of[2].counted.saved, 0.0, "all of it fits");
}

#[test]
fn records_without_idle_ages_are_refused() {
    let age = |s| setting("age", SettingPolicy::Schemes(vec![reclaim(secs(s), true, None)]));
    let of = played(mixed, 60, vec![age(10), age(50)]);
    assert_eq!(of[0].refused, None);
    assert!(of[1].refused.as_ref().unwrap().contains("too short"), "{:?}", of[1].refused);
    let mut player =
        Player::new(vec![age(10)], DelayModel::default(), &Surroundings::default()).unwrap();
    let (ops, target) = machine(mixed);
    watch(&ops, target, 20, |s| {
        let mut without = Snapshot::clone(s);
        without.targets.iter_mut().for_each(|t| t.ages = None);
        player.push(&Arc::new(without)).unwrap();
    });
    let of = player.finish().unwrap();
    assert!(of[0].refused.as_ref().unwrap().contains("no idle ages"), "{:?}", of[0].refused);
}

#[test]
fn schemes_that_need_more_than_a_record_are_refused() {
    let why = |change: fn(&mut Scheme)| {
        let mut scheme = reclaim(secs(10), true, None);
        change(&mut scheme);
        let settings = vec![setting("x", SettingPolicy::Schemes(vec![scheme]))];
        let player = Player::new(settings, DelayModel::default(), &Surroundings::default());
        player.err().unwrap().to_string()
    };
    assert!(why(|s| s.action = Action::Cold).contains("cold cannot be played"));
    assert!(why(|s| s.quota.goals = vec![Goal::Free { bp: 100 }]).contains("--memory"));
    let named = |s: &mut Scheme| {
        s.watermarks = Some(Watermarks {
            metric: WatermarkMetric::Free,
            interval: secs(5),
            high: 5000,
            mid: 4000,
            low: 2000,
        });
    };
    assert!(why(named).contains("--memory"));
    let user = |s: &mut Scheme| s.quota.goals = vec![Goal::User { name: "x".into(), target: 1.0 }];
    assert!(why(user).contains("metric of the user"));
}

/// Each setting has a memory of its own: it does not matter which others are played with it.
#[test]
fn settings_have_the_same_effects_alone_and_together() {
    let settings = || {
        let tier = Tier { bytes: 40 * MIB, latency: Duration::from_nanos(80) };
        vec![
            setting("pages", SettingPolicy::Schemes(vec![reclaim(secs(10), true, None)])),
            setting(
                "regions",
                SettingPolicy::Schemes(vec![reclaim(secs(30), false, Some(8 * MIB))]),
            ),
            setting("limit", SettingPolicy::Limit(30 * MIB)),
            setting("tier", SettingPolicy::Tiers(vec![tier])),
        ]
    };
    let player =
        || Player::new(settings(), DelayModel::default(), &Surroundings::default()).unwrap();
    let (mut together, mut alone) = (player(), player().divided());
    let (ops, target) = machine(mixed);
    watch(&ops, target, 90, |s| {
        together.push(s).unwrap();
        alone.iter_mut().for_each(|player| player.push(s).unwrap());
    });
    let alone: Vec<_> = alone.into_iter().flat_map(|player| player.finish().unwrap()).collect();
    assert_eq!(alone.len(), 4);
    assert!(alone.iter().all(|setting| setting.counted.saved > 0.0), "{alone:?}");
    assert_eq!(alone, together.finish().unwrap());
}

/// A reader that is ahead of the player knows which snapshots the player looks at, also once it looks less often.
#[test]
fn the_pace_is_that_of_the_player() {
    let settings = [10, 600].map(|age| {
        setting(&age.to_string(), SettingPolicy::Schemes(vec![reclaim(secs(age), true, None)]))
    });
    let mut player =
        Player::new(settings.into(), DelayModel::default(), &Surroundings::default()).unwrap();
    let mut selector = player.selector();
    let mut steps = Vec::new();
    for second in 0..9000 {
        let (start, end) = (Nanos(second * 1_000_000_000), Nanos((second + 1) * 1_000_000_000));
        let s = Snapshot {
            seq: second,
            start,
            end,
            attrs: Attrs::default(),
            cost: Cost::default(),
            quality: None,
            targets: Vec::new(),
        };
        player.push(&Arc::new(s)).unwrap();
        steps.push(selector.push(end).since(end));
    }
    // The next step follows when the snapshots that are played with 65 s of delay are.
    assert_eq!([steps[4000], steps[4200], steps[8999]], [1, 2, 2].map(|s| secs(s) * 7 / 8));
    let played = player.finish().unwrap();
    assert_eq!([played[0].step, played[1].step], [secs(2), secs(20)]);
}
