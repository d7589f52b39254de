//! Tracepoints of ours (USDT): `docs/abi/testing/tracepoints.md`. While no tool is attached, each costs one
//! read of a number that stays zero. Some tools can read only six arguments.

use std::collections::BTreeMap;
use std::ffi::CString;

use isotherm_core::{
    Act, Action, Applied, Cause, OpsError, RegionView, Snapshot, Support, TargetId, TargetView,
    Work, WorkObserver,
};
use probe::probe_lazy;

/// Reports each region of a snapshot. A target that is not a process has pid 0.
pub fn aggregated(s: &Snapshot, pids: &BTreeMap<TargetId, i32>) {
    for view in &s.targets {
        let pid = pids.get(&view.id).copied().unwrap_or_default();
        view.regions.iter().for_each(|r| region(pid, view, r));
    }
}

/// A separate function, so that there is one place in the program and one tracepoint.
#[inline(never)]
fn region(pid: i32, view: &TargetView, r: &RegionView) {
    probe_lazy!(
        isotherm,
        aggregated,
        pid,
        r.range.start,
        r.range.end,
        millihertz(r.rate.hz.into()),
        r.touched_bp,
        r.age.as_millis(),
        r.accesses_bp,
        view.regions.len()
    );
}

/// Reports the start of each work item. In a batch, the last items may never start.
pub struct TracedAct<'a> {
    pub act: &'a mut dyn Act,
    pub pids: &'a BTreeMap<TargetId, i32>,
}

impl Act for TracedAct<'_> {
    fn supports(&self, action: &Action) -> Support {
        self.act.supports(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        // All items of a batch belong to the same scheme.
        let name = |name: &str| CString::new(name).unwrap_or_default();
        let first = works.first().and_then(|work| Some((work.cause?.scheme, work.action.name())));
        let (scheme, action) = first.map(|(s, a)| (name(s), name(a))).unwrap_or_default();
        let turn = BatchProperties { scheme, action, pids: self.pids };
        let works: Vec<Work<'_>> = works.iter().map(|work| traced(work, &turn)).collect();
        self.act.apply(&works, out)
    }

    fn reclaim_cache(&mut self, group: &str, bytes: u64) -> Option<Applied> {
        self.act.reclaim_cache(group, bytes)
    }
}

/// The same work, which calls `begins` when it starts.
fn traced<'a>(work: &Work<'a>, begins: &'a dyn WorkObserver) -> Work<'a> {
    let cause = work.cause.map(|cause| Cause { begins: Some(begins), ..cause });
    Work { cause, ..work.clone() }
}

/// The properties that all work items of a batch share. The names are those that the scheme asked for, also in
/// a dry run, which only looks.
#[derive(Debug)]
struct BatchProperties<'a> {
    scheme: CString,
    action: CString,
    pids: &'a BTreeMap<TargetId, i32>,
}

impl WorkObserver for BatchProperties<'_> {
    #[inline(never)]
    fn begins(&self, work: &Work<'_>) {
        let Some(cause) = work.cause else { return };
        probe_lazy!(
            isotherm,
            before_apply,
            self.scheme.as_ptr(),
            self.pids.get(&work.target).copied().unwrap_or_default(),
            work.range.start,
            work.range.end,
            millihertz(cause.hz),
            cause.age.as_millis(),
            self.action.as_ptr()
        );
    }
}

/// A rate in mHz, because tracepoints carry integers.
fn millihertz(hz: f64) -> u64 {
    (hz * 1e3) as u64
}
