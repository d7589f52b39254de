//! What is asked over the control socket while something is recorded.

use anyhow::{Result, bail};

use super::Recording;
use crate::commands::watch::{RecordState, State};
use crate::control::{self, Answer, Request};

impl Recording {
    /// Answers; says why it is to end, if somebody has said so.
    pub fn answer(&mut self, requests: Vec<(usize, Result<Request, String>)>) -> Option<String> {
        let mut control = self.control.take();
        let stop = control::answer(control.as_mut(), requests, |request| self.done(request));
        self.control = control;
        stop
    }

    fn done(&mut self, request: Request) -> Result<Answer<State>> {
        match request {
            Request::Status => return Ok(Answer::status(self.state())),
            Request::Pause => {
                self.paused = true;
                // What was seen before it is safe meanwhile.
                let _ = self.writer.flush()?;
            }
            Request::Resume => self.paused = false,
            Request::Stop => {}
            Request::Attributes(new) => {
                let Some(attrs) = self.watch.attrs() else {
                    bail!("the kernel's monitor keeps its attributes: record anew with others");
                };
                let attrs = new.over(attrs).map_err(anyhow::Error::msg)?;
                self.watch.set_attrs(attrs)?;
                self.status.set_attrs(&attrs);
            }
            Request::Targets { add, remove } => {
                if self.follower.has_lasting() {
                    bail!("physical memory is recorded: it has no processes to add or remove");
                }
                self.follower.set_targets(self.watch.hold(), &add, &remove)?;
                self.follow()?;
            }
            Request::Commit { .. } => {
                bail!(
                    "isotherm record only watches: isotherm run and isotherm reclaim act by schemes"
                )
            }
            Request::Record { .. } => bail!(
                "this is isotherm record, which writes {}: isotherm service stop ends it, isotherm service pause leaves \
                 out what comes",
                self.file.display()
            ),
        }
        Ok(Answer::done())
    }

    fn state(&self) -> State {
        let file = self.file.display().to_string();
        let record = RecordState::new(file, self.writer.summary(), None);
        State::new(&self.scene(), self.watch.attrs(), self.paused, Some(record))
    }
}
