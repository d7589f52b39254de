//! Answers to requests over the control socket while schemes are running.

use isotherm_core::Nanos;
use isotherm_record::Limits;

use super::ServiceError;
use super::running::SchemeJob;
use super::saved::Schemes;
use super::state::ServiceStatus;
use crate::control::{Request, Response};
use crate::session::JobContext;

impl SchemeJob {
    /// Carries out a request.
    pub(super) fn done(
        &mut self,
        on: &mut JobContext<'_>,
        r: Request,
    ) -> Result<Response<ServiceStatus>, ServiceError> {
        let attrs = on.attrs()?;
        match r {
            Request::Status => {
                return Ok(Response::status(ServiceStatus::new(self, attrs, on.state)));
            }
            Request::Snapshot { after, from } => {
                return Ok(Response::snapshot(on.state.snapshots(after, from.map(Nanos))?));
            }
            Request::Pause => self.pause(true),
            Request::Resume => self.pause(false),
            Request::Stop => {}
            Request::Commit { schemes: text, form } => {
                let schemes = Schemes { text, form, interval_ns: None };
                let pids: Vec<i32> = on.state.follower.pids().collect();
                let act = on.watch.act().ok_or(ServiceError::CannotAct)?;
                return Ok(Response::noted(self.commit(schemes, &attrs, act, &pids)?));
            }
            Request::Attributes(new) => self.set_attributes(&new, on)?,
            Request::Targets { add, remove } => {
                on.state.follower.set_targets(on.watch.hold(), &add, &remove)?;
                if !(add.is_empty() && remove.is_empty()) {
                    self.meter.note_other_targets();
                }
                on.follow(self)?;
            }
            Request::Record { off: true, .. } => {
                self.complete_record();
                self.recording.stop()?;
            }
            Request::Record { file, max_size, off: false } => {
                let file = file.unwrap_or_default();
                let limits = Limits { max_size, rotate: None };
                let (code, pages) = (self.code(), self.pages());
                self.recording.start(&file, limits, attrs, self.facts.values(), code, pages)?;
                self.recording.file().map_or(Ok(()), |file| on.watch.leave_out(file))?;
            }
        }
        Ok(Response::done())
    }
}
