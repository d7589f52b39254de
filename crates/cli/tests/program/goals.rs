//! A quota that tunes itself, for a process that needs memory again.

use crate::alone::Alone;
use crate::cgroups::{Group, mounts_or_skip, starter_in};
use crate::load::{Load, MIB};
use crate::reclaim::Service;
use crate::run::until;
use crate::schemes::swapped;

/// A quota grows up to this without being used, and falls below it only because of its goal.
const UNPROVEN: u64 = MIB;

#[test]
fn a_goal_lowers_the_quota_when_memory_is_wanted_back() {
    let mounts = mounts_or_skip("a_goal_lowers_the_quota_when_memory_is_wanted_back");
    if mounts.is_empty() {
        return;
    }
    // A group with faults of its own: the tests cause many in all other groups.
    let mut groups = mounts.iter().map(|mount| Group::new(mount, "goal"));
    let group = groups.find(|group| group.0.join("memory.stat").exists());
    let group = group.expect("no control group here counts faults");
    let Some(_alone) = Alone::with_swap(128) else { return };
    let mut starter = starter_in(&group);
    Load::words(&mut starter, 48, 16);
    let mut load = Load::from_command(&mut starter);
    let pid = load.pid().to_string();
    let bounds = ["--quota", "none", "--quota-size", "none"];
    let service =
        Service::working(&[&["--pid", &pid, "--goal", "refault=100%"][..], &bounds].concat());
    let quota = || service.status()["schemes"][0]["quota_bytes"].as_u64().unwrap();
    until("more, while nothing is wanted back", || quota() >= 4 * UNPROVEN);
    until("most of what is cold", || swapped(load.pid()) >= 24 * MIB);
    let before = quota();
    assert!(before >= UNPROVEN, "{before}");
    load.touch(load.memory);
    until("less, as all of it was wanted back", || quota() < UNPROVEN);
    // That memory is paged out again, and no longer touched.
    until("more, as nothing is wanted back any longer", || quota() >= UNPROVEN);
}
