//! `isotherm reclaim --all --look damon`: a kdamond of ours pages out by itself, anywhere in memory.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use isotherm_core::scheme::{Goal, Scheme};
use isotherm_core::{AddrRange, Nanos};
use isotherm_linux::damon::{self, ExcludedMemory, KdamondAttrs, ReclaimKdamond, ReclaimTotals};
use isotherm_linux::proc::MGLRU;
use isotherm_linux::sys::{self, KeptCapabilities};
use isotherm_linux::{PhysicalSelection, physical_memory, possible};
use isotherm_report::bytes;
use sd_notify::NotifyState;
use serde::Serialize;
use tracing::{info, warn};

use super::kernel_memory::MachineBytes;
use super::{Acting, SchemeTable, ServiceError, check_actions};
use crate::ROOT;
use crate::control::{self, Control, Request, Response};
use crate::notify::Notify;
use crate::reclaim::ReclaimScheme;
use crate::record::sweep;
use crate::served::Wait;
use crate::stop::Stop;
use crate::usage::UsageError;
use crate::words::STATUS;

/// Interval between two reports of its progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Default time between two checks of the watermarks by the kernel's monitor. While watermarks deactivate it, it
/// answers only this often.
const KERNEL_MARKS_EVERY: Duration = Duration::from_millis(500);

/// The request to the kernel, without the addresses, and the scheme that it was made from.
///
/// # Errors
/// If the kernel does not have one of the options.
pub fn request(
    o: &ReclaimScheme,
    acting: &Acting,
    attrs: KdamondAttrs,
) -> Result<(damon::ReclaimSpec, Scheme), UsageError> {
    if let Some(what) = unavailable(o, acting) {
        return Err(UsageError::new(format!("kernel DAMON {what}")));
    }
    let scheme = o.checked()?;
    if scheme.quota.time == Some(Duration::ZERO) || scheme.quota.bytes == Some(0) {
        let text =
            "kernel DAMON treats a quota of 0 as no limit: give 1ms/1s and 4K at least, or none";
        return Err(UsageError::new(text));
    }
    let stalled = scheme.quota.goals.iter().rev().find_map(|goal| match goal {
        Goal::Stalled { target, .. } => Some(target.mul_f64(scheme.quota.reset.as_secs_f64())),
        _ => None,
    });
    let marks_every = o.watermarks_interval.unwrap_or(KERNEL_MARKS_EVERY);
    let asked = damon::ReclaimSpec {
        attrs,
        memory: Vec::new(),
        min_age: o.min_age,
        time: scheme.quota.time,
        bytes: scheme.quota.bytes,
        window: scheme.quota.reset,
        watermarks: o.watermarks.map(|marks| (marks, marks_every)),
        stalled,
        skip_anon: o.skip_anon,
        dry: acting.dry_run,
    };
    Ok((asked, scheme))
}

/// The first option that the kernel does not have, with the remedy.
fn unavailable(o: &ReclaimScheme, acting: &Acting) -> Option<&'static str> {
    let refaults = o.goals.iter().any(|goal| matches!(goal, Goal::Refaults { .. }));
    let is_of_stalls = |goal: &&Goal| matches!(goal, Goal::Stalled { .. });
    let nr_of_stalls = o.goals.iter().filter(is_of_stalls).count();
    [
        (
            !acting.targets.all,
            "pages out memory of the whole machine, and cannot check single pages: give --all, \
             or choose --look bpf, bpf-probe or bpf-iter",
        ),
        (
            acting.log.is_some() || acting.passed,
            "does not report its actions by range: leave out --log and --passed",
        ),
        (acting.stacks, "pages out memory of the whole machine: leave out --stacks"),
        (acting.metrics.is_some(), "does not report memory by process: leave out --metrics"),
        (acting.lake.is_some(), "does not report memory by process: leave out --lake"),
        (
            acting.files.is_some(),
            "pages out memory of the whole machine: leave out --file, --dir, --mount and --cached, \
             or choose --look bpf",
        ),
        (
            o.pages || o.aim.is_some(),
            "acts on regions: leave out --pages and --aim, or choose --look bpf",
        ),
        (
            acting.targets.excludes(),
            "pages out memory of the whole machine: leave out --except-comm, --except-cgroup and \
             --except-pid",
        ),
        (
            !acting.targets.command.is_empty(),
            "pages out memory of the whole machine: leave out the command, or choose --look bpf",
        ),
        (nr_of_stalls > 1, "has one goal: give psi=SHARE once"),
        (refaults, "has no goal for refaults: write psi=SHARE, or choose --look bpf"),
    ]
    .into_iter()
    .find_map(|(given, what)| given.then_some(what))
}

/// The scheme that the kernel is to run, and the options of the service.
pub struct KernelReclaim {
    /// the kernel's scheme; `run` sets its memory
    pub asked: damon::ReclaimSpec,
    /// the same as a scheme of ours, to check that its action is possible here
    pub scheme: Scheme,
    /// address ranges to act on; empty: all memory
    pub ranges: Vec<AddrRange>,
    /// path of the control socket; `None`: no socket
    pub socket: Option<PathBuf>,
    /// It ends after this time.
    pub duration: Option<Duration>,
    /// The options come from a file, which is not read again.
    pub is_in_file: bool,
}

/// Lets the kernel page out until a reason to end.
///
/// # Errors
/// If it cannot start, or a change to the machine cannot be undone.
pub fn run(o: KernelReclaim) -> Result<ReclaimOutput, ServiceError> {
    let dry = o.asked.dry;
    let notes = check_actions([o.scheme].iter(), |a| possible(ROOT.as_ref(), a), dry)?;
    notes.iter().for_each(|note| warn!("{note}"));
    let stop = if o.is_in_file { Stop::at_signals_but_reload()? } else { Stop::at_signals()? };
    let control = o.socket.as_deref().map(Control::open).transpose()?;
    sweep();
    let part = PhysicalSelection { nodes: Vec::new(), ranges: o.ranges };
    let memory = part.of(&physical_memory(ROOT.as_ref())?)?.iter().map(|s| s.range).collect();
    let reclaimer =
        ReclaimKdamond::start(ROOT.as_ref(), &damon::ReclaimSpec { memory, ..o.asked })?;
    if let Some(why) = excluded_text(reclaimer.spared()) {
        warn!("{why}");
    }
    sys::drop_privileges(KeptCapabilities { reading: true, ..KeptCapabilities::default() })?;
    let (begin, done) = (sys::monotonic(), ReclaimTotals::default());
    let mut service = Service { reclaimer, control, done, begin, paused: false, dry };
    let stop = stop.at(o.duration.map(|d| sys::monotonic() + d));
    let mut notify = Notify::from_env();
    Notify::say(&[NotifyState::Ready]);
    let ended = service.until(&stop, &mut notify);
    Notify::say(&[NotifyState::Stopping]);
    // Counts the work of the last second too.
    let counted = service.count();
    let stopped = service.reclaimer.stop();
    let because = ended?;
    stopped?;
    counted?;
    let time = sys::monotonic().since(begin);
    info!(target: STATUS, "ran {:.1} s ({because}): physical memory", time.as_secs_f64());
    Ok(service.output())
}

/// Describes which memory is not paged out because the kernel does not record its accesses, and why.
fn excluded_text(spared: ExcludedMemory) -> Option<String> {
    let left = match spared {
        ExcludedMemory::Nothing => return None,
        ExcludedMemory::Unmapped => "memory that no process maps is left alone".to_owned(),
        ExcludedMemory::Files => {
            "only anonymous memory is paged out, as this kernel has no filter for memory that no \
                          process maps (Linux 6.15 has)"
                .to_owned()
        }
    };
    Some(format!(
        "MGLRU is on ({MGLRU}): the kernel's DAMON does not see reads and writes of files that \
         no process maps. So {left}. To page out page cache, turn MGLRU off first: echo n \
         >{MGLRU}"
    ))
}

/// A running kdamond.
struct Service {
    reclaimer: ReclaimKdamond,
    control: Option<Control>,
    done: ReclaimTotals,
    begin: Nanos,
    paused: bool,
    dry: bool,
}

/// `docs/abi/testing/control.md`.
#[derive(Serialize)]
struct KernelStatus {
    version: &'static str,
    pid: u32,
    since: String,
    started_ns: u64,
    paused: bool,
    monitor: &'static str,
    #[serde(flatten)]
    done: ReclaimOutput,
    cost: Cost,
}

/// The result, and the memory that is left alone: `docs/abi/testing/run.md`.
#[derive(Serialize)]
pub struct ReclaimOutput {
    /// result of the scheme
    #[serde(flatten)]
    pub table: SchemeTable,
    /// memory of the machine; `None` if the kernel does not report it
    pub total: Option<MachineBytes>,
}

#[derive(Serialize)]
struct Cost {
    own_cpu: f64,
}

impl Service {
    /// Runs until a reason to end, and returns that reason.
    fn until(&mut self, stop: &Stop, notify: &mut Notify) -> Result<String, ServiceError> {
        let mut next_report = sys::monotonic();
        loop {
            let now = sys::monotonic();
            notify.alive(now);
            if let Some(cause) = stop.cause() {
                return Ok(cause.to_string());
            }
            if stop.take_reload_request() {
                info!("with --look damon isotherm reads the file of --config only at the start");
            }
            if now >= next_report {
                next_report = now + REPORT_INTERVAL;
                if !self.dry && self.reclaimer.is_misled() {
                    return Err(ServiceError::Misled(format!(
                        "MGLRU was turned on ({MGLRU}): the kernel's DAMON no longer observes \
                         reads of page cache that no process maps, and would page it out as \
                         cold. Restart isotherm: it then leaves such memory alone"
                    )));
                }
                self.count()?;
                self.report(now);
            }
            let others = [stop.end(), notify.by()];
            let until = others.into_iter().flatten().fold(next_report, Nanos::min);
            let mut signals = stop;
            let signals: &mut dyn Wait = &mut signals;
            let mut control = self.control.take();
            let requests = control::wait(control.as_mut(), [signals], until);
            let stopped = control::answer(control.as_mut(), requests, |r| self.done(&r));
            self.control = control;
            if let Some(why) = stopped {
                return Ok(why);
            }
        }
    }

    fn count(&mut self) -> Result<(), ServiceError> {
        self.done =
            if self.paused { self.reclaimer.before() } else { self.reclaimer.reclaimed()? };
        Ok(())
    }

    fn report(&self, now: Nanos) {
        info!(target: STATUS, "{:.1} s  reclaim {} of {} tried  CPU of the kdamond {:.1} %",
            now.since(self.begin).as_secs_f64(),
            bytes(self.done.applied_bytes),
            bytes(self.done.tried_bytes),
            self.share() * 100.0,);
    }

    /// CPU time of the kdamond, as a fraction of one CPU.
    fn share(&self) -> f64 {
        let time = sys::monotonic().since(self.begin);
        // A time below 1 s is too short for a meaningful share.
        self.reclaimer.cpu().as_secs_f64() / time.as_secs_f64().max(1.0)
    }

    fn done(&mut self, request: &Request) -> Result<Response<KernelStatus>, ServiceError> {
        match request {
            Request::Status => {
                self.count()?;
                return Ok(Response::status(self.state()));
            }
            Request::Stop => {}
            Request::Pause if !self.paused => {
                self.reclaimer.pause()?;
                self.paused = true;
            }
            Request::Resume if self.paused => {
                self.reclaimer.resume()?;
                self.paused = false;
            }
            Request::Pause | Request::Resume => {}
            _ => return Err(ServiceError::KernelWorks),
        }
        Ok(Response::done())
    }

    fn output(&self) -> ReclaimOutput {
        let time = sys::monotonic().since(self.begin);
        let table = SchemeTable::of_kernel(self.done, self.reclaimer.cpu(), time, self.dry);
        ReclaimOutput { table, total: MachineBytes::now(self.reclaimer.spared()) }
    }

    fn state(&self) -> KernelStatus {
        let time = sys::monotonic().since(self.begin);
        KernelStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            since: humantime::format_rfc3339_seconds(SystemTime::now() - time).to_string(),
            started_ns: self.begin.0,
            paused: self.paused,
            monitor: "damon",
            done: self.output(),
            cost: Cost { own_cpu: self.share() },
        }
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::Attrs;

    use super::*;
    use crate::agent::{LakeOptions, LakePlace};
    use crate::follow::Selection;
    use crate::page_cache::FileScope;
    use crate::reclaim::TimeQuota;
    use crate::watch::FilesToWatch;

    fn options() -> ReclaimScheme {
        ReclaimScheme {
            min_age: Duration::from_secs(120),
            pages: false,
            aim: None,
            quota: TimeQuota { time: None, window: Duration::from_secs(1) },
            quota_size: None,
            watermarks: None,
            watermarks_interval: None,
            ranges: Vec::new(),
            files_too: false,
            skip_anon: false,
            goals: Vec::new(),
        }
    }

    /// Found by a review: it began, and wrote no rows and watched no files.
    #[test]
    fn options_that_the_kernel_does_not_have_are_refused() {
        let all = Acting::on(Selection { all: true, ..Selection::default() });
        let why = |acting: &Acting| {
            request(&options(), acting, Attrs::default().into())
                .map(drop)
                .map_err(|e| e.to_string())
        };
        assert_eq!(why(&all), Ok(()));
        let lake = LakeOptions {
            place: LakePlace::Dir("/lake".into()),
            host: None,
            keep: Duration::MAX,
            keep_bytes: None,
            spool: "/spool".into(),
            spool_bytes: 0,
            upload_every: Duration::MAX,
            command_lines: false,
        };
        let lake = Acting { lake: Some(lake), ..all.clone() };
        assert!(why(&lake).unwrap_err().contains("--lake"), "{:?}", why(&lake));
        let scope = FileScope { paths: vec!["/".into()], ..FileScope::default() };
        let files = FilesToWatch { scope, by_access: false, remembers: true, traces: false };
        let files = Acting { files: Some(files), ..all };
        assert!(why(&files).unwrap_err().contains("--file"), "{:?}", why(&files));
    }

    #[test]
    fn excluded_memory_is_reported_with_a_reason() {
        assert_eq!(excluded_text(ExcludedMemory::Nothing), None);
        for (spared, said) in [
            (ExcludedMemory::Unmapped, "no process maps is"),
            (ExcludedMemory::Files, "only anonymous"),
        ] {
            let why = excluded_text(spared).unwrap();
            assert!(why.contains(said) && why.contains("/sys/kernel/mm/lru_gen/enabled"), "{why}");
        }
    }
}
