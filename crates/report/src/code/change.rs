//! Two reports of memory by code, compared.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Code, CodeMemory, Estimate};
use crate::basis::Basis;

/// One of the two compared reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodeSide {
    /// heading
    pub title: String,
    /// the part of the record that was used
    #[serde(flatten)]
    pub basis: Basis,
    /// all resident memory of the targets
    pub all: CodeMemory,
    /// the memory whose pages have a stack
    pub with_stack: CodeMemory,
}

/// A function, line, file, path, thread or mapping in two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedRow {
    /// its name
    pub name: String,
    /// its memory before
    pub before: CodeMemory,
    /// its memory after
    pub after: CodeMemory,
}

impl ChangedRow {
    /// The change of its resident bytes.
    #[must_use]
    pub fn resident_change(&self) -> f64 {
        self.after.of_any_heat.bytes - self.before.of_any_heat.bytes
    }

    /// The change of its cold bytes.
    #[must_use]
    pub fn cold_change(&self) -> f64 {
        self.after.cold.bytes - self.before.cold.bytes
    }

    /// Whether the intervals of its resident bytes have nothing in common, so that it has certainly changed.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        let (before, after) = (self.before.of_any_heat, self.after.of_any_heat);
        match (before.bytes, after.bytes) {
            // No sample may stand for as much as 3.7 samples. Nine samples have a lower end of 4.1, which is 0.46 of
            // their bytes.
            (0.0, bytes) => after.low > 0.45 * bytes,
            (bytes, 0.0) => before.low > 0.45 * bytes,
            _ => before.high < after.low || after.high < before.low,
        }
    }
}

/// A call stack in two reports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChangedStack {
    /// names of the functions, the outermost first
    pub functions: Vec<String>,
    /// resident bytes before
    pub before_bytes: f64,
    /// resident bytes after
    pub after_bytes: f64,
}

/// The changes from one report to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodeChange {
    /// version of the keys and their meaning
    pub schema_version: u32,
    /// meaning of the rows
    pub by: &'static str,
    /// the first report
    pub before: CodeSide,
    /// the second one
    pub after: CodeSide,
    /// rows of either report, the greatest change of resident bytes first
    pub rows: Vec<ChangedRow>,
    /// call stacks of either report, in the order of their names
    pub stacks: Vec<ChangedStack>,
}

impl CodeChange {
    /// Compares two reports of the same kind. Rows and stacks are the same if they have the same names, so that the
    /// builds of a program may differ.
    #[must_use]
    pub fn between(before: Code, after: Code) -> Self {
        let mut rows: BTreeMap<String, ChangedRow> = BTreeMap::new();
        let mut stacks: BTreeMap<Vec<String>, (f64, f64)> = BTreeMap::new();
        let none = |code: &Code| CodeMemory {
            resident: code.all.resident.map(|_| Estimate::default()),
            ..CodeMemory::default()
        };
        let absent = (none(&before), none(&after));
        for (code, is_after) in [(&before, false), (&after, true)] {
            for row in &code.rows {
                let new = ChangedRow { name: row.name.clone(), before: absent.0, after: absent.1 };
                let both = rows.entry(row.name.clone()).or_insert(new);
                *if is_after { &mut both.after } else { &mut both.before } = row.memory;
            }
            for stack in &code.stacks {
                let functions = stack.frames.iter().map(|f| f.function.to_string()).collect();
                let (before, after) = stacks.entry(functions).or_default();
                *if is_after { after } else { before } += stack.memory.of_any_heat.bytes;
            }
        }
        let mut rows: Vec<ChangedRow> = rows.into_values().collect();
        rows.sort_by(|a, b| b.resident_change().abs().total_cmp(&a.resident_change().abs()));
        let stack = |(functions, (before_bytes, after_bytes))| ChangedStack {
            functions,
            before_bytes,
            after_bytes,
        };
        CodeChange {
            schema_version: 1,
            by: after.by,
            rows,
            stacks: stacks.into_iter().map(stack).collect(),
            before: side(before),
            after: side(after),
        }
    }
}

fn side(c: Code) -> CodeSide {
    CodeSide { title: c.title, basis: c.basis, all: c.all, with_stack: c.with_stack }
}

#[cfg(test)]
mod tests {
    use isotherm_core::FaultKind;

    use super::*;
    use crate::code::CodeBy;
    use crate::code::tests::{built, fault};
    use crate::units::MIB;

    /// `fb` has shrunk from 2 MiB to 256 KiB, and `fa` has stayed.
    #[test]
    fn rows_and_stacks_of_either_side_are_compared_by_name() {
        let faults = |n: u64, frame| {
            let at = move |i| (1 << 20) * frame + i * 0x4_0000;
            (0..n).map(move |i| fault(FaultKind::Minor, at(i), frame + 9))
        };
        let code = |parts: [(u64, u64); 2]| {
            let faults: Vec<_> =
                parts.into_iter().flat_map(|(n, frame)| faults(n, frame)).collect();
            built(CodeBy::Function, &faults)
        };
        let change = CodeChange::between(code([(4, 1), (8, 2)]), code([(4, 1), (1, 2)]));
        let row = |r: &ChangedRow| (r.name.clone(), r.resident_change() / MIB, r.is_certain());
        let rows: Vec<_> = change.rows.iter().map(row).collect();
        assert_eq!(rows, [("fb".to_owned(), -1.75, false), ("fa".to_owned(), 0.0, false)]);
        let stacks: Vec<_> = change
            .stacks
            .iter()
            .map(|s| (&*s.functions[0], s.before_bytes, s.after_bytes))
            .collect();
        assert_eq!(stacks, [("fa", MIB, MIB), ("fb", 2.0 * MIB, MIB / 4.0)]);
        let new = CodeChange::between(code([(4, 1), (0, 2)]), code([(4, 1), (8, 2)]));
        assert!(!new.rows[0].is_certain(), "eight samples");
        let new = CodeChange::between(code([(4, 1), (0, 2)]), code([(4, 1), (12, 2)]));
        assert!(new.rows[0].is_certain(), "twelve samples");
        let before = new.rows[0].before.resident;
        assert_eq!((new.rows[0].name.as_str(), before), ("fb", Some(Estimate::default())));
    }
}
