//! What may change while schemes are at work: they themselves, and how is watched and whom.

use std::rc::Rc;

use anyhow::{Context, Result, bail};
use isotherm_core::scheme::{Engine, Scheme};
use isotherm_core::{Act, Attrs};
use isotherm_linux::sys;

use super::metrics::Meter;
use super::running::Running;
use super::saved::{Saved, Schemes};
use super::{Takes, Told, check_actions};
use crate::commands::watch::{Acting, ROOT, Status, Watch};
use crate::control::Attributes;
use crate::schemes::{self, Form};
use crate::words::{chain, say};

impl Running {
    /// Goes on by schemes that somebody has sent, or, if one cannot be, by those there are. Returns what
    /// has to change before they can act.
    pub fn commit(
        &mut self,
        text: &str,
        form: Form,
        attrs: &Attrs,
        act: &dyn Act,
    ) -> Result<Vec<String>> {
        let new = schemes::parse_as(form, text, attrs.snapshot_interval(), &[])
            .map_err(anyhow::Error::msg)?;
        if new.is_empty() {
            bail!("there is no scheme in it: isotherm service pause ends acting");
        }
        let notes = self.replace(new, None, act)?;
        let schemes = Schemes { text: text.to_owned(), form };
        self.save(|changes| changes.schemes = Some(schemes));
        Ok(notes)
    }

    /// `of_options` is the name of the one that options make.
    fn replace(
        &mut self,
        new: Vec<Scheme>,
        of_options: Option<&str>,
        act: &dyn Act,
    ) -> Result<Vec<String>> {
        let engine = Engine::new(new.clone())?;
        let mut notes = check_actions(new.iter(), |action| act.supports(action), self.dry)?;
        if !Takes::of(new.iter().map(|s| &s.action)).are_within(&self.takes) {
            bail!(
                "this takes privileges that were given up at the start, as no scheme took them: end the \
                 service, and start it with these schemes"
            );
        }
        let pids: Vec<i32> = self.follower.pids().collect();
        let meter = Meter::new(ROOT.as_ref(), engine.schemes().map(|(s, _)| s), &pids, of_options)
            .context("a figure cannot be read here")?;
        notes.extend(meter.lacks().iter().cloned());
        self.engine.set_schemes(new)?;
        (self.meter, self.said) = (meter, false);
        Ok(notes)
    }

    /// Watches in another way; what is known is kept.
    pub fn set_attributes(
        &mut self,
        new: &Attributes,
        watch: &mut Acting,
        status: &mut Status,
    ) -> Result<()> {
        let attrs = new.over(watch.attrs()).map_err(anyhow::Error::msg)?;
        watch.set_attrs(attrs)?;
        status.set_attrs(&attrs);
        self.save(|changes| changes.attributes.take(new));
        Ok(())
    }

    /// Acts no more, or again.
    pub fn pause(&mut self, paused: bool) {
        self.paused = paused;
        self.save(|changes| changes.paused = paused);
    }

    /// Watches these too, and those no longer.
    pub fn set_targets(&mut self, add: &[i32], remove: &[i32], watch: &mut Acting) -> Result<()> {
        self.follower.set_targets(watch.hold(), add, remove)?;
        self.follow(watch)
    }

    /// Reads anew what it goes by, and says so; what is wrong changes nothing.
    pub fn reload(&mut self, watch: &mut Acting, status: &mut Status) {
        let usec = sys::monotonic().0 / 1000;
        self.notify.say(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
        match self.try_reload(watch, status) {
            Ok(notes) => {
                say("isotherm: read anew what is in --config");
                notes.iter().for_each(|note| say(format_args!("isotherm: {note}")));
            }
            Err(e) => say(format_args!(
                "isotherm: what is in --config cannot be gone by, and nothing has changed: {}",
                chain(&e)
            )),
        }
        self.notify.say("READY=1");
    }

    fn try_reload(&mut self, watch: &mut Acting, status: &mut Status) -> Result<Vec<String>> {
        let Some(told) = &self.told else { return Ok(Vec::new()) };
        let told: Rc<dyn Told> = told.anew()?;
        let attrs = watch.attrs_of(&told.acting().watching).map_err(|e| told.placed(e))?;
        if attrs.monitor != watch.attrs().monitor {
            bail!(
                "these options take the {} monitor, and the {} monitor is at work: restart the service",
                attrs.monitor.name(),
                watch.attrs().monitor.name()
            );
        }
        let notes = self.replace(told.schemes(&attrs)?, told.of_options(), watch.act())?;
        // They have been checked: with that they cannot be refused, and nothing is changed by half.
        watch.set_attrs(attrs)?;
        status.set_attrs(&attrs);
        self.told = Some(told);
        self.save(|changes| {
            (changes.schemes, changes.attributes) = (None, Attributes::default());
        });
        Ok(notes)
    }

    /// Takes up what a service of the same options was told before it crashed; returns the attributes
    /// for that.
    pub fn take_up(&mut self, saved: Option<Saved>, act: &dyn Act, attrs: Attrs) -> Attrs {
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
                Err(e) => say(format_args!("isotherm: attributes of before are left out: {e}")),
            }
        }
        if let Some(Schemes { text, form }) = left.schemes {
            match self.commit(&text, form, &attrs, act) {
                Ok(notes) => {
                    taken.push("committed schemes");
                    notes.iter().for_each(|note| say(format_args!("isotherm: {note}")));
                }
                Err(e) => {
                    say(format_args!("isotherm: schemes of before are left out: {}", chain(&e)));
                }
            }
        }
        if left.paused {
            self.pause(true);
            taken.push("paused");
        }
        if !taken.is_empty() {
            say(format_args!(
                "isotherm: goes on as a service was told that did not end cleanly: {}",
                taken.join(", ")
            ));
        }
        attrs
    }

    fn save(&mut self, change: impl FnOnce(&mut super::saved::Changes)) {
        if let Some(saved) = &mut self.saved {
            saved.change(change);
        }
    }
}
