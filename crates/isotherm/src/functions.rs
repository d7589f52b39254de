//! Names of the functions on recorded stacks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_core::{AddrRange, CodeMapping, TargetId};
use isotherm_linux::code::{Functions, is_dump};
use isotherm_linux::proc;
use isotherm_record::TargetInfo;
use isotherm_report::{CodeAddress, FindFunctions};
use serde_json::Value;

use crate::ROOT;

/// Adds the key `function` to each frame in the `refaults` of a service's state, with the name of its function or
/// null. The service does not do this itself: reading debug information takes time and memory.
pub fn name_refaults(refaults: &mut Value) {
    let mut functions = Functions::default();
    for stack in refaults["stacks"].as_array_mut().into_iter().flatten() {
        let pid = stack["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
        for frame in stack["frames"].as_array_mut().into_iter().flatten() {
            frame["function"] = function(&mut functions, pid, frame).into();
        }
    }
}

fn function(functions: &mut Functions, pid: u32, frame: &Value) -> Option<String> {
    let root = Path::new(ROOT);
    let found = match frame["file"].as_str().filter(|file| !is_without_file(file)) {
        Some(file) => {
            let path = root.join(format!("proc/{pid}/root")).join(file.trim_start_matches('/'));
            let build_id = frame["build_id"].as_str().unwrap_or_default().into();
            functions.in_file(&path, &build_id, frame["offset"].as_u64()?).into_iter().next()
        }
        None => {
            let inside = root.join(format!("proc/{pid}/root"));
            let dump = dump_of(pid);
            let dump = dump.as_deref().map(|dump| (&*inside, dump));
            functions.generated(root, pid, dump, frame["address"].as_u64()?)
        }
    };
    found.map(|f| f.name)
}

/// Whether the kernel has made up this path for memory, in which a program may generate code.
fn is_without_file(path: &str) -> bool {
    ["/memfd:", "/anon_hugepage", "/dev/zero", "/SYSV"].iter().any(|of| path.starts_with(of))
}

/// The path of the dump that the compiler of a process writes, as the process sees it.
fn dump_of(pid: u32) -> Option<Arc<str>> {
    let executed = proc::code(ROOT.as_ref(), i32::try_from(pid).ok()?).ok()?;
    executed.into_iter().map(|file| file.path).find(|path| is_dump(path))
}

/// Finds the functions of recorded targets in the programs and libraries below a directory.
pub struct RecordedFunctions {
    functions: Functions,
    root: PathBuf,
    pids: BTreeMap<TargetId, u32>,
}

impl RecordedFunctions {
    /// The functions of `targets`, whose files lie below `root`.
    #[must_use]
    pub fn new(root: PathBuf, targets: &[TargetInfo]) -> Self {
        let pids = targets.iter().filter_map(|t| Some((t.id, t.pid?))).collect();
        RecordedFunctions { functions: Functions::default(), root, pids }
    }
}

impl FindFunctions for RecordedFunctions {
    fn functions(&mut self, at: &CodeAddress<'_>) -> Vec<(String, Option<String>)> {
        let found = match at.code.filter(|code| !is_without_file(&code.path)) {
            Some(code) => {
                let path = self.root.join(code.path.trim_start_matches('/'));
                let offset = at.address - code.range.start + code.offset;
                self.functions.in_file(&path, &code.build_id, offset)
            }
            None => {
                let dump = at.executed.iter().find(|code| is_dump(&code.path));
                let dump = dump.map(|code| (&*self.root, &*code.path));
                let generated =
                    |&pid: &u32| self.functions.generated(&self.root, pid, dump, at.address);
                self.pids.get(&at.target).and_then(generated).into_iter().collect()
            }
        };
        found.into_iter().map(|f| (f.name, f.line)).collect()
    }

    fn variables(&mut self, code: &CodeMapping) -> Vec<(AddrRange, String)> {
        let path = self.root.join(code.path.trim_start_matches('/'));
        self.functions.variables(&path, &code.build_id, code.range.start, code.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a review: .NET generates code in a `memfd`, which was taken for a file.
    #[test]
    fn code_that_is_generated_in_a_memfd_has_names() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("tmp")).unwrap();
        std::fs::write(root.path().join("tmp/perf-7.map"), "7f00 10 Main()\n").unwrap();
        let target = TargetInfo { id: TargetId(1), pid: Some(7), command: String::new() };
        let mut functions = RecordedFunctions::new(root.path().to_owned(), &[target]);
        let path = "/memfd:doublemapper (deleted)".into();
        let range = AddrRange::new(0x7000, 0x8000);
        let code = CodeMapping { range, offset: 0, path, build_id: "".into() };
        let (target, executed) = (TargetId(1), std::slice::from_ref(&code));
        let at = CodeAddress { target, address: 0x7f08, code: Some(&code), executed };
        assert_eq!(functions.functions(&at), [("Main()".to_owned(), None)]);
    }
}
