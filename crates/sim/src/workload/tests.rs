use super::*;

#[test]
fn all_named_ones_are_workloads() {
    for named in NAMED {
        let w = named.workload().unwrap();
        println!(
            "{} {} {:?} {} MiB {}",
            named.name,
            w.about,
            w.length(),
            Layout::new(&w, 1).len() >> 20,
            Layout::new(&w, 1).parts.len()
        );
    }
}
