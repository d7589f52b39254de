use super::*;
use isotherm_core::{EndReason, Observer, Region, Source, Step};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Debug, PartialEq)]
enum Event {
    Sampling(Nanos, usize),
    Aggregation(u64),
    End(EndReason),
}

#[derive(Clone, Default)]
struct Log(Rc<RefCell<Vec<Event>>>);

impl Observer for Log {
    fn after_sampling(&mut self, now: Nanos, targets: &[(TargetId, &[Region])]) {
        self.0.borrow_mut().push(Event::Sampling(now, targets.len()));
    }
    fn after_aggregation(&mut self, snapshot: &Arc<Snapshot>) {
        self.0.borrow_mut().push(Event::Aggregation(snapshot.seq));
    }
    fn before_end(&mut self, why: EndReason) {
        self.0.borrow_mut().push(Event::End(why));
    }
}

#[test]
fn observers_are_called_in_order() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    let (log, second) = (Log::default(), Log::default());
    monitor.observe(Box::new(log.clone()));
    monitor.observe(Box::new(second.clone()));
    run_until(&mut monitor, &ops, 1.2);
    monitor.stop();
    monitor.stop();
    let stopped = monitor.step(seconds(1.3)).unwrap();
    assert!(matches!(stopped, Step::End(EndReason::Stopped)));
    let mut want = Vec::new();
    for i in 1..=60 {
        want.push(Event::Sampling(Nanos(i * 20_000_000), 1));
        want.extend((i % 20 == 0).then(|| Event::Aggregation(i / 20 - 1)));
    }
    want.push(Event::End(EndReason::Stopped));
    assert_eq!(*log.0.borrow(), want);
    assert_eq!(*second.0.borrow(), want);
}

#[test]
fn observers_hear_that_the_targets_are_gone_once() {
    let (ops, target) = machine(1, a_quarter_hot);
    let mut monitor = monitor(&ops, &[target]);
    let log = Log::default();
    monitor.observe(Box::new(log.clone()));
    run_until(&mut monitor, &ops, 0.5);
    ops.machine().end(target).unwrap();
    run_until(&mut monitor, &ops, 3.0);
    monitor.stop();
    let events = log.0.borrow();
    let ends: Vec<_> = events.iter().filter(|e| matches!(e, Event::End(_))).collect();
    assert_eq!(ends, [&Event::End(EndReason::TargetsGone)]);
    assert_eq!(events.last(), Some(&Event::End(EndReason::TargetsGone)));
}
