//! What is asked over the control socket while schemes are at work.

use anyhow::Result;
use isotherm_record::Limits;

use super::running::Running;
use super::state::State;
use crate::commands::watch::{Acting, Status};
use crate::control::{self, Answer, Request};

pub type Asked = (usize, Result<Request, String>);

impl Running {
    /// Answers; says why it is to end, if somebody has said so.
    pub fn answer(
        &mut self,
        requests: Vec<Asked>,
        watch: &mut Acting,
        status: &mut Status,
    ) -> Option<String> {
        let mut control = self.control.take();
        let stop = control::answer(control.as_mut(), requests, |r| self.done(r, watch, status));
        self.control = control;
        stop
    }

    fn done(&mut self, r: Request, w: &mut Acting, status: &mut Status) -> Result<Answer<State>> {
        match r {
            Request::Status => return Ok(Answer::status(State::new(self, w.attrs(), status))),
            Request::Pause => self.pause(true),
            Request::Resume => self.pause(false),
            Request::Stop => {}
            Request::Commit { schemes, form } => {
                let attrs = w.attrs();
                return Ok(Answer::noted(self.commit(&schemes, form, &attrs, w.act())?));
            }
            Request::Attributes(new) => self.set_attributes(&new, w, status)?,
            Request::Targets { add, remove } => self.set_targets(&add, &remove, w)?,
            Request::Record { off: true, .. } => self.recording.stop()?,
            Request::Record { file, max_size, off: false } => {
                let file = file.unwrap_or_default();
                let limits = Limits { max_size, rotate: None };
                self.recording.start(&file, limits, w.attrs(), self.facts.values())?;
            }
        }
        Ok(Answer::done())
    }
}
