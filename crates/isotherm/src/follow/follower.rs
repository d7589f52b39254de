//! The watched processes, their children, and processes that are watched as members of a group or by name.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::{Attribution, Nanos, TargetId};
use isotherm_linux::proc::{Births, cut_comm};
use isotherm_linux::{AttachError, Hold, proc, sys};
use isotherm_record::{TargetInfo, cut};
use rustix::process::{Resource, Rlimit, setrlimit};
use tracing::{debug, warn};

use super::error::FollowError;
use super::exclusions::{Exclusions, start_of};
use super::members::Members;
use super::selection::Selection;
use super::started::StartedCommand;
use crate::ROOT;
use crate::pace::{Pace, PaceLimits, START_SLACK, WorkStart};
use crate::watch::StaticTargets;

/// How often to look for new members.
const ASKING: PaceLimits = PaceLimits {
    cpu_divisor: 1000,
    min_pause: Duration::from_millis(200),
    max_pause: Duration::from_secs(5),
};
/// Interval between two searches for children, even without a sign that a process has forked.
const CHILDREN_EVERY: Duration = Duration::from_secs(5);
/// A command that cannot be watched may just have ended. isotherm waits this long for its end.
const ENDS_WITHIN: Duration = Duration::from_millis(100);
/// For this time after a process is attached, its name is read repeatedly,
const YOUNG: Duration = Duration::from_secs(3);
/// at this pace.
const NAMING: PaceLimits = PaceLimits {
    cpu_divisor: 1000,
    min_pause: Duration::from_millis(100),
    max_pause: Duration::from_secs(1),
};
/// Minimum time between two messages about transient failures.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The followed processes by pid. Processes that have ended are removed.
#[derive(Default)]
pub struct Follower {
    processes: BTreeMap<i32, FollowedProcess>,
    /// targets that are not processes, such as physical memory; their facts are sorted by number
    lasting: Option<StaticTargets>,
    /// number of those that were forgotten
    nr_forgotten: usize,
    members: Members,
    /// processes that are never watched
    excluded: Exclusions,
    /// excluded processes whose children may be watched, with their start times
    passed: BTreeMap<i32, u64>,
    /// whether the children of members are watched too
    with_children: bool,
    /// members that cannot be watched
    refused: BTreeSet<i32>,
    news: Vec<TargetInfo>,
    count: usize,
    /// processes that a request has removed, with their start times; members and children too
    unwanted: BTreeMap<i32, u64>,
    /// targets of removed processes that were watched, still to be reported as ended
    dropped: Vec<TargetId>,
    pace: Pace,
    /// signs that processes have forked
    births: Births,
    /// when to search for children even without a sign
    next_children: Nanos,
    /// pace of reading the names of young processes
    naming: Pace,
    /// until this time at least one process is young
    young_until: Nanos,
    /// readings that failed for a transient reason; `said` is how many of them have been printed
    postponed: u64,
    said: u64,
    /// earliest time of the next message about them
    next_said: Nanos,
    /// A message has reported that some processes cannot be watched for a transient reason.
    short: bool,
}

struct FollowedProcess {
    target: TargetId,
    /// name as in `/proc/PID/comm`; `command` is its command line
    comm: String,
    command: String,
    /// whether its command line was read: during `exec` it is empty
    has_command: bool,
    /// until this time the process is young: it may still `exec` the program that it was started for
    young_until: Nanos,
    with_children: bool,
    /// It is watched only while it is a member.
    as_member: bool,
}

impl FollowedProcess {
    /// Stores the name and command line that the kernel shows now, and returns whether the name to print has
    /// changed. An empty command line counts only if it is still empty at the next reading; then the program's
    /// name replaces it.
    fn rename(&mut self, comm: String, command: String) -> bool {
        let read = !command.is_empty();
        if !read && std::mem::take(&mut self.has_command) {
            return false;
        }
        self.has_command = read;
        self.comm = comm;
        let command = if read { command } else { self.comm.clone() };
        let changes = command != self.command;
        self.command = command;
        changes
    }
}

impl Follower {
    /// A follower without processes. `lasting` is watched in addition to attached processes.
    pub fn new(lasting: Option<StaticTargets>) -> Self {
        let news = lasting.as_ref().map(|l| l.facts.clone()).unwrap_or_default();
        Follower { lasting, news, births: Births::new(ROOT.as_ref()), ..Follower::default() }
    }

    /// Adds lasting targets that have appeared, or changed their names.
    pub fn add_lasting(&mut self, facts: &[TargetInfo]) {
        let Some(lasting) = &mut self.lasting else { return };
        for fact in facts {
            match lasting.facts.binary_search_by_key(&fact.id, |known| known.id) {
                Ok(at) => lasting.facts[at].clone_from(fact),
                Err(at) => lasting.facts.insert(at, fact.clone()),
            }
        }
    }

    /// Forgets lasting targets.
    pub fn forget_lasting(&mut self, gone: &[TargetId]) {
        let Some(lasting) = self.lasting.as_mut().filter(|_| !gone.is_empty()) else { return };
        let (gone, before) = (BTreeSet::from_iter(gone), lasting.facts.len());
        lasting.facts.retain(|fact| !gone.contains(&fact.id));
        self.nr_forgotten += before - lasting.facts.len();
    }

    /// Attaches a process. A pid that is given twice is attached once.
    fn attach(
        &mut self,
        held: &mut dyn Hold,
        pid: i32,
        with_children: bool,
    ) -> Result<(), AttachError> {
        if self.processes.contains_key(&pid) {
            return Ok(());
        }
        let target = held.attach(pid)?;
        debug!("process {pid} is target {}", target.0);
        // The name is read first: if the process calls exec between the two readings, a later reading shows the
        // change.
        let comm = proc::comm(ROOT.as_ref(), pid).unwrap_or_default();
        let command = proc::command(ROOT.as_ref(), pid).unwrap_or_default();
        let young_until = sys::monotonic() + YOUNG;
        self.young_until = young_until;
        let mut followed = FollowedProcess {
            target,
            comm: String::new(),
            command: String::new(),
            has_command: false,
            young_until,
            with_children,
            as_member: false,
        };
        let _ = followed.rename(comm, command);
        self.news.push(fact(target, pid, followed.command.clone()));
        self.processes.insert(pid, followed);
        if with_children {
            // The new process may already have children.
            self.next_children = Nanos(0);
        }
        self.count += 1;
        Ok(())
    }

    /// Attaches every process that the options select, except for the command.
    pub fn attach_all(&mut self, held: &mut dyn Hold, o: &Selection) -> Result<(), FollowError> {
        // A command would inherit the raised limit.
        if (o.may_grow() || o.children) && o.command.is_empty() {
            allow_more_files();
        }
        self.excluded = Exclusions::find(o)?;
        for &pid in &o.pids {
            self.check_excluded(pid)?;
            self.attach(held, pid, o.children)?;
        }
        self.join(held, Members::find(o)?, o.children)
    }

    /// Fails if a process that is selected by pid is excluded too.
    fn check_excluded(&self, pid: i32) -> Result<(), FollowError> {
        match self.excluded.by(pid) {
            Some(option) => Err(FollowError::Excluded { pid, option }),
            None => Ok(()),
        }
    }

    /// Starts the command, if there is one, and attaches it unless it has already ended.
    pub fn start(
        &mut self,
        held: &mut dyn Hold,
        program: Option<PathBuf>,
        command: &[String],
        environment: &[(&str, OsString)],
    ) -> Result<Option<StartedCommand>, FollowError> {
        let Some(program) = program else { return Ok(None) };
        let mut child = StartedCommand::spawn(&program, command, environment)?;
        // The command may have children.
        allow_more_files();
        match self.attach(held, child.pid(), true) {
            Ok(()) => self.name_started(child.pid(), &program, command),
            Err(e) if !child.has_ended_in(ENDS_WITHIN)? => {
                return Err(FollowError::Command(e));
            }
            Err(_) => {}
        }
        Ok(Some(child))
    }

    /// Names a process that was just started by `command`, because the kernel may not show its command line
    /// yet. If it is already another program, the kernel's name is used.
    fn name_started(&mut self, pid: i32, program: &Path, command: &[String]) {
        let name = program.file_name().map(|name| cut_comm(&name.to_string_lossy()));
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if name.is_some_and(|name| name == process.comm) {
            process.command = cut(&command.join(" "), TargetInfo::MAX_COMMAND).to_owned();
            process.has_command = true;
            if let Some(newest) = self.news.last_mut() {
                newest.command.clone_from(&process.command);
            }
        }
    }

    /// Returns the new names of processes that called `exec` or changed their names. Names of young processes
    /// are read here, because a shell or `env` soon becomes the program that it was told to run. Names of the
    /// other processes come from `read`.
    pub fn renamed(&mut self, read: &[Attribution]) -> Vec<TargetInfo> {
        let due = self.naming.due();
        let asks = due < self.young_until && sys::monotonic() >= due;
        if read.is_empty() && !asks {
            return Vec::new();
        }
        let begun = WorkStart::now();
        let names: BTreeMap<TargetId, &str> = read.iter().map(|a| (a.target, &*a.comm)).collect();
        let mut renamed = Vec::new();
        for (&pid, process) in &mut self.processes {
            let comm = match names.get(&process.target) {
                Some(&comm) => Some(comm.to_owned()),
                None if asks && due < process.young_until => proc::comm(ROOT.as_ref(), pid).ok(),
                None => None,
            };
            let is_asked = |comm: &String| !process.has_command || *comm != process.comm;
            let Some(comm) = comm.filter(is_asked) else { continue };
            let Ok(command) = proc::command(ROOT.as_ref(), pid) else { continue };
            if process.rename(comm, command) {
                renamed.push(fact(process.target, pid, process.command.clone()));
            }
        }
        if asks {
            self.naming.pause(&begun, &NAMING);
        }
        renamed
    }

    /// Watches the members `who`, each as long as it is a member, and with `with_children` their children,
    /// which stay watched after leaving the group. It is no error if there are no members yet. It is an error
    /// if there are members but none of them can be watched.
    fn join(
        &mut self,
        held: &mut dyn Hold,
        who: Members,
        with_children: bool,
    ) -> Result<(), FollowError> {
        self.with_children = with_children;
        let members = self.without_excluded(who.now(|_| false)?);
        self.members = who;
        match self.follow_members(held, &members) {
            Some(e) if self.processes.is_empty() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Attaches new members. Returns the first reason why a member cannot be watched.
    fn follow_members(
        &mut self,
        held: &mut dyn Hold,
        members: &BTreeSet<i32>,
    ) -> Option<AttachError> {
        self.refused.retain(|pid| members.contains(pid));
        let mut why = None;
        for &pid in members {
            let known = self.processes.contains_key(&pid) || self.refused.contains(&pid);
            if known || self.unwanted.contains_key(&pid) {
                continue;
            }
            match self.attach(held, pid, self.with_children) {
                Ok(()) => {
                    self.processes.entry(pid).and_modify(|p| p.as_member = true);
                }
                Err(e) => {
                    // A member that cannot be watched for a transient reason is tried again.
                    if !e.is_transient() {
                        self.refused.insert(pid);
                    }
                    why.get_or_insert(e);
                }
            }
        }
        why
    }

    /// Prints how many readings of processes failed since the last message, and why; at most once a minute.
    fn say_postponed(&mut self, held: &dyn Hold) {
        let postponed = held.postponed();
        self.postponed = postponed.count;
        let (new, now) = (self.postponed.saturating_sub(self.said), sys::monotonic());
        if new > 0 && now >= self.next_said {
            (self.said, self.next_said) = (self.postponed, now + SAID_EVERY);
            let readings = if new == 1 { "1 reading" } else { &format!("{new} readings") };
            warn!(
                "{readings} of processes failed and will be tried again; the last one: {}",
                postponed.why
            );
        }
    }

    /// Number of readings of processes that have failed for a transient reason so far.
    pub fn postponed(&self) -> u64 {
        self.postponed
    }

    /// Forgets processes that have ended and members that have left. If it is time to look, attaches new
    /// members and children, and skips those that cannot be watched or have already ended. Returns the targets
    /// that have ended, for the caller to detach.
    pub fn follow(&mut self, held: &mut dyn Hold) -> Vec<TargetId> {
        let asks = self.is_due(sys::monotonic());
        let begun = WorkStart::now();
        let mut ended = std::mem::take(&mut self.dropped);
        if asks {
            self.unwanted.retain(|&pid, &mut start| start_of(pid) == Some(start));
            self.spare(held);
        }
        self.say_postponed(held);
        let Follower { members, processes, .. } = self;
        let members = if asks && !members.is_empty() {
            members.now_or_since(|pid| processes.contains_key(&pid))
        } else {
            None
        };
        let members = members.map(|members| self.without_excluded(members));
        let is_in = |pid: &i32| members.as_ref().is_none_or(|members| members.contains(pid));
        let over = held.ended();
        // Usually no process has ended, and there may be thousands of processes.
        if members.is_some() || !over.is_empty() {
            self.processes.retain(|pid, p| {
                let is_over = over.binary_search(&p.target).is_ok();
                let stays = !is_over && (!p.as_member || is_in(pid));
                if !stays {
                    ended.push(p.target);
                }
                stays
            });
        }
        if let Some(members) = members {
            let before = self.refused.len();
            let why = self.follow_members(held, &members);
            let was_short = std::mem::replace(
                &mut self.short,
                why.as_ref().is_some_and(AttachError::is_transient),
            );
            let is_new = |e: &AttachError| if e.is_transient() { !was_short } else { before == 0 };
            if let Some(e) = why.filter(|e| is_new(e) && !e.is_gone()) {
                warn!("skipping some of the processes: {e}");
            }
        }
        if asks {
            self.follow_children(held, begun.at);
            self.pace.pause(&begun, &ASKING);
        }
        ended.append(&mut self.dropped);
        ended
    }

    /// Attaches new children. Does nothing if no watched process can have any.
    fn follow_children(&mut self, held: &mut dyn Hold, now: Nanos) {
        let mut parents: Vec<i32> =
            self.processes.iter().filter(|(_, p)| p.with_children).map(|(&pid, _)| pid).collect();
        parents.extend(self.passed.keys());
        if parents.is_empty() || !self.births.may_have_been() && now < self.next_children {
            return;
        }
        self.next_children = now + CHILDREN_EVERY;
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        while let Some(parent) = parents.pop() {
            let children = proc::children(ROOT.as_ref(), parent);
            // isotherm may be a child of a watched process, but it does not watch itself.
            for child in children.into_iter().filter(|&child| child != own) {
                let known =
                    self.processes.contains_key(&child) || self.unwanted.contains_key(&child);
                if known {
                    continue;
                }
                // An excluded process may have children that are not excluded.
                let is_excluded = self.excluded.by(child).is_some();
                if is_excluded || self.attach(held, child, true).is_ok() {
                    parents.push(child);
                }
            }
        }
    }

    /// Whether it is time to look for new processes.
    pub fn is_due(&self, now: Nanos) -> bool {
        now >= self.pace.due() && self.may_come()
    }

    /// The latest time for the next look; `None` if no process can join, leave or change its name.
    pub fn by(&self) -> Option<Nanos> {
        let naming = Some(self.naming.due()).filter(|&due| due < self.young_until);
        let coming = self.may_come().then(|| self.pace.due());
        naming.into_iter().chain(coming).min().map(|due| due + START_SLACK)
    }

    fn may_come(&self) -> bool {
        !self.members.is_empty()
            || !self.unwanted.is_empty()
            || !self.excluded.is_empty()
            || self.processes.values().any(|p| p.with_children)
    }

    /// The `members` that are not excluded. If children of members are watched, children of excluded members
    /// are too.
    fn without_excluded(&mut self, members: BTreeSet<i32>) -> BTreeSet<i32> {
        if self.excluded.is_empty() {
            return members;
        }
        let (excluded, members): (BTreeSet<i32>, BTreeSet<i32>) =
            members.into_iter().partition(|&pid| self.excluded.by(pid).is_some());
        if self.with_children {
            let before = self.passed.len();
            self.passed.extend(excluded.into_iter().filter_map(|pid| Some((pid, start_of(pid)?))));
            if self.passed.len() > before {
                // The excluded member may already have children.
                self.next_children = Nanos(0);
            }
        }
        members
    }

    /// Stops watching processes that are excluded by now, and attaches processes again that are no longer
    /// excluded. Whether their children are watched does not change.
    fn spare(&mut self, held: &mut dyn Hold) {
        if self.excluded.is_empty() {
            return;
        }
        self.passed.retain(|&pid, &mut start| start_of(pid) == Some(start));
        let all = self.processes.keys().chain(self.passed.keys()).copied();
        let Some(now) = self.excluded.among_if_due(all) else { return };
        let back: Vec<i32> =
            self.passed.keys().filter(|pid| now.binary_search(pid).is_err()).copied().collect();
        for pid in back {
            self.passed.remove(&pid);
            // A process that ends meanwhile is no error.
            let _ = self.attach(held, pid, true);
        }
        for &pid in &now {
            let with_children = self.processes.get(&pid).is_some_and(|p| p.with_children);
            self.passed.extend(start_of(pid).filter(|_| with_children).map(|start| (pid, start)));
        }
        self.forget(&now);
    }

    /// Watches the processes `add` and stops watching the processes `remove`, for the lifetime of each. If one
    /// of them is refused, changes nothing.
    pub fn set_targets(
        &mut self,
        held: &mut dyn Hold,
        add: &[i32],
        remove: &[i32],
    ) -> Result<(), FollowError> {
        self.check_removal(remove)?;
        self.add(held, add)?;
        self.remove(remove);
        Ok(())
    }

    /// What is watched if it is no processes.
    pub fn lasting(&self) -> Option<&'static str> {
        self.lasting.as_ref().map(|lasting| lasting.kind)
    }

    /// Watches all of `pids`, or none of them if one cannot be watched.
    fn add(&mut self, held: &mut dyn Hold, pids: &[i32]) -> Result<(), FollowError> {
        // The command has already been started, so it cannot inherit the raised limit.
        allow_more_files();
        let mut added = Vec::new();
        for &pid in pids {
            if self.processes.contains_key(&pid) {
                continue;
            }
            if u32::try_from(pid) == Ok(std::process::id()) {
                self.undo(held, &added);
                return Err(FollowError::Itself(pid));
            }
            let attached = self.check_excluded(pid);
            if let Err(e) = attached.and_then(|()| Ok(self.attach(held, pid, false)?)) {
                self.undo(held, &added);
                return Err(e);
            }
            added.push(pid);
        }
        self.unwanted.retain(|pid, _| !pids.contains(pid));
        Ok(())
    }

    /// Releases processes that were just added, and that nobody else knows yet.
    fn undo(&mut self, held: &mut dyn Hold, added: &[i32]) {
        let before = self.dropped.len();
        self.forget(added);
        self.dropped.drain(before..).for_each(|target| held.detach(target));
        self.count -= added.len();
    }

    /// Fails unless all of `pids` are watched.
    fn check_removal(&self, pids: &[i32]) -> Result<(), FollowError> {
        match pids.iter().find(|pid| !self.processes.contains_key(pid)) {
            Some(&pid) => Err(FollowError::NotWatched(pid)),
            None => Ok(()),
        }
    }

    /// Stops watching `pids`, for the lifetime of each.
    fn remove(&mut self, pids: &[i32]) {
        self.unwanted.extend(pids.iter().filter_map(|&pid| Some((pid, start_of(pid)?))));
        self.forget(pids);
    }

    fn forget(&mut self, pids: &[i32]) {
        let gone: Vec<TargetId> =
            pids.iter().filter_map(|pid| Some(self.processes.remove(pid)?.target)).collect();
        self.news.retain(|fact| !gone.contains(&fact.id));
        self.dropped.extend(gone);
    }

    /// Targets that were attached since the last call.
    pub fn news(&mut self) -> Vec<TargetInfo> {
        std::mem::take(&mut self.news)
    }

    /// The facts of the targets that are watched now.
    pub fn facts(&self) -> impl Iterator<Item = TargetInfo> {
        let lasting = self.lasting.iter().flat_map(|l| l.facts.iter().cloned());
        lasting.chain(self.processes.iter().map(|(&pid, p)| fact(p.target, pid, p.command.clone())))
    }

    /// The targets that are watched now.
    pub fn targets(&self) -> Vec<TargetId> {
        let lasting = self.lasting.iter().flat_map(|l| l.facts.iter().map(|fact| fact.id));
        lasting.chain(self.processes.values().map(|p| p.target)).collect()
    }

    /// The pids of the processes that are watched now.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.processes.keys().copied()
    }

    /// The pid and the target of each process that is watched now.
    pub fn processes(&self) -> impl Iterator<Item = (i32, TargetId)> {
        self.processes.iter().map(|(&pid, p)| (pid, p.target))
    }

    /// The number of processes that are watched now.
    pub fn nr_processes(&self) -> usize {
        self.processes.len()
    }

    /// The pid of each target that is a process and is watched now.
    pub fn pid_of(&self) -> BTreeMap<TargetId, i32> {
        self.processes().map(|(pid, target)| (target, pid)).collect()
    }

    /// Whether any target is still alive.
    pub fn any_alive(&self, held: &dyn Hold) -> bool {
        self.lasting.is_some()
            || !self.passed.is_empty()
            || self.processes.values().any(|p| held.is_alive(p.target))
            || self.may_grow()
    }

    /// Whether new processes may join after all current ones have ended.
    pub fn may_grow(&self) -> bool {
        self.members.may_come()
    }

    /// Describes what has been watched in total, for people.
    pub fn summary(&self) -> String {
        let forgotten = self.nr_forgotten;
        let lasting = self.lasting.as_ref().map(|StaticTargets { kind, facts }| match &facts[..] {
            [one] if forgotten == 0 => one.command.clone(),
            all => format!("{} {kind}", all.len() + forgotten),
        });
        match (lasting, self.count) {
            (Some(lasting), 0) => lasting,
            (Some(lasting), 1) => format!("1 process and {lasting}"),
            (Some(lasting), n) => format!("{n} processes and {lasting}"),
            (None, 1) => "1 process".to_owned(),
            (None, n) => format!("{n} processes"),
        }
    }
}

fn fact(id: TargetId, pid: i32, command: String) -> TargetInfo {
    TargetInfo { id, pid: u32::try_from(pid).ok(), command }
}

/// Raises the limit on open files. Each process requires three descriptors, and the usual limit may be too low.
/// If the limit cannot be raised, processes beyond it are skipped.
fn allow_more_files() {
    if let Some(limit) = sys::descriptor_limit() {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn followed() -> FollowedProcess {
        let (comm, command) = (String::new(), String::new());
        let (has_command, with_children, as_member) = (false, false, false);
        let (target, young_until) = (TargetId(0), Nanos(0));
        FollowedProcess {
            target,
            comm,
            command,
            has_command,
            young_until,
            with_children,
            as_member,
        }
    }

    /// The names that the kernel shows at each reading, and the printed name.
    fn names(read: &[(&str, &str)]) -> Vec<String> {
        let mut of = followed();
        let name = |(comm, command): &(&str, &str)| {
            of.rename((*comm).into(), (*command).into()).then(|| of.command.clone())
        };
        read.iter().filter_map(name).collect()
    }

    #[test]
    fn the_middle_of_an_exec_gives_no_name() {
        let exec = [("sh", "sh -c x"), ("tail", ""), ("tail", "tail -f y"), ("tail", "tail -f y")];
        assert_eq!(names(&exec), ["sh -c x", "tail -f y"]);
        // Met in the middle of it, it has the name of the program until there is more.
        assert_eq!(names(&exec[1..]), ["tail", "tail -f y"]);
        // For a moment the process has the name of a thread that is not its first one.
        let of_thread = [("app", "app -n 1"), ("worker", ""), ("app", "app -n 1")];
        assert_eq!(names(&of_thread), ["app -n 1"]);
    }

    /// Found by a review: its descriptors stayed until the next request that was carried out.
    #[test]
    fn a_refused_request_holds_no_process() {
        let mut held = isotherm_linux::HeldProcesses::default();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut follower = Follower::default();
        assert!(follower.set_targets(&mut held, &[pid, i32::MAX], &[]).is_err());
        // The first target has number 0.
        assert_eq!((held.pid(TargetId(0)), follower.nr_processes()), (None, 0));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Found by a review: the command line that isotherm was given has up to 2 MiB.
    #[test]
    fn a_long_command_is_cut() {
        let mut follower = Follower::default();
        let _ = follower.processes.insert(7, FollowedProcess { comm: "sh".into(), ..followed() });
        let command = ["sh".to_owned(), "é".repeat(1 << 20)];
        follower.name_started(7, "/bin/sh".as_ref(), &command);
        // A character of two bytes does not fit in the last one.
        assert_eq!(follower.processes[&7].command.len(), TargetInfo::MAX_COMMAND - 1);
    }

    /// Found by a review: a service that watches a directory kept each file that had ever been in it.
    #[test]
    fn forgotten_files_are_counted_and_not_kept() {
        let file = |id| TargetInfo { id: TargetId(id), pid: None, command: format!("/f{id}") };
        let facts = vec![file(1)];
        let mut follower = Follower::new(Some(StaticTargets { kind: "files", facts }));
        assert_eq!(follower.summary(), "/f1");
        follower.add_lasting(&[file(4), file(3), file(1)]);
        assert_eq!(follower.targets(), [1, 3, 4].map(TargetId));
        follower.forget_lasting(&[TargetId(4), TargetId(1)]);
        assert_eq!((follower.targets(), follower.summary()), (vec![TargetId(3)], "3 files".into()));
    }

    #[test]
    fn a_new_process_is_read_at_once() {
        let mut follower = Follower::default();
        let nobody = crate::session::Attributions::default();
        assert_eq!(nobody.by(&follower), None);
        let _ = follower.processes.insert(7, followed());
        assert_eq!(nobody.by(&follower), Some(Nanos(0)));
    }

    #[test]
    fn a_process_without_command_line_has_the_name_of_its_program() {
        assert_eq!(
            names(&[("sh", "sh -c x"), ("odd", ""), ("odd", ""), ("odd", "")]),
            ["sh -c x", "odd"]
        );
    }
}
