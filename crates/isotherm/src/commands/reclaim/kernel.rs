//! `isotherm reclaim --all --look damon`: a kdamond of ours pages out by itself, wherever in memory.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use isotherm_core::Nanos;
use isotherm_linux::damon::{self, KdamondAttrs, Reclaimed, Reclaimer, Spared};
use isotherm_linux::proc::MGLRU;
use isotherm_linux::sys::{self, Kept};
use isotherm_linux::{Part, physical_memory, possible};
use isotherm_report::bytes;
use serde::Serialize;

use super::checked;
use super::memory::Memory;
use crate::cli::{Aim, Reclaim, UsageError};
use crate::commands::record::sweep;
use crate::commands::report::output::print;
use crate::commands::run::{Table, check_actions};
use crate::commands::service::machine;
use crate::commands::stop::Stop;
use crate::commands::watch::ROOT;
use crate::control::{self, Answer, Control, Request};
use crate::notify::Notify;
use crate::served::Wait;
use crate::words::say;

/// How often it is said what it has done.
const SAY: Duration = Duration::from_secs(5);
/// How often watermarks are looked at: where they have it rest, the kernel answers no sooner.
const MARKS_EVERY: Duration = Duration::from_millis(500);

/// Has the kernel page out as `asked` until it is told to end.
pub fn run(o: &Reclaim, asked: damon::Reclaim) -> Result<ExitCode> {
    let dry = asked.dry;
    let schemes = [checked(o)?];
    let notes = check_actions(schemes.iter(), |action| possible(ROOT.as_ref(), action), dry)?;
    notes.iter().for_each(|note| say(format_args!("isotherm: {note}")));
    let stop =
        if o.config.is_some() { Stop::at_signals_but_reload()? } else { Stop::at_signals()? };
    let control = o.socket().as_deref().map(Control::open).transpose()?;
    sweep();
    let part = Part { nodes: Vec::new(), ranges: o.range.clone() };
    let memory = part.of(&physical_memory(ROOT.as_ref())?)?.iter().map(|s| s.range).collect();
    let reclaimer = Reclaimer::start(ROOT.as_ref(), &damon::Reclaim { memory, ..asked })?;
    if let Some(why) = leaves_alone(reclaimer.spared()) {
        say(why);
    }
    sys::drop_privileges(Kept { reading: true, writing: false, frames: false })?;
    let (begin, done) = (sys::monotonic(), Reclaimed::default());
    let mut service = Service { reclaimer, control, done, begin, paused: false, dry };
    let stop = stop.at(o.acting.duration.map(|d| sys::monotonic() + d));
    let mut notify = Notify::from_env();
    notify.say("READY=1");
    let ended = service.until(&stop, &mut notify);
    notify.say("STOPPING=1");
    // What it has done in the last second, too.
    let counted = service.count();
    let stopped = service.reclaimer.stop();
    let because = ended?;
    stopped?;
    counted?;
    let time = sys::monotonic().since(begin);
    say(format_args!("ran {:.1} s ({because}): physical memory", time.as_secs_f64()));
    let done = service.so_far();
    let text = if o.acting.json {
        serde_json::to_string(&done)? + "\n"
    } else {
        done.table.text() + &machine(&serde_json::to_value(&done.total)?)
    };
    print(text.as_bytes())
}

/// What is not paged out since the kernel does not note how it is used, and why.
fn leaves_alone(spared: Spared) -> Option<String> {
    let left = match spared {
        Spared::Nothing => return None,
        Spared::Unmapped => "memory that no process maps is left alone".to_owned(),
        Spared::Files => {
            "only anonymous memory is paged out, as this kernel has no filter for memory that no \
                          process maps (Linux 6.15 has)"
                .to_owned()
        }
    };
    Some(format!(
        "isotherm: MGLRU is on ({MGLRU}): the kernel's DAMON does not see reads and writes of files that no \
         process maps. So {left}. To have page cache paged out, turn MGLRU off before: echo n >{MGLRU}"
    ))
}

/// What the kernel is to do, but for where; what it cannot is told.
pub fn asked(o: &Reclaim) -> Result<damon::Reclaim, UsageError> {
    let wrong = |what: &str| Err(UsageError::new(format!("kernel DAMON {what}")));
    if !o.acting.targets.all {
        return wrong(
            "pages out of the whole machine, and cannot look at single pages again: give --all, or look by \
             bpf, bpf-probe or bpf-iter",
        );
    }
    if o.acting.log.is_some() || o.acting.passed {
        return wrong("does not tell what it does to which range: leave out --log and --passed");
    }
    if o.acting.metrics.to.is_some() {
        return wrong("does not tell whose memory is what: leave out --metrics");
    }
    if o.pages {
        return wrong("goes by regions: leave out --pages, or look by bpf");
    }
    if o.acting.targets.spares() {
        return wrong(
            "pages out of the whole machine: leave out --except-comm, --except-cgroup and --except-pid",
        );
    }
    checked(o)?;
    if o.quota.time == Some(Duration::ZERO) || o.quota_size.0 == Some(0) {
        return wrong("takes a quota of 0 for no bound: give 1ms/1s and 4K at least, or none");
    }
    let mut stalled = None;
    for aim in &o.goal {
        match aim {
            Aim::Stalled(time) => stalled = Some(time.mul_f64(o.quota.window.as_secs_f64())),
            Aim::Refaults(_) => {
                return wrong("knows no goal of refaults: write psi=SHARE, or look by bpf");
            }
        }
    }
    Ok(damon::Reclaim {
        attrs: KdamondAttrs::from(o.acting.watching.damon_attrs()?),
        memory: Vec::new(),
        min_age: o.min_age,
        time: o.quota.time,
        bytes: o.quota_size.0,
        window: o.quota.window,
        watermarks: o
            .watermarks
            .0
            .map(|marks| (marks, o.watermarks_interval.unwrap_or(MARKS_EVERY))),
        stalled,
        skip_anon: o.skip_anon,
        dry: o.acting.dry_run,
    })
}

/// A kdamond at work.
struct Service {
    reclaimer: Reclaimer,
    control: Option<Control>,
    done: Reclaimed,
    begin: Nanos,
    paused: bool,
    dry: bool,
}

/// `docs/abi/testing/control.md`.
#[derive(Serialize)]
struct State {
    version: &'static str,
    pid: u32,
    since: String,
    paused: bool,
    monitor: &'static str,
    #[serde(flatten)]
    done: Done,
    cost: Cost,
}

/// What has come of it, and what it leaves alone: `docs/abi/testing/run.md`.
#[derive(Serialize)]
struct Done {
    #[serde(flatten)]
    table: Table,
    total: Option<Memory>,
}

#[derive(Serialize)]
struct Cost {
    own_cpu: f64,
}

impl Service {
    /// Why it has ended.
    fn until(&mut self, stop: &Stop, notify: &mut Notify) -> Result<String> {
        let mut tell = sys::monotonic();
        loop {
            let now = sys::monotonic();
            notify.alive(now);
            if let Some(cause) = stop.cause() {
                return Ok(cause.to_string());
            }
            if stop.takes_reload() {
                say("isotherm: what is in --config is read at the start alone with --look damon");
            }
            if now >= tell {
                tell = now + SAY;
                if !self.dry && self.reclaimer.is_misled() {
                    bail!(
                        "MGLRU was turned on ({MGLRU}), so that the kernel's DAMON does not see reads of page cache \
                         that no process maps, and would have it paged out as cold. Start it again: it leaves such \
                         memory alone then"
                    );
                }
                self.count()?;
                self.tell(now);
            }
            let others = [stop.end(), notify.by()];
            let until = others.into_iter().flatten().fold(tell, Nanos::min);
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

    fn count(&mut self) -> Result<()> {
        self.done =
            if self.paused { self.reclaimer.before() } else { self.reclaimer.reclaimed()? };
        Ok(())
    }

    fn tell(&self, now: Nanos) {
        say(format_args!(
            "{:.1} s  reclaim {} of {} tried  CPU of the kdamond {:.1} %",
            now.since(self.begin).as_secs_f64(),
            bytes(self.done.applied_bytes),
            bytes(self.done.tried_bytes),
            self.share() * 100.0,
        ));
    }

    /// Of a CPU.
    fn share(&self) -> f64 {
        let time = sys::monotonic().since(self.begin);
        // The first moments alone say nothing.
        self.reclaimer.cpu().as_secs_f64() / time.as_secs_f64().max(1.0)
    }

    fn done(&mut self, request: &Request) -> Result<Answer<State>> {
        match request {
            Request::Status => {
                self.count()?;
                return Ok(Answer::status(self.state()));
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
            _ => bail!("with --look damon the kernel does it all: restart it with other options"),
        }
        Ok(Answer::done())
    }

    fn so_far(&self) -> Done {
        let time = sys::monotonic().since(self.begin);
        let table = Table::of_kernel(self.done, self.reclaimer.cpu(), time, self.dry);
        Done { table, total: Memory::now(self.reclaimer.spared()) }
    }

    fn state(&self) -> State {
        let time = sys::monotonic().since(self.begin);
        State {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            since: humantime::format_rfc3339_seconds(SystemTime::now() - time).to_string(),
            paused: self.paused,
            monitor: "damon",
            done: self.so_far(),
            cost: Cost { own_cpu: self.share() },
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn of(options: &[&str]) -> Result<damon::Reclaim, String> {
        let args = ["isotherm", "reclaim", "--look=damon"].iter().chain(options);
        match Cli::try_parse_from(args).unwrap().command {
            Command::Reclaim(o) => asked(&o).map_err(|e| e.to_string()),
            _ => unreachable!(),
        }
    }

    #[test]
    fn what_is_left_alone_is_said_with_the_reason() {
        assert_eq!(leaves_alone(Spared::Nothing), None);
        for (spared, said) in
            [(Spared::Unmapped, "no process maps is"), (Spared::Files, "only anonymous")]
        {
            let why = leaves_alone(spared).unwrap();
            assert!(why.contains(said) && why.contains("/sys/kernel/mm/lru_gen/enabled"), "{why}");
        }
    }

    #[test]
    fn what_the_kernel_takes() {
        let asked = of(&["--all", "--goal", "psi=0.1%", "--quota", "20ms/2s"]).unwrap();
        assert_eq!(asked.min_age, Duration::from_secs(120));
        assert_eq!((asked.time, asked.bytes), (Some(Duration::from_millis(20)), Some(128 << 20)));
        assert_eq!(asked.stalled, Some(Duration::from_millis(2)), "in each window");
        assert_eq!(asked.watermarks, Some(([5000, 4000, 2000], MARKS_EVERY)));
        let asked = of(&["--all", "--watermarks-interval=2s", "--skip-anon"]).unwrap();
        assert_eq!(asked.watermarks.unwrap().1, Duration::from_secs(2));
        assert!(asked.skip_anon);
    }

    #[test]
    fn what_it_does_not_take_is_told() {
        for (options, said) in [
            (&["--pid=1"][..], "look by bpf"),
            (&["--comm=x"], "give --all"),
            (&["--all", "--log=x"], "--log"),
            (&["--all", "--except-comm=x"], "leave out --except-comm"),
            (&["--all", "--goal=refault=1%"], "psi=SHARE"),
            (&["--all", "--budget=1%"], "--budget"),
            (&["--all", "--quota=0ms/1s"], "quota of 0"),
            (&["--all", "--quota=none", "--quota-size=0", "--dry-run"], "quota of 0"),
            (&["--all", "--quota=0ms/0s"], "10 ms to 24 hours"),
            (&["--all", "--quota=2s/1s"], "no more time than that"),
            (&["--all", "--quota-size=100"], "the action takes 4096 at least"),
            (&["--all", "--watermarks=20%,40%,50%"], "falling order"),
            (&["--all", "--goal=psi=0%"], "no goal"),
        ] {
            let why = of(options).unwrap_err();
            assert!(why.contains(said), "{options:?}: {why}");
        }
    }
}
