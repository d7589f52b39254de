//! The kdamond of ours in sysfs: made, started, changed, and taken away again.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::availability::{Availability, availability, running};
use super::claim::{Claim, Thread, off, take_away};
use super::error::DamonError;
use super::sysfs::{self, Available, Command, Context, Element, Intervals, Kdamond, Operations};
use crate::sys::process_cpu;

/// A kdamond of ours, set up; taken away when dropped.
pub(super) struct Seat {
    root: PathBuf,
    claim: Claim,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let _ = take_away(&self.root, &self.claim.mark);
    }
}

impl Seat {
    /// Makes a kdamond, if nobody has one.
    pub fn take(root: &Path) -> Result<Self, DamonError> {
        // First who has it: where there is no DAMON, no state is to be written.
        refuse(availability(root))?;
        let claim = Claim::take(root)?;
        let all = sysfs::kdamonds(root);
        if sysfs::read::<u64>(&all.join(Kdamond::COUNT))? != 0 {
            drop(claim);
            refuse(availability(root))?;
            return Err(DamonError::Busy);
        }
        sysfs::write(&all.join(Kdamond::COUNT), &1u64)?;
        let mut seat = Seat { root: root.to_owned(), claim };
        seat.claim.mark.directory = std::fs::metadata(seat.dir()).ok().map(|m| m.ino());
        seat.claim.save()?;
        Ok(seat)
    }

    /// `kdamonds/0`.
    pub fn dir(&self) -> PathBuf {
        sysfs::kdamonds(&self.root).join("0")
    }

    fn context(&self) -> PathBuf {
        self.dir().join("contexts/0")
    }

    /// Remembers a trace instance, so that it is taken away as well.
    pub fn note_instance(&mut self, instance: &Path) -> Result<(), DamonError> {
        self.claim.mark.instance = Some(instance.to_owned());
        self.claim.save()
    }

    /// Writes what is to be monitored; a kdamond that runs heeds it with a commit.
    pub fn set_up(&self, context: &Context) -> Result<(), DamonError> {
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

    /// Starts it.
    pub fn start(&mut self) -> Result<(), DamonError> {
        self.command(Command::On).map_err(|source| match source.is_busy() {
            true => DamonError::Busy,
            false => DamonError::NotStarted { source },
        })?;
        let pid = running(&self.dir()).ok_or(DamonError::Stopped)?;
        self.claim.mark.kdamond = Thread::now(&self.root, pid);
        self.claim.save()
    }

    /// Stops it, to start it anew.
    pub fn stop(&mut self) -> Result<(), DamonError> {
        off(&self.dir())?;
        self.claim.mark.kdamond = None;
        self.claim.save()
    }

    /// Has a kdamond that runs heed what was set up since.
    pub fn commit(&self) -> Result<(), DamonError> {
        Ok(self.command(Command::Commit)?)
    }

    fn command(&self, command: Command) -> Result<(), sysfs::SysfsError> {
        sysfs::write(&self.dir().join("state"), &command)
    }

    /// Whether it runs, and is the one that was started.
    pub fn is_running(&self) -> bool {
        let now = running(&self.dir());
        now.is_some() && now == self.claim.mark.kdamond.map(|k| k.pid)
    }

    /// CPU time of its thread so far.
    pub fn cpu(&self) -> Duration {
        self.claim.mark.kdamond.and_then(|k| process_cpu(k.pid)).unwrap_or_default()
    }

    /// The intervals that tuning has come to.
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
