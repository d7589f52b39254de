//! The output of `isotherm system zones`.

use serde::Serialize;

use super::{Change, State, remarks, text};

/// A state, a change between two states, or both: `docs/abi/testing/zones.md`.
#[derive(Serialize)]
pub struct ZonesOutput<'a> {
    schema_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'a State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'a Change>,
    remarks: Vec<String>,
}

impl<'a> ZonesOutput<'a> {
    /// The zones at one time.
    #[must_use]
    pub fn of_state(state: &'a State) -> Self {
        let remarks = remarks::of_state(state);
        ZonesOutput { schema_version: 1, state: Some(state), change: None, remarks }
    }

    /// A change of the zones.
    #[must_use]
    pub fn of_change(change: &'a Change) -> Self {
        let remarks = remarks::of_change(change);
        ZonesOutput { schema_version: 1, state: None, change: Some(change), remarks }
    }

    /// A change of the zones with remarks on the state at its end, and with that state if `whole`.
    #[must_use]
    pub fn of_both(state: &'a State, change: &'a Change, whole: bool) -> Self {
        let mut output = ZonesOutput::of_change(change);
        output.remarks.extend(remarks::of_state(state));
        ZonesOutput { state: whole.then_some(state), ..output }
    }

    /// As text, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = [self.state.map(text::state), self.change.map(text::change)];
        let figures: String = parts.into_iter().flatten().collect();
        figures + "\n" + &text::remarks(&self.remarks)
    }
}
