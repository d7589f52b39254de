use super::*;

const AGES_S: [u64; NR_AGES] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400,
    172_800, 345_600, 604_800, 1_209_600,
];

fn fleet(hosts: u32, days: u32) -> Fleet {
    Fleet::new(FleetSpec { hosts, days, groups: 1, seed: 7 }, AGES_S)
}

#[test]
fn the_same_seed_gives_the_same_minutes_in_any_order() {
    let all = |fleet: &Fleet, minutes: &[u32]| {
        let day = fleet.day(1);
        let group = fleet.group(3, 0);
        let mut rows: Vec<_> =
            minutes.iter().map(|m| (*m, fleet.measure(&day, &group, *m))).collect();
        rows.sort_by_key(|row| row.0);
        rows
    };
    let rows = all(&fleet(20, 3), &[5, 900, 30]);
    assert_eq!(rows, all(&fleet(20, 3), &[900, 30, 5]));
    let other = Fleet::new(FleetSpec { seed: 8, ..*fleet(20, 3).spec() }, AGES_S);
    assert_ne!(rows, all(&other, &[5, 900, 30]));
}

#[test]
fn a_measured_minute_adds_up() {
    let fleet = fleet(40, 3);
    for day in [0, 2] {
        let day = fleet.day(day);
        for group in fleet.groups() {
            for minute in [0, 700, 1439] {
                let m = fleet.measure(&day, &group, minute);
                assert_eq!(m.hot + m.warm + m.cold + m.unknown, m.resident, "{m:?}");
                assert!([m.hot, m.warm, m.cold, m.unknown].iter().all(|b| *b >= 0), "{m:?}");
                assert!(m.idle.is_sorted_by(|a, b| a >= b) && m.idle[0] <= m.aged, "{m:?}");
                assert!(m.returned.is_sorted_by(|a, b| a >= b), "{m:?}");
            }
        }
    }
}

/// The lake is computed from shares by age, the truth from pages one by one.
#[test]
fn what_is_measured_is_the_truth_within_a_tenth() {
    const DAYS: u32 = 2;
    let fleet = fleet(20, DAYS);
    let mut sums = vec![[[0.0; 2]; NR_AGES]; fleet.services().len()];
    for day in (0..DAYS).map(|day| fleet.day(day)) {
        for group in fleet.groups() {
            for minute in 0..DAY_MINUTES {
                let m = fleet.measure(&day, &group, minute);
                for (sum, bytes) in
                    sums[group.service].iter_mut().zip(m.idle.iter().zip(m.returned))
                {
                    *sum = [sum[0] + *bytes.0 as f64, sum[1] + bytes.1 as f64];
                }
            }
        }
    }
    let (mut near, mut all) = (0, 0);
    for (service, sums) in sums.iter().enumerate() {
        for truth in truth(&fleet, service).iter().filter(|t| [120, 1800, 14_400].contains(&t.age))
        {
            let i = AGES_S.iter().position(|age| *age == truth.age).unwrap();
            let mean = sums[i].map(|sum| sum / f64::from(DAYS * DAY_MINUTES));
            for (found, exact) in mean.into_iter().zip([truth.saved_bytes, truth.returned_bytes]) {
                all += 1;
                let off = (found - exact).abs();
                near += u32::from(off <= 0.1 * exact || off < 256.0 * 1024.0);
            }
        }
    }
    assert!(f64::from(near) >= 0.9 * f64::from(all), "{near} of {all}");
}

#[test]
fn a_deploy_changes_cold_memory_where_it_arrives() {
    let fleet = fleet(400, 5);
    let changed = |s: &&Service| s.deploy.as_ref().is_some_and(|d| d.cold > 0.1);
    let service = fleet.services().iter().find(changed).unwrap();
    let deploy = service.deploy.as_ref().unwrap();
    let days = [0, deploy.minute / DAY_MINUTES + 1].map(|day| fleet.day(day));
    let own = |g: &Group| fleet.services()[g.service].name == service.name;
    for group in fleet.groups().filter(own) {
        let cold = |day: &Day| fleet.measure(day, &group, 700).idle[9] as f64;
        let change = (cold(&days[1]) - cold(&days[0])) / (service.bytes as f64 * group.scale);
        let expected = if group.deployed { deploy.cold } else { 0.0 };
        assert!((change - expected).abs() < 0.05, "{change} {group:?}");
    }
}
