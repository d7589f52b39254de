//! The processes that are watched, and their children.

use std::collections::BTreeMap;

use anyhow::Result;
use isotherm_core::TargetId;
use isotherm_linux::{AttachError, Hold, proc};
use isotherm_record::TargetFact;

/// Processes by pid; those that ended are forgotten.
#[derive(Default)]
pub struct Follower {
    processes: BTreeMap<i32, Followed>,
    /// what is no process, and never ends
    lasting: Option<TargetId>,
    news: Vec<TargetFact>,
    count: usize,
}

struct Followed {
    target: TargetId,
    with_children: bool,
}

impl Follower {
    /// Watches this, if anything, besides the processes that are attached.
    pub fn new(lasting: Option<TargetFact>) -> Self {
        let id = lasting.as_ref().map(|fact| fact.id);
        Follower { lasting: id, news: lasting.into_iter().collect(), ..Follower::default() }
    }

    /// Takes hold of a process; a pid given twice is one process.
    pub fn attach(
        &mut self,
        held: &mut dyn Hold,
        pid: i32,
        with_children: bool,
    ) -> Result<(), AttachError> {
        if self.processes.contains_key(&pid) {
            return Ok(());
        }
        let target = held.attach(pid)?;
        self.processes.insert(pid, Followed { target, with_children });
        self.count += 1;
        let command = proc::command("/".as_ref(), pid).unwrap_or_default();
        self.news.push(TargetFact { id: target, pid: u32::try_from(pid).ok(), command });
        Ok(())
    }

    /// Names who has come last: what has just been started need not show its command line yet.
    pub fn name_newest(&mut self, command: String) {
        if let Some(newest) = self.news.last_mut() {
            newest.command = command;
        }
    }

    /// Forgets who has ended, and takes hold of children that have come. One that cannot be
    /// watched, or has ended already, is passed over. Returns who has ended: to be detached.
    pub fn find_children(&mut self, held: &mut dyn Hold) -> Vec<TargetId> {
        let mut ended = Vec::new();
        self.processes.retain(|_, p| {
            let alive = held.is_alive(p.target);
            if !alive {
                ended.push(p.target);
            }
            alive
        });
        let mut parents: Vec<i32> =
            self.processes.iter().filter(|(_, p)| p.with_children).map(|(&pid, _)| pid).collect();
        while let Some(parent) = parents.pop() {
            for child in proc::children("/".as_ref(), parent) {
                if !self.processes.contains_key(&child) && self.attach(held, child, true).is_ok() {
                    parents.push(child);
                }
            }
        }
        ended
    }

    /// Who has come since the last call.
    pub fn news(&mut self) -> Vec<TargetFact> {
        std::mem::take(&mut self.news)
    }

    /// Who is watched now.
    pub fn targets(&self) -> Vec<TargetId> {
        self.lasting.into_iter().chain(self.processes.values().map(|p| p.target)).collect()
    }

    /// Whether anybody is left.
    pub fn any_alive(&self, held: &dyn Hold) -> bool {
        self.lasting.is_some() || self.processes.values().any(|p| held.is_alive(p.target))
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
