//! What is asked over the control socket while schemes are at work.

use anyhow::{Context, Result, bail};
use isotherm_core::scheme::Engine;
use isotherm_core::{Act, Support};

use super::Takes;
use super::metrics::Meter;
use super::running::Running;
use super::state::State;
use crate::commands::watch::{Acting, ROOT, Status};
use crate::control::{Answer, Control, Request};
use crate::schemes::{self, Form};
use crate::words::chain;

type Asked = (usize, Result<Request, String>);

impl Running {
    /// Answers; says why it is to end, if somebody has said so.
    pub fn answer(
        &mut self,
        requests: Vec<Asked>,
        watch: &mut Acting,
        status: &Status,
    ) -> Option<String> {
        let mut stop = None;
        for (client, request) in requests {
            let answer = match request {
                Ok(request) => {
                    if matches!(request, Request::Stop) {
                        stop = Some("told to stop".to_owned());
                    }
                    let refused = |e| Answer::refused(chain(&e));
                    self.done(request, watch.act(), status).unwrap_or_else(refused)
                }
                Err(why) => {
                    self.control.iter_mut().for_each(|c| c.refuse(client, &why));
                    continue;
                }
            };
            self.control.iter_mut().for_each(|c: &mut Control| c.answer(client, &answer));
        }
        stop
    }

    fn done(&mut self, r: Request, act: &dyn Act, status: &Status) -> Result<Answer<State>> {
        match r {
            Request::Status => return Ok(Answer::status(State::new(self, status))),
            Request::Pause => self.paused = true,
            Request::Resume => self.paused = false,
            Request::Stop => {}
            Request::Commit { schemes, form } => self.commit(&schemes, form, act)?,
        }
        Ok(Answer::done())
    }

    /// Goes on by other schemes, or, if one cannot be, by those there are.
    fn commit(&mut self, text: &str, form: Form, act: &dyn Act) -> Result<()> {
        let new = schemes::parse_as(form, text, self.interval).map_err(anyhow::Error::msg)?;
        if new.is_empty() {
            bail!("there is no scheme in it: isotherm pause ends acting");
        }
        let engine = Engine::new(new.clone())?;
        let why = |s: &isotherm_core::scheme::Scheme| match act.supports(&s.action) {
            Support::No(why) if !self.dry => Some(format!("scheme `{}`: {why}", s.name)),
            _ => None,
        };
        if let Some(why) = new.iter().find_map(why) {
            bail!("this cannot be done here: {why}");
        }
        if !Takes::of(new.iter().map(|s| &s.action)).are_within(&self.takes) {
            bail!(
                "this takes privileges that were given up at the start, as no scheme took them: end the \
                 service, and start it with these schemes"
            );
        }
        let pids: Vec<i32> = self.follower.pids().collect();
        let meter = Meter::new(ROOT.as_ref(), engine.schemes().map(|(s, _)| s), &pids)
            .context("a figure cannot be read here")?;
        self.engine.set_schemes(new)?;
        self.meter = meter;
        Ok(())
    }
}
