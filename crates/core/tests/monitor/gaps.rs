use super::*;

/// A monitor that is stopped for seconds. No rate is wrong, not even that of the same interval.
#[test]
fn a_gap_does_not_make_rates_wrong() {
    let (hot, cold) = (mib(16, 16), mib(33, 31));
    for begin in [5.11, 5.27] {
        let (ops, target) = machine(1, |machine, target| {
            machine.map(target, mib(0, 64), MappingSpec::anonymous()).unwrap();
            machine.touch(target, hot, poisson(150.0)).unwrap();
        });
        // So windows are watched whenever the monitor stops.
        let attrs = Attrs { clear_every: 1, ..Attrs::default() };
        let mut monitor = RegionSampler::new(ops.clone(), attrs, &[target], 1).unwrap();
        run_until(&mut monitor, &ops, begin);
        ops.machine().advance(Duration::from_secs(3));
        let after = run_until(&mut monitor, &ops, begin + 4.0);
        assert!(after[0].end.since(after[0].start) > Duration::from_secs(3), "the gap is in it");
        assert!(after.len() <= 4, "lost intervals are not made up for");
        assert_eq!(after[0].end, after[1].start);
        for s in &after {
            let hz = mean_hz(&s.targets[0], hot);
            assert!((75.0..300.0).contains(&hz), "{hz} Hz in {}, stopped at {begin}", s.seq);
            assert_eq!(mean_hz(&s.targets[0], cold), 0.0);
        }
    }
}
