mod errors;
mod layouts;
mod pictures;
mod plays;
mod walks;

use super::*;

#[test]
fn all_named_ones_are_workloads_of_a_fitting_size() {
    for named in NAMED {
        let w = named.workload().unwrap();
        let (mib, seconds) = (WorkloadLayout::new(&w, 1).len() >> 20, w.length().as_secs());
        assert!((256..=1100).contains(&mib), "{}: {mib} MiB", named.name);
        assert!((20..=40).contains(&seconds), "{}: {seconds} s", named.name);
        assert_eq!(Named::find(named.name).unwrap().workload().unwrap(), w);
    }
}

#[test]
fn a_written_workload_parses_to_the_same() {
    for named in NAMED {
        let w = named.workload().unwrap();
        let text = toml::to_string(&w).unwrap();
        assert_eq!(Workload::parse(&text).unwrap(), w, "{text}");
    }
}

#[test]
fn the_documented_example_is_a_workload() {
    const DOCUMENT: &str = include_str!("../../../../../docs/abi/testing/workload.md");
    let (_, rest) = DOCUMENT.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    let w = Workload::parse(example).unwrap();
    assert_eq!((w.regions.len(), w.phases.len(), w.repeat), (4, 2, 2));
    assert_eq!(w.phases[0].accesses[0].rate, TouchRate::Max);
    assert_eq!(w.length(), Duration::from_secs(30));
}

fn schedule(w: &Workload, seconds: Option<f64>) -> Vec<(usize, f64, Vec<f64>)> {
    let duration = seconds.map(Duration::from_secs_f64);
    let schedule = Schedule::new(w, &WorkloadLayout::new(w, 1), duration).unwrap();
    let slots = schedule.slots.iter();
    slots
        .map(|s| {
            let cuts = s.cuts.iter().map(Duration::as_secs_f64).collect();
            (s.phase, s.start.as_secs_f64(), cuts)
        })
        .collect()
}

#[test]
fn phases_are_cut_or_repeated_to_fill_the_time() {
    let w = Workload::parse(
        "about = \"\"\nregion = [{ name = \"a\", size = \"4M\" }]\nrepeat = 2\nphase = [
            { name = \"on\", duration = \"1.5s\", access = [{ region = \"a\", rate = 1 }] },
            { name = \"off\", duration = \"500ms\" }]",
    );
    let w = w.unwrap();
    let on = |at| (0, at, vec![at + 1.0, at + 1.5]);
    let off = |at| (1, at, vec![at + 0.5]);
    assert_eq!(schedule(&w, None), [on(0.0), off(1.5), on(2.0), off(3.5)]);
    assert_eq!(schedule(&w, Some(1.0)), [(0, 0.0, vec![1.0])]);
    let five = [on(0.0), off(1.5), on(2.0), off(3.5), (0, 4.0, vec![5.0])];
    assert_eq!(schedule(&w, Some(5.0)), five);
}

#[test]
fn each_move_of_a_window_ends_an_interval() {
    let w = Workload::parse(
        "about = \"\"\nregion = [{ name = \"a\", size = \"4M\" }]\nphase = [
            { name = \"on\", duration = \"3s\", access = [{ region = \"a\", rate = 1,
                order = { moving = { window = \"1M\", every = \"1.25s\" } } }] }]",
    );
    assert_eq!(schedule(&w.unwrap(), None), [(0, 0.0, vec![1.0, 1.25, 2.0, 2.5, 3.0])]);
}
