//! What is asked over the control socket while schemes are at work.

use anyhow::Result;
use isotherm_record::Limits;

use super::running::Running;
use super::state::State;
use crate::commands::watch::{Acting, Status};
use crate::control::{Answer, Control, Request};
use crate::words::chain;

type Asked = (usize, Result<Request, String>);

impl Running {
    /// Answers; says why it is to end, if somebody has said so.
    pub fn answer(
        &mut self,
        requests: Vec<Asked>,
        watch: &mut Acting,
        status: &mut Status,
    ) -> Option<String> {
        let mut stop = None;
        for (client, request) in requests {
            let answer = match request {
                Ok(request) => {
                    if matches!(request, Request::Stop) {
                        stop = Some("told to stop".to_owned());
                    }
                    let refused = |e| Answer::refused(chain(&e));
                    self.done(request, watch, status).unwrap_or_else(refused)
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

    fn done(&mut self, r: Request, w: &mut Acting, status: &mut Status) -> Result<Answer<State>> {
        match r {
            Request::Status => return Ok(Answer::status(State::new(self, w.attrs(), status))),
            Request::Pause => self.pause(true),
            Request::Resume => self.pause(false),
            Request::Stop => {}
            Request::Commit { schemes, form } => {
                let attrs = w.attrs();
                self.commit(&schemes, form, &attrs, w.act())?;
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
