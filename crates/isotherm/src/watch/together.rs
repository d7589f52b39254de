//! Processes and files together: each snapshot of the processes also has the files.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{
    Act, Action, Applied, Attrs, CacheTrace, Cost, KeptAges, Nanos, OpsError, PageAges, Snapshot,
    Source, Step, Support, TargetId, TargetView, Work,
};
use isotherm_linux::sys::CpuLaps;
use isotherm_linux::{Hold, possible};
use isotherm_record::TargetInfo;

use super::files::{FilesToWatch, WatchedFiles};
use super::looks::Looks;
use super::{AttrsFor, Ready, StaticTargets, Watch, WatchError};
use crate::ROOT;
use crate::usage::UsageError;

/// Targets from here on are files: no process gets such a number.
const FIRST_FILE: TargetId = TargetId(1 << 30);
/// Shortest interval of the counts of accesses to files: in a shorter one hardly any access counts.
const FILES_EVERY: Duration = Duration::from_secs(1);

/// A way to look at processes, and the files to watch with them.
pub struct Together {
    processes: Looks,
    files: WatchedFiles,
}

impl Together {
    /// Opens what can count accesses to files, and finds the files.
    pub fn open(processes: Looks, files: &FilesToWatch) -> Result<Self, WatchError> {
        Ok(Together { processes, files: WatchedFiles::open(files, FIRST_FILE)? })
    }
}

/// Whether a target is a file.
fn is_file(target: TargetId) -> bool {
    target >= FIRST_FILE
}

/// Each kind of target is acted on in its own way. An action that files do not have fails for them, and is counted.
fn supports(action: &Action) -> Support {
    possible(ROOT.as_ref(), action)
}

impl Ready for Together {
    fn describe(&self) -> String {
        format!("{}; {}", self.processes.describe(), self.files.describe())
    }

    fn attrs(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        self.processes.attrs(asked)
    }

    fn hold(&mut self) -> &mut dyn Hold {
        self.processes.hold()
    }

    fn act(&self) -> Option<&dyn Act> {
        self.processes.act()
    }

    fn watched(&self) -> Option<StaticTargets> {
        self.files.watched()
    }

    fn requires_frames(&self) -> bool {
        self.processes.requires_frames()
    }

    fn begin(
        self: Box<Self>,
        attrs: Attrs,
        targets: &[TargetId],
        seed: u64,
    ) -> Result<Box<dyn Watch>, WatchError> {
        let processes: Vec<_> = targets.iter().copied().filter(|id| !is_file(*id)).collect();
        let of_files = Attrs { aggr: attrs.aggr.max(FILES_EVERY), ..attrs };
        Ok(Box::new(ProcessFileWatch {
            processes: Box::new(self.processes).begin(attrs, &processes, seed)?,
            files: Box::new(self.files).begin(of_files, &[], seed)?,
            last: Vec::new(),
            cost: Cost::default(),
        }))
    }
}

struct ProcessFileWatch {
    processes: Box<dyn Watch>,
    files: Box<dyn Watch>,
    /// the files of their last snapshot
    last: Vec<TargetView>,
    /// of watching them, since the last snapshot of the processes
    cost: Cost,
}

/// Adds the rows of ages of `before` that were not published to those of `now`.
fn keep_ages(now: &mut [TargetView], before: Vec<TargetView>) {
    let ages = before.into_iter().filter_map(|view| Some((view.id, view.ages?)));
    let mut ages: HashMap<TargetId, Arc<PageAges>> = ages.collect();
    for view in now {
        let Some(earlier) = ages.remove(&view.id) else { continue };
        view.ages = Some(match view.ages.take() {
            Some(later) => Arc::new(later.joined_to(&earlier)),
            None => earlier,
        });
    }
}

impl ProcessFileWatch {
    /// Does the work for files that is due; returns until when to wait.
    fn step_files(&mut self, now: Nanos) -> Result<Nanos, OpsError> {
        let mut cpu = CpuLaps::begin();
        let step = self.files.step(now)?;
        self.cost.cpu += cpu.lap();
        match step {
            Step::Wait(until) => Ok(until),
            Step::Snapshot(s) => {
                // The time of the thread includes that of watching processes.
                self.cost += Cost { cpu: Duration::ZERO, ..s.cost };
                let before = std::mem::replace(&mut self.last, Arc::unwrap_or_clone(s).targets);
                keep_ages(&mut self.last, before);
                Ok(now)
            }
            Step::End(_) => Ok(now + FILES_EVERY),
        }
    }
}

impl Source for ProcessFileWatch {
    fn step(&mut self, now: Nanos) -> Result<Step, OpsError> {
        let next = self.step_files(now)?;
        Ok(match self.processes.step(now)? {
            Step::Wait(until) => Step::Wait(until.min(next)),
            Step::Snapshot(s) => {
                let mut s: Snapshot = Arc::unwrap_or_clone(s);
                s.cost += std::mem::take(&mut self.cost);
                s.targets.extend(self.last.iter().cloned());
                // A row of ages counts what has happened since the row before, so it is published once.
                self.last.iter_mut().for_each(|view| view.ages = None);
                Step::Snapshot(s.into())
            }
            end @ Step::End(_) => end,
        })
    }
}

impl Act for ProcessFileWatch {
    fn supports(&self, action: &Action) -> Support {
        supports(action)
    }

    fn apply(&mut self, works: &[Work<'_>], out: &mut Vec<Applied>) -> Result<(), OpsError> {
        for of_kind in works.chunk_by(|a, b| is_file(a.target) == is_file(b.target)) {
            let is_of_files = of_kind.first().is_some_and(|work| is_file(work.target));
            let watch = if is_of_files { &mut self.files } else { &mut self.processes };
            let act = watch.act().ok_or_else(|| OpsError::Failed(CANNOT_ACT.to_owned()))?;
            let done = out.len();
            act.apply(of_kind, out)?;
            if out.len() < done + of_kind.len() {
                break;
            }
        }
        Ok(())
    }
}

const CANNOT_ACT: &str = "this way to look cannot act";

impl Watch for ProcessFileWatch {
    fn hold(&mut self) -> &mut dyn Hold {
        self.processes.hold()
    }

    /// The files are always watched.
    fn set_targets(&mut self, targets: &[TargetId]) -> Result<(), WatchError> {
        let processes: Vec<_> = targets.iter().copied().filter(|id| !is_file(*id)).collect();
        self.processes.set_targets(&processes)
    }

    fn news(&mut self) -> Vec<TargetInfo> {
        self.files.news()
    }

    fn gone(&mut self) -> Vec<TargetId> {
        self.files.gone()
    }

    fn leave_out(&mut self, file: &File) -> Result<(), WatchError> {
        self.files.leave_out(file)
    }

    fn trace(&mut self) -> Option<CacheTrace> {
        self.files.trace()
    }

    fn attrs(&self) -> Option<Attrs> {
        self.processes.attrs()
    }

    fn attrs_of(&self, asked: &dyn AttrsFor) -> Result<Attrs, UsageError> {
        self.processes.attrs_of(asked)
    }

    fn set_attrs(&mut self, attrs: Attrs) -> Result<(), WatchError> {
        self.processes.set_attrs(attrs)
    }

    fn kept_ages(&self) -> Vec<(TargetId, KeptAges)> {
        self.processes.kept_ages()
    }

    fn resume_ages(&mut self, kept: Vec<(TargetId, KeptAges)>) {
        self.processes.resume_ages(kept);
    }

    fn act(&mut self) -> Option<&mut dyn Act> {
        Some(self)
    }

    fn outlive_targets(&mut self) {
        self.processes.outlive_targets();
    }

    fn stop(&mut self) -> Result<(), WatchError> {
        let files = self.files.stop();
        self.processes.stop()?;
        files
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use isotherm_core::EndReason;
    use isotherm_linux::HeldProcesses;

    use super::*;

    /// Delivers these snapshots, one for each step.
    #[derive(Default)]
    struct Scripted {
        snapshots: VecDeque<Snapshot>,
        held: HeldProcesses,
    }

    impl Source for Scripted {
        fn step(&mut self, _: Nanos) -> Result<Step, OpsError> {
            let next = self.snapshots.pop_front();
            Ok(next.map_or(Step::End(EndReason::Stopped), |s| Step::Snapshot(s.into())))
        }
    }

    impl Watch for Scripted {
        fn hold(&mut self) -> &mut dyn Hold {
            &mut self.held
        }

        fn set_targets(&mut self, _: &[TargetId]) -> Result<(), WatchError> {
            Ok(())
        }

        fn stop(&mut self) -> Result<(), WatchError> {
            Ok(())
        }
    }

    /// A file, with a row of ages in which so many pages returned.
    fn view(nr: u32, returned: Option<u32>) -> TargetView {
        let row = |(since, pages)| {
            let mut row = PageAges { since, ..PageAges::default() };
            row.returned.add(20_000, pages);
            Arc::new(row)
        };
        TargetView {
            id: TargetId(FIRST_FILE.0 + nr),
            ran: None,
            mappings: Arc::default(),
            left_out: 0,
            dirty: None,
            regions: Vec::new(),
            ages: returned.map(|pages| row((Nanos(u64::from(pages)), pages))),
        }
    }

    fn snapshot(targets: Vec<TargetView>) -> Snapshot {
        Snapshot {
            seq: 0,
            start: Nanos(0),
            end: Nanos(1),
            attrs: Attrs::default(),
            cost: Cost::default(),
            quality: None,
            targets,
        }
    }

    /// The rows of ages in the next snapshot: begin of the time of a row, and returned pages.
    fn next(watch: &mut ProcessFileWatch) -> Vec<Option<(u64, u64)>> {
        let Step::Snapshot(s) = watch.step(Nanos(0)).unwrap() else { panic!("no snapshot") };
        let row = |ages: &Arc<PageAges>| (ages.since.0, ages.returned.total());
        s.targets.iter().map(|view| view.ages.as_ref().map(row)).collect()
    }

    #[test]
    fn each_returned_page_is_published_once() {
        let files = [
            // The processes have no snapshot yet.
            [view(0, Some(1)), view(1, Some(2))],
            [view(0, None), view(1, Some(4))],
            [view(0, None), view(1, None)],
            [view(0, Some(8)), view(1, None)],
        ];
        let of = |snapshots: VecDeque<Snapshot>| {
            Box::new(Scripted { snapshots, ..Scripted::default() }) as Box<dyn Watch>
        };
        let mut watch = ProcessFileWatch {
            processes: of(std::iter::repeat_with(|| snapshot(Vec::new())).take(3).collect()),
            files: of(files.map(|targets| snapshot(targets.into())).into()),
            last: Vec::new(),
            cost: Cost::default(),
        };
        watch.step_files(Nanos(0)).unwrap();
        assert_eq!(next(&mut watch), [Some((1, 1)), Some((2, 6))], "kept, and joined");
        assert_eq!(next(&mut watch), [None, None], "once");
        assert_eq!(next(&mut watch), [Some((8, 8)), None]);
    }
}
