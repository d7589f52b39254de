//! Tests of the limit, of windows, and of the remaining quota.

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const MIB: u64 = 1 << 20;

fn at(ms: u64) -> Nanos {
    Nanos(ms * 1_000_000)
}

fn begin(charge: &mut Charge, quota: &Quota, ms: u64) -> u64 {
    charge.begin(quota, PAGE_SIZE, at(ms), &Metrics::default(), u64::MAX);
    charge.bound()
}

fn left(charge: &Charge, quota: &Quota) -> u64 {
    charge.left(quota, PAGE_SIZE).bytes
}

#[test]
fn without_a_quota_there_is_no_bound() {
    let (mut charge, quota) = (Charge::default(), Quota::default());
    assert_eq!(begin(&mut charge, &quota, 0), u64::MAX);
    charge.add(1 << 40, 1 << 40, MS);
    assert!(!charge.is_full(&quota, PAGE_SIZE));
    begin(&mut charge, &quota, 2000);
    assert_eq!(charge.exceeded, 0);
}

/// `damos_set_effective_quota`: 4 MiB per millisecond initially, then the measured speed.
#[test]
fn time_becomes_bytes_by_the_speed() {
    let quota = Quota { time: Some(10 * MS), ..Quota::default() };
    let mut charge = Charge::default();
    assert_eq!(begin(&mut charge, &quota, 0), 40 * MIB);
    charge.add(20 * MIB, 20 * MIB, 10 * MS);
    assert!(charge.is_full(&quota, PAGE_SIZE), "the time is over");
    assert_eq!(begin(&mut charge, &quota, 999), 40 * MIB, "the same window");
    assert_eq!(begin(&mut charge, &quota, 1000), 20 * MIB);
    assert_eq!(charge.exceeded, 1);
}

/// A higher speed than before leaves time, which is used, but not beyond a limit in bytes.
#[test]
fn time_that_is_left_is_used() {
    let time = Quota { time: Some(10 * MS), ..Quota::default() };
    let both = Quota { bytes: Some(12 * MIB), ..time.clone() };
    for (quota, mib) in [(both, 2), (time, 5)] {
        let mut charge = Charge::default();
        begin(&mut charge, &quota, 0);
        charge.add(10 * MIB, 10 * MIB, 10 * MS);
        assert_eq!(begin(&mut charge, &quota, 1000), 10 * MIB);
        charge.add(10 * MIB, 10 * MIB, 6 * MS);
        // 20 MiB in 16 ms.
        assert_eq!(left(&charge, &quota), mib * MIB);
    }
}

/// Skipped memory is not charged, but memory that was tried in vain is.
#[test]
fn the_lowest_of_time_and_bytes_is_in_force() {
    let mut quota = Quota { time: Some(10 * MS), bytes: Some(MIB), ..Quota::default() };
    let mut charge = Charge::default();
    assert_eq!(begin(&mut charge, &quota, 0), MIB);
    charge.add(MIB - 5000, MIB, MS);
    assert_eq!(left(&charge, &quota), PAGE_SIZE, "whole pages");
    charge.add(PAGE_SIZE, PAGE_SIZE, MS);
    assert_eq!(left(&charge, &quota), 0);
    assert!(charge.is_full(&quota, PAGE_SIZE));
    quota.bytes = Some(2 * MIB);
    charge.change(&quota, PAGE_SIZE);
    assert!(left(&charge, &quota).abs_diff(MIB) < PAGE_SIZE, "what was done counts");
}

/// The goals apply as if they had been present at the begin of the window, but without metrics so far.
#[test]
fn goals_that_come_in_the_middle_of_a_window_bound_it() {
    let mut quota = Quota::default();
    let mut charge = Charge::default();
    assert_eq!(begin(&mut charge, &quota, 0), u64::MAX);
    quota.goals = vec![Goal::Free { bp: 2000 }];
    charge.change(&quota, PAGE_SIZE);
    assert_eq!(charge.bound(), MIB);
    quota.bytes = Some(MIB / 2);
    charge.change(&quota, PAGE_SIZE);
    assert_eq!(charge.bound(), MIB / 2);
    quota.goals.clear();
    quota.bytes = None;
    charge.change(&quota, PAGE_SIZE);
    assert_eq!(charge.bound(), u64::MAX);
}

#[test]
fn a_window_without_a_quota_does_not_use_it_up() {
    let free = |bp| Metrics { free_bp: Some(bp), ..Metrics::default() };
    let quota = Quota { goals: vec![Goal::Free { bp: 2000 }], ..Quota::default() };
    let mut charge = Charge::default();
    for (second, bp) in (0..).zip([3000, 3000, 1000, 1000]) {
        charge.begin(&quota, PAGE_SIZE, at(second * 1000), &free(bp), u64::MAX);
        charge.add(charge.bound(), charge.bound(), MS);
    }
    assert_eq!(charge.exceeded, 1, "only the third was used up");
}

#[test]
fn a_first_guess_is_not_trusted_with_the_whole_quota() {
    let quota = Quota { time: Some(16 * MS), ..Quota::default() };
    let mut charge = Charge::default();
    begin(&mut charge, &quota, 0);
    assert_eq!(left(&charge, &quota), 4 * MIB);
    charge.add(4 * MIB, 4 * MIB, 4 * MS);
    assert_eq!(left(&charge, &quota), 12 * MIB);
}

/// An hour of failures does not make the scheme slow for ever.
#[test]
fn old_charges_count_less() {
    let quota = Quota { time: Some(10 * MS), ..Quota::default() };
    let mut charge = Charge::default();
    let mut bounds = Vec::new();
    for second in 0..100 {
        bounds.push(begin(&mut charge, &quota, second * 1000));
        let speed = if second < 50 { 0 } else { MIB };
        let took =
            (10 * MS).mul_f64((bounds[bounds.len() - 1] as f64 / (10.0 * MIB as f64)).min(1.0));
        charge.add(speed, speed * 10, if speed == 0 { 10 * MS } else { took });
    }
    assert_eq!(bounds[50], PAGE_SIZE);
    assert!(bounds[99] > MIB, "{:?}", &bounds[90..]);
}

/// One huge page is processed per window, even if it exceeds the quota by a factor of two; a second one is
/// not.
#[test]
fn the_quota_always_allows_one_work() {
    let quota = Quota { time: Some(5 * MS), ..Quota::default() };
    let (mut charge, huge) = (Charge::default(), 2 * MIB);
    for (second, ms) in (0..).zip([10, 10, 4, 4, 10]) {
        charge.begin(&quota, huge, at(second * 1000), &Metrics::default(), u64::MAX);
        assert_eq!(charge.left(&quota, huge).bytes, huge);
        charge.add(huge, huge, ms * MS);
        assert_eq!(charge.left(&quota, huge).bytes, 0);
        assert!(charge.is_full(&quota, huge));
    }
}

#[test]
fn zero_never_acts() {
    for quota in [
        Quota { bytes: Some(0), ..Quota::default() },
        Quota { time: Some(Duration::ZERO), ..Quota::default() },
    ] {
        let mut charge = Charge::default();
        begin(&mut charge, &quota, 0);
        assert_eq!(left(&charge, &quota), 0);
        assert!(quota.check(PAGE_SIZE).is_ok());
    }
}

#[test]
fn invalid_values_are_refused() {
    let check = |quota: Quota| quota.check(2 * MIB).unwrap_err();
    let reset = Duration::ZERO;
    assert_eq!(check(Quota { reset, ..Quota::default() }), SchemeError::Reset(reset));
    let time = 2000 * MS;
    let late = check(Quota { time: Some(time), ..Quota::default() });
    assert_eq!(late, SchemeError::TimeQuota { time, reset: 1000 * MS });
    let small = check(Quota { bytes: Some(MIB), ..Quota::default() });
    assert_eq!(small, SchemeError::SmallQuota { bytes: MIB, unit: 2 * MIB });
    let goals = vec![Goal::Free { bp: 5 }; 17];
    assert!(matches!(check(Quota { goals, ..Quota::default() }), SchemeError::TooMany { .. }));
}

/// Found by the property below: the sum over windows overflowed.
#[test]
fn sums_over_windows_do_not_overflow() {
    let quota = Quota { time: Some(10 * MS), ..Quota::default() };
    let mut charge = Charge::default();
    for window in 0..4 {
        begin(&mut charge, &quota, 1000 * window);
        charge.add(u64::MAX, u64::MAX, Duration::MAX);
        assert!(charge.is_full(&quota, PAGE_SIZE));
    }
}

/// A valid quota, also at its limits.
fn quotas() -> impl Strategy<Value = Quota> {
    let bytes = prop_oneof![Just(0), PAGE_SIZE..1 << 40, Just(u64::MAX)];
    let reset = (10_u64..=24 * 3_600_000).prop_map(Duration::from_millis);
    (proptest::option::of(0.0..=1.0), proptest::option::of(bytes), reset).prop_map(
        |(share, bytes, reset): (Option<f64>, _, Duration)| {
            let time = share.map(|share| reset.mul_f64(share));
            Quota { time, bytes, reset, ..Quota::default() }
        },
    )
}

proptest! {
    /// Whatever was done, in whatever time: the remaining budget is in whole units and within the quota.
    #[test]
    fn the_rest_is_within_the_quota(
        quota in quotas(),
        unit in prop_oneof![Just(PAGE_SIZE), Just(2 << 20)],
        turns in proptest::collection::vec(
            (any::<u64>(), any::<u64>(), any::<u64>(), 0..u64::MAX / 100), 1..40),
    ) {
        prop_assume!(quota.check(unit).is_ok());
        let (mut charge, mut now, mut used) = (Charge::default(), Nanos(0), 0_u64);
        for (bytes, gone_over, ns, later) in turns {
            let windows = charge.windows;
            charge.begin(&quota, unit, now, &Metrics::default(), u64::MAX);
            used = if charge.windows > windows { 0 } else { used };
            let left = charge.left(&quota, unit);
            prop_assert_eq!(left.bytes % unit, 0);
            prop_assert!(left.time <= quota.time.unwrap_or(MAX_TURN));
            if let Some(most) = quota.bytes {
                prop_assert!(left.bytes <= most.saturating_sub(used), "{left:?} of {most}");
            }
            prop_assert!(charge.next(&quota, unit) <= now + quota.reset);
            charge.add(bytes, gone_over, Duration::from_nanos(ns));
            used = used.saturating_add(bytes);
            now = Nanos(now.0.saturating_add(later));
        }
    }
}
