//! Names of the functions on recorded stacks.

use std::collections::BTreeMap;
use std::path::PathBuf;

use isotherm_core::TargetId;
use isotherm_linux::code::Functions;
use isotherm_record::TargetFact;
use isotherm_report::{CodeAddress, FindFunctions};

/// Finds the functions of recorded targets in the programs and libraries below a directory.
pub struct RecordedFunctions {
    functions: Functions,
    root: PathBuf,
    pids: BTreeMap<TargetId, u32>,
}

impl RecordedFunctions {
    /// The functions of `targets`, whose files lie below `root`.
    #[must_use]
    pub fn new(root: PathBuf, targets: &[TargetFact]) -> Self {
        let pids = targets.iter().filter_map(|t| Some((t.id, t.pid?))).collect();
        RecordedFunctions { functions: Functions::default(), root, pids }
    }
}

impl FindFunctions for RecordedFunctions {
    fn functions(&mut self, at: &CodeAddress<'_>) -> Vec<(String, Option<String>)> {
        let found = match at.code {
            Some(code) => {
                let path = self.root.join(code.path.trim_start_matches('/'));
                let offset = at.address - code.range.start + code.offset;
                self.functions.in_file(&path, &code.build_id, offset)
            }
            None => self
                .pids
                .get(&at.target)
                .and_then(|&pid| self.functions.generated(&self.root, pid, at.address))
                .into_iter()
                .collect(),
        };
        found.into_iter().map(|f| (f.name, f.line)).collect()
    }
}
