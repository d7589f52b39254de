//! isotherm's kdamond in sysfs: created, started, changed, and removed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::availability::{Availability, availability, running};
use super::claim::{ClaimFile, Thread, is_ours, off};
use super::error::DamonError;
use super::sysfs::{
    self, Available, Command, Context, Element, Intervals, Kdamond, Operations, Stats,
};
use crate::sys::process_cpu;

/// A kdamond that is set up; removed when dropped.
pub(super) struct OwnKdamond {
    root: PathBuf,
    claim: ClaimFile,
}

impl OwnKdamond {
    /// Creates a kdamond, if no other user has one.
    pub fn take(root: &Path) -> Result<Self, DamonError> {
        // Check first: without DAMON, no state may be written.
        refuse(availability(root))?;
        let mut claim = ClaimFile::take(root)?;
        let all = sysfs::kdamonds(root);
        if sysfs::read::<u64>(&all.join(Kdamond::COUNT))? != 0 {
            drop(claim);
            refuse(availability(root))?;
            return Err(DamonError::Busy);
        }
        // A kill between here and the end leaves an empty kdamond.
        claim.mark.making = true;
        claim.save()?;
        sysfs::write(&all.join(Kdamond::COUNT), &1u64)?;
        let mut own_kdamond = OwnKdamond { root: root.to_owned(), claim };
        own_kdamond.claim.mark.directory =
            std::fs::metadata(own_kdamond.dir()).ok().map(|m| m.ino());
        own_kdamond.claim.mark.making = false;
        own_kdamond.claim.save()?;
        Ok(own_kdamond)
    }

    /// Removes the kdamond.
    pub fn leave(&mut self) -> Result<(), DamonError> {
        self.claim.take_away()
    }

    /// `kdamonds/0`.
    pub fn dir(&self) -> PathBuf {
        sysfs::kdamonds(&self.root).join("0")
    }

    fn context(&self) -> PathBuf {
        self.dir().join("contexts/0")
    }

    /// Checks that the kdamond is still the one that isotherm has created. Called before each write.
    pub fn check(&self) -> Result<(), DamonError> {
        is_ours(&self.root, &self.claim.mark).then_some(()).ok_or(DamonError::Stopped)
    }

    /// Notes a trace instance, so that it is removed too.
    pub fn note_instance(&mut self, instance: &Path) -> Result<(), DamonError> {
        self.claim.mark.instance = Some(instance.to_owned());
        self.claim.save()
    }

    /// Writes the context. A running kdamond applies it with a commit.
    pub fn set_up(&self, context: &Context) -> Result<(), DamonError> {
        self.check()?;
        let count = self.dir().join("contexts").join(Context::COUNT);
        if sysfs::read::<u64>(&count)? != 1 {
            sysfs::write(&count, &1u64)?;
        }
        self.has_operations(context.operations)?;
        Ok(sysfs::write(&self.context(), context)?)
    }

    fn has_operations(&self, operations: Operations) -> Result<(), DamonError> {
        let available: Available = sysfs::read(&self.context().join("avail_operations"))?;
        let found = available.0.contains(&operations);
        found.then_some(()).ok_or(DamonError::NoOperations(operations))
    }

    /// Starts the kdamond.
    pub fn start(&mut self) -> Result<(), DamonError> {
        self.check()?;
        // A kill between here and the end leaves a kdamond that is known only by its directory.
        let before = self.claim.mark.kdamond.take();
        if before.is_some() {
            self.claim.save()?;
        }
        if let Err(source) = sysfs::write(&self.dir().join("state"), &Command::On) {
            self.claim.mark.kdamond = before;
            return Err(match source.is_busy() {
                true => DamonError::Busy,
                false => DamonError::NotStarted { source },
            });
        }
        let pid = running(&self.dir()).ok_or(DamonError::Stopped)?;
        self.claim.mark.kdamond = Thread::now(&self.root, pid);
        self.claim.save()
    }

    /// Stops the kdamond, which may be started again later. Its thread stays in the mark: another thread in the
    /// same directory belongs to another user.
    pub fn stop(&self) -> Result<(), DamonError> {
        self.check()?;
        Ok(off(&self.dir())?)
    }

    /// Makes a running kdamond apply the context.
    pub fn commit(&self) -> Result<(), DamonError> {
        self.command(Command::Commit)
    }

    fn command(&self, command: Command) -> Result<(), DamonError> {
        self.check()?;
        Ok(sysfs::write(&self.dir().join("state"), &command)?)
    }

    /// Whether it runs, and is the kdamond that isotherm has started.
    pub fn is_running(&self) -> bool {
        running(&self.dir()).is_some() && self.check().is_ok()
    }

    /// CPU time of its thread so far.
    pub fn cpu(&self) -> Duration {
        self.claim.mark.kdamond.and_then(|k| process_cpu(k.pid)).unwrap_or_default()
    }

    /// The statistics of the first scheme since its start.
    pub fn stats(&self) -> Result<Stats, DamonError> {
        self.command(Command::UpdateStats)?;
        Ok(sysfs::read(&self.context().join("schemes/0/stats"))?)
    }

    /// The intervals after tuning.
    pub fn tuned(&self) -> Result<Intervals, DamonError> {
        self.command(Command::UpdateTunedIntervals)?;
        Ok(sysfs::read(&self.context().join("monitoring_attrs/intervals"))?)
    }
}

fn refuse(availability: Availability) -> Result<(), DamonError> {
    match availability {
        Availability::Free => Ok(()),
        Availability::Held(holder) => Err(DamonError::Held(holder)),
        Availability::Absent(why) => Err(DamonError::Absent(why)),
    }
}

#[cfg(test)]
#[path = "own_kdamond_tests.rs"]
pub(super) mod tests;
