//! The processes that are watched, their children, and those that are watched by what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use isotherm_core::TargetId;
use isotherm_linux::{AttachError, Hold, proc};
use isotherm_record::TargetFact;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::WAKE;
use super::members::Members;
use crate::cli::Targets;
use crate::commands::child::Started;
use crate::words::say;

/// Processes by pid; those that ended are forgotten.
#[derive(Default)]
pub struct Follower {
    processes: BTreeMap<i32, Followed>,
    /// what is no process, and never ends
    lasting: Option<TargetId>,
    members: Members,
    /// of those
    with_children: bool,
    /// of those, who cannot be watched
    refused: BTreeSet<i32>,
    news: Vec<TargetFact>,
    count: usize,
    /// who is no longer wanted, whatever they are, and when they were started
    unwanted: BTreeMap<i32, u64>,
    /// of those, who was watched, to be told as ended
    dropped: Vec<TargetId>,
}

struct Followed {
    target: TargetId,
    with_children: bool,
    /// It is watched as long as it is one of those.
    as_member: bool,
}

impl Follower {
    /// Watches this, if anything, besides the processes that are attached.
    pub fn new(lasting: Option<TargetFact>) -> Self {
        let id = lasting.as_ref().map(|fact| fact.id);
        Follower { lasting: id, news: lasting.into_iter().collect(), ..Follower::default() }
    }

    /// Takes hold of a process; a pid given twice is one process.
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
        self.processes.insert(pid, Followed { target, with_children, as_member: false });
        self.count += 1;
        let command = proc::command("/".as_ref(), pid).unwrap_or_default();
        self.news.push(TargetFact { id: target, pid: u32::try_from(pid).ok(), command });
        Ok(())
    }

    /// Takes hold of all that is asked for, but for the command.
    pub fn attach_all(&mut self, held: &mut dyn Hold, o: &Targets) -> Result<()> {
        // A command would inherit it.
        if (o.may_grow() || o.children) && o.command.is_empty() {
            allow_more_files();
        }
        for &pid in &o.pid {
            self.attach(held, pid, o.children)?;
        }
        self.join(held, Members::find(o)?, o.children)
    }

    /// Starts a command, if there is one, and takes hold of it, unless it has ended by then.
    pub fn start(
        &mut self,
        held: &mut dyn Hold,
        program: Option<PathBuf>,
        command: &[String],
    ) -> Result<Option<Started>> {
        let Some(program) = program else { return Ok(None) };
        let mut child = Started::spawn(&program, command)?;
        // It may have children.
        allow_more_files();
        match self.attach(held, child.pid(), true) {
            Ok(()) => self.name_newest(command.join(" ")),
            Err(e) if !child.has_ended_in(WAKE)? => {
                return Err(e).context("the command cannot be watched");
            }
            Err(_) => {}
        }
        Ok(Some(child))
    }

    /// What has just been started need not show its command line yet.
    fn name_newest(&mut self, command: String) {
        if let Some(newest) = self.news.last_mut() {
            newest.command = command;
        }
    }

    /// Watches who is one of these, as long as they are; with their children, wherever those go.
    /// There need be nobody yet, but if none who is can be watched, that is an error.
    fn join(&mut self, held: &mut dyn Hold, who: Members, with_children: bool) -> Result<()> {
        let members = who.now(|_| false)?;
        self.members = who;
        self.with_children = with_children;
        match self.follow_members(held, &members) {
            Some(e) if self.processes.is_empty() => Err(e.into()),
            _ => Ok(()),
        }
    }

    /// Takes hold of members that have come; returns why one of them cannot be watched.
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
                    self.refused.insert(pid);
                    why.get_or_insert(e);
                }
            }
        }
        why
    }

    /// Forgets who has ended, and takes hold of children that have come. One that cannot be
    /// watched, or has ended already, is passed over. The same for members, where leaving is an end
    /// too. Returns who has ended: to be detached.
    pub fn follow(&mut self, held: &mut dyn Hold) -> Vec<TargetId> {
        let mut ended = std::mem::take(&mut self.dropped);
        self.unwanted.retain(|&pid, &mut start| start_of(pid) == Some(start));
        let Follower { members, processes, .. } = self;
        let members = members.now_if_due(|pid| processes.contains_key(&pid));
        let is_in = |pid: &i32| members.as_ref().is_none_or(|members| members.contains(pid));
        let over = held.ended();
        // Mostly nobody has, and there may be thousands.
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
            if let Some(e) = why.filter(|e| before == 0 && !e.is_gone()) {
                say(format_args!("isotherm: passing over some of the processes: {e}"));
            }
        }
        let mut parents: Vec<i32> =
            self.processes.iter().filter(|(_, p)| p.with_children).map(|(&pid, _)| pid).collect();
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        while let Some(parent) = parents.pop() {
            let children = proc::children("/".as_ref(), parent);
            // Who started isotherm may be watched; isotherm does not watch itself.
            for child in children.into_iter().filter(|&child| child != own) {
                let known =
                    self.processes.contains_key(&child) || self.unwanted.contains_key(&child);
                if !known && self.attach(held, child, true).is_ok() {
                    parents.push(child);
                }
            }
        }
        ended
    }

    /// Watches these too: all of them, or, if one cannot be, none.
    pub fn add(&mut self, held: &mut dyn Hold, pids: &[i32]) -> Result<()> {
        // A command has been started by now.
        allow_more_files();
        let mut added = Vec::new();
        for &pid in pids {
            if self.processes.contains_key(&pid) {
                continue;
            }
            if u32::try_from(pid) == Ok(std::process::id()) {
                self.undo(&added);
                bail!("{pid} is isotherm itself, which does not watch itself");
            }
            if let Err(e) = self.attach(held, pid, false) {
                self.undo(&added);
                return Err(e.into());
            }
            added.push(pid);
        }
        self.unwanted.retain(|pid, _| !pids.contains(pid));
        Ok(())
    }

    fn undo(&mut self, added: &[i32]) {
        self.forget(added);
        self.count -= added.len();
    }

    /// Whether all of these are watched, so that they can be left alone.
    pub fn check_removal(&self, pids: &[i32]) -> Result<()> {
        match pids.iter().find(|pid| !self.processes.contains_key(pid)) {
            Some(pid) => bail!("process {pid} is not watched"),
            None => Ok(()),
        }
    }

    /// No longer watches these, as long as they live.
    pub fn remove(&mut self, pids: &[i32]) {
        self.unwanted.extend(pids.iter().filter_map(|&pid| Some((pid, start_of(pid)?))));
        self.forget(pids);
    }

    fn forget(&mut self, pids: &[i32]) {
        let gone: Vec<TargetId> =
            pids.iter().filter_map(|pid| Some(self.processes.remove(pid)?.target)).collect();
        self.news.retain(|fact| !gone.contains(&fact.id));
        self.dropped.extend(gone);
    }

    /// Who has come since the last call.
    pub fn news(&mut self) -> Vec<TargetFact> {
        std::mem::take(&mut self.news)
    }

    /// Who is watched now.
    pub fn targets(&self) -> Vec<TargetId> {
        self.lasting.into_iter().chain(self.processes.values().map(|p| p.target)).collect()
    }

    /// Of the processes that are watched now.
    pub fn pids(&self) -> impl Iterator<Item = i32> {
        self.processes.keys().copied()
    }

    /// The processes that are watched now, and which target each is.
    pub fn processes(&self) -> impl Iterator<Item = (i32, TargetId)> {
        self.processes.iter().map(|(&pid, p)| (pid, p.target))
    }

    /// How many those are.
    pub fn nr_processes(&self) -> usize {
        self.processes.len()
    }

    /// The pid of each process that is watched now.
    pub fn pid_of(&self) -> BTreeMap<TargetId, i32> {
        self.processes().map(|(pid, target)| (target, pid)).collect()
    }

    /// Whether anybody is left.
    pub fn any_alive(&self, held: &dyn Hold) -> bool {
        self.may_grow()
            || self.lasting.is_some()
            || self.processes.values().any(|p| held.is_alive(p.target))
    }

    /// Whether others may come when all have ended.
    pub fn may_grow(&self) -> bool {
        self.members.may_come()
    }

    /// Who has been watched in all, in words.
    pub fn summary(&self) -> String {
        match (self.lasting, self.count) {
            (Some(_), _) => "physical memory".to_owned(),
            (None, 1) => "1 process".to_owned(),
            (None, n) => format!("{n} processes"),
        }
    }
}

/// In ticks since boot.
fn start_of(pid: i32) -> Option<u64> {
    Some(proc::stat("/".as_ref(), pid).ok()?.start_ticks)
}

/// Each process takes three descriptors, and there may be more processes than a third of what is usual.
/// Where it is refused, those that do not fit are passed over.
fn allow_more_files() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
