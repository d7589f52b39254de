//! Changes while schemes are running: to the schemes, to the monitor's attributes, and to the targets.

use std::time::Duration;

use isotherm_core::scheme::{Engine, Scheme};
use isotherm_core::{Act, Attrs};
use isotherm_linux::sys;
use sd_notify::NotifyState;
use tracing::{info, warn};

use super::meter::Meter;
use super::running::SchemeJob;
use super::saved::{Saved, Schemes};
use super::{RequiredPrivileges, ServiceError, check_actions, check_aims, check_for_files};
use crate::ROOT;
use crate::control::Attributes;
use crate::notify::Notify;
use crate::schemes;
use crate::session::JobContext;
use crate::words::chain;

impl SchemeJob {
    /// Replaces the schemes by those in a text. If one of them cannot run here, the current schemes stay.
    /// Returns notes about what must change on the machine before the new schemes can act.
    pub fn commit(
        &mut self,
        schemes: Schemes,
        attrs: &Attrs,
        act: &dyn Act,
        pids: &[i32],
    ) -> Result<Vec<String>, ServiceError> {
        let interval = schemes.interval_ns.map_or(attrs.snapshot_interval(), Duration::from_nanos);
        let new = schemes::parse_as(schemes.form, &schemes.text, interval, &[])
            .map_err(ServiceError::Schemes)?;
        if new.is_empty() {
            return Err(ServiceError::NoScheme);
        }
        let notes = self.replace(new, None, attrs, act, pids)?;
        let interval_ns = u64::try_from(interval.as_nanos()).ok();
        self.save(|changes| changes.schemes = Some(Schemes { interval_ns, ..schemes }));
        Ok(notes)
    }

    /// `of_options` is the name of the scheme that was made from options, if there is one.
    fn replace(
        &mut self,
        new: Vec<Scheme>,
        of_options: Option<&str>,
        attrs: &Attrs,
        act: &dyn Act,
        pids: &[i32],
    ) -> Result<Vec<String>, ServiceError> {
        let engine = Engine::new(new.clone())?;
        check_aims(new.iter(), attrs)?;
        if self.config.acting().files.is_some() {
            check_for_files(new.iter())?;
        }
        let mut notes = check_actions(new.iter(), |action| act.supports(action), self.dry())?;
        if !RequiredPrivileges::of(new.iter().map(|s| &s.action)).are_within(&self.required) {
            return Err(ServiceError::Privileges);
        }
        let meter = Meter::new(ROOT.as_ref(), engine.schemes().map(|(s, _)| s), pids, of_options)
            .map_err(ServiceError::Commit)?;
        notes.extend(meter.missing().iter().cloned());
        self.engine.set_schemes(new)?;
        let before = std::mem::take(&mut self.meter);
        self.meter = meter.selecting(&self.config.acting().targets).after(before);
        self.warned = false;
        Ok(notes)
    }

    /// Changes attributes of the monitor, which keeps its data.
    pub fn set_attributes(
        &mut self,
        new: &Attributes,
        on: &mut JobContext<'_>,
    ) -> Result<(), ServiceError> {
        let attrs = on.attrs()?;
        let attrs = new.over(attrs).map_err(ServiceError::Attributes)?;
        on.watch.set_attrs(attrs)?;
        on.state.status.set_attrs(&attrs);
        self.save(|changes| changes.attributes.take(new));
        Ok(())
    }

    /// Stops acting, or resumes.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.save(|changes| changes.paused = paused);
    }

    /// Reads the configuration again, and reports the result. An invalid configuration changes nothing.
    pub fn reload(&mut self, on: &mut JobContext<'_>) {
        let now = NotifyState::MonotonicUsec(i128::from(sys::monotonic().0 / 1000));
        Notify::say(&[NotifyState::Reloading, now]);
        match self.try_reload(on) {
            Ok(notes) => {
                info!("re-read the file of --config");
                notes.iter().for_each(|note| warn!("{note}"));
            }
            Err(e) => warn!(
                "the file of --config cannot be applied, and nothing has changed: {}",
                chain(&e)
            ),
        }
        Notify::say(&[NotifyState::Ready]);
    }

    fn try_reload(&mut self, on: &mut JobContext<'_>) -> Result<Vec<String>, ServiceError> {
        let config = self.config.reread()?;
        let attrs = on.watch.attrs_of(config.attrs()).map_err(|e| config.placed(e))?;
        let now = on.attrs()?;
        if attrs.monitor != now.monitor {
            let (required, running) = (attrs.monitor.name(), now.monitor.name());
            return Err(ServiceError::Monitor { required, running });
        }
        let pids: Vec<i32> = on.state.follower.pids().collect();
        let act = on.watch.act().ok_or(ServiceError::CannotAct)?;
        let notes =
            self.replace(config.schemes(&attrs)?, config.of_options(), &attrs, act, &pids)?;
        // These attributes have already been checked, so this cannot fail and leave the change half done.
        on.watch.set_attrs(attrs)?;
        on.state.status.set_attrs(&attrs);
        self.config = config;
        self.save(|changes| {
            (changes.schemes, changes.attributes) = (None, Attributes::default());
        });
        Ok(notes)
    }

    /// Applies the changes that a service with the same options received before it crashed. Returns the
    /// resulting attributes.
    pub fn take_up(
        &mut self,
        saved: Option<Saved>,
        act: &dyn Act,
        pids: &[i32],
        attrs: Attrs,
    ) -> Attrs {
        let left = saved.as_ref().and_then(Saved::left);
        self.saved = saved;
        let Some(left) = left else { return attrs };
        let mut taken = Vec::new();
        let mut attrs = attrs;
        if left.attributes != Attributes::default() {
            match left.attributes.over(attrs) {
                Ok(new) => {
                    attrs = new;
                    self.save(|changes| changes.attributes = left.attributes);
                    taken.push("attributes");
                }
                Err(e) => warn!("the previous attributes are not restored: {e}"),
            }
        }
        if let Some(schemes) = left.schemes {
            match self.commit(schemes, &attrs, act, pids) {
                Ok(notes) => {
                    taken.push("committed schemes");
                    notes.iter().for_each(|note| warn!("{note}"));
                }
                Err(e) => {
                    warn!("the previous schemes are not restored: {}", chain(&e));
                }
            }
        }
        if left.paused {
            self.pause(true);
            taken.push("paused");
        }
        if !taken.is_empty() {
            info!(
                "continues with the settings of a service that did not end cleanly: {}",
                taken.join(", ")
            );
        }
        attrs
    }

    fn save(&mut self, change: impl FnOnce(&mut super::saved::Changes)) {
        if let Some(saved) = &mut self.saved {
            saved.change(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use isotherm_core::scheme::Aim;
    use isotherm_core::{Applied, MonitorKind, OpsError, Support, Work};

    use super::super::recording::SideRecord;
    use super::super::tests::Config;
    use super::*;
    use crate::reclaim::untouched;
    use crate::schemes::SchemeSyntax;

    /// An operations set that supports each action, and acts on nothing.
    struct Idle;

    impl Act for Idle {
        fn supports(&self, _: &isotherm_core::Action) -> Support {
            Support::Yes
        }

        fn apply(&mut self, _: &[Work<'_>], _: &mut Vec<Applied>) -> Result<(), OpsError> {
            Ok(())
        }
    }

    fn job() -> SchemeJob {
        let engine = Engine::new(Vec::new()).unwrap();
        let required = RequiredPrivileges { files: true, frames: true };
        let recording = SideRecord::off(0, String::new());
        let config = Rc::new(Config::default());
        SchemeJob::new(engine, Meter::default(), None, recording, None, required, config)
    }

    /// Found by a review: ages in intervals became those of the attributes that were set later.
    #[test]
    fn a_crash_does_not_change_the_ages_of_committed_schemes() {
        let dir = tempfile::tempdir().unwrap();
        let saved = || Some(Saved::beside(&dir.path().join("control.sock")));
        let interval =
            |seconds| Attributes { interval_seconds: Some(seconds), ..Default::default() };
        let schemes = Schemes {
            text: "4K max min min 8 max stat".to_owned(),
            form: SchemeSyntax::Txt,
            interval_ns: None,
        };
        let mut first = job();
        first.saved = saved();
        let attrs = interval(60.0).over(Attrs::default()).unwrap();
        let _ = first.commit(schemes, &attrs, &Idle, &[]).unwrap();
        first.save(|changes| changes.attributes = interval(10.0));
        let mut second = job();
        let attrs = second.take_up(saved(), &Idle, &[], Attrs::default());
        assert_eq!(attrs.interval, Duration::from_secs(10));
        let ages: Vec<_> = second.engine.schemes().map(|(s, _)| *s.pattern.age.start()).collect();
        assert_eq!(ages, [Duration::from_secs(120)]);
    }

    /// Found by a review: only the start refused it.
    #[test]
    fn an_objective_without_idle_ages_is_refused() {
        let aimed = Scheme { aim: Some(Aim::Save(3000)), ..untouched(Default::default(), true) };
        let regions = Attrs { monitor: MonitorKind::Regions, ..Attrs::default() };
        let refused = job().replace(vec![aimed], None, &regions, &Idle, &[]);
        assert!(matches!(refused, Err(ServiceError::NoAges("regions"))), "{refused:?}");
    }
}
