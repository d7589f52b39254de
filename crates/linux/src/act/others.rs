//! Ways to look that cannot look at single pages again: they refuse to act.

use isotherm_core::{Act, Action, Applied, OpsError, Support, Work};

use super::support::needs_second_look;
use crate::ops::{Idle, Smaps};

impl Act for Idle {
    fn supports(&self, _: &Action) -> Support {
        Support::No(needs_second_look("page_idle"))
    }

    fn apply(&mut self, works: &[Work<'_>], _: &mut Vec<Applied>) -> Result<(), OpsError> {
        refuse(works, "page_idle")
    }
}

impl Act for Smaps {
    fn supports(&self, _: &Action) -> Support {
        Support::No(needs_second_look("smaps"))
    }

    fn apply(&mut self, works: &[Work<'_>], _: &mut Vec<Applied>) -> Result<(), OpsError> {
        refuse(works, "smaps")
    }
}

fn refuse(works: &[Work<'_>], way: &str) -> Result<(), OpsError> {
    let refused = |_: &Work<'_>| Err(OpsError::Failed(needs_second_look(way)));
    works.first().map_or(Ok(()), refused)
}
