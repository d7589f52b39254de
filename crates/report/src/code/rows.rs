//! Rows of the report: stacks by function, line, file, path or thread, and memory by mapping.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use isotherm_core::{AddrRange, HeatBytes, RegionView, TargetId, TargetView};
use serde::Serialize;

use super::{CodeAddress, CodeBy, CodeMemory, FindFunctions, HeatSum, Owner, StackFrame, StackRow};
use crate::basis::ms;
use crate::filter::Options;
use crate::names::{label_of, short};
use crate::pieces::{cut, each_piece};

/// Libraries and functions that allocate and copy memory for others. Their callers decide its use.
const HELPER_LIBRARIES: [&str; 11] = [
    "libc.so",
    "libc-2",
    "ld-linux",
    "ld-musl",
    "libstdc++",
    "libgcc_s",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libpthread",
    "[vdso]",
];
const HELPER_FUNCTIONS: [&str; 28] = [
    "malloc",
    "calloc",
    "realloc",
    "memset",
    "memcpy",
    "memmove",
    "__rust_alloc",
    "__rust_realloc",
    "__libc_",
    "je_",
    "tcmalloc::",
    "_mi_",
    "mi_malloc",
    "mi_heap_",
    "mi_page_",
    "operator new",
    "alloc::",
    "core::",
    "std::",
    "__gnu_cxx::",
    // The same, of names that cannot be demangled.
    "_ZSt",
    "_ZNSt",
    "_ZNKSt",
    "_ZN9__gnu_cxx",
    "_ZNK9__gnu_cxx",
    "hashbrown::",
    "str>::",
    "[",
];

/// The library that samples allocations: its functions are no part of the program.
const SAMPLER: &str = "libisotherm-alloc";

/// The memory of a function, line, file, path, thread or mapping.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CodeRow {
    /// its name
    pub name: String,
    /// number of sampled stacks in it; 0 for mappings
    pub stacks: u64,
    /// its memory
    #[serde(flatten)]
    pub memory: CodeMemory,
}

/// Names the frames of stacks, and remembers the names.
pub(super) struct Namer<'a> {
    find: &'a mut dyn FindFunctions,
    known: HashMap<(u32, usize, u64), Vec<StackFrame>>,
}

impl<'a> Namer<'a> {
    pub(super) fn new(find: &'a mut dyn FindFunctions) -> Self {
        Namer { find, known: HashMap::new() }
    }

    pub(super) fn stack(&mut self, owner: &Owner, sum: &HeatSum) -> StackRow {
        StackRow {
            frames: self.frames(owner),
            thread: owner.thread.to_string(),
            memory: CodeMemory::of(sum),
        }
    }

    /// The functions of a stack, the outermost first.
    pub(super) fn frames(&mut self, owner: &Owner) -> Vec<StackFrame> {
        let mut all = Vec::new();
        for (i, &address) in owner.frames.iter().enumerate() {
            // All but the innermost frame are return addresses, which lie after the call.
            let address = if i == 0 { address } else { address.saturating_sub(1) };
            let key = (owner.target.0, Arc::as_ptr(&owner.code.0) as usize, address);
            let find = &mut *self.find;
            let functions = self.known.entry(key).or_insert_with(|| name(find, owner, address));
            let of_program = functions.iter().filter(|f| !short(&f.library).starts_with(SAMPLER));
            all.extend(of_program.cloned());
        }
        all.reverse();
        all
    }
}

fn name(find: &mut dyn FindFunctions, owner: &Owner, address: u64) -> Vec<StackFrame> {
    let executed = &*owner.code.0;
    let after = executed.partition_point(|c| c.range.end <= address);
    let code = executed.get(after).filter(|c| c.range.contains(address));
    let library: Arc<str> = code.map_or_else(|| "".into(), |c| Arc::clone(&c.path));
    let found = find.functions(&CodeAddress { target: owner.target, address, code, executed });
    if found.is_empty() {
        let function = match code {
            Some(c) => format!("{}+{:#x}", short(&c.path), address - c.range.start + c.offset),
            None => "[unknown]".to_owned(),
        };
        return vec![StackFrame { function: function.into(), line: None, library, named: false }];
    }
    let frame = |(function, line): (String, Option<String>)| StackFrame {
        function: function.into(),
        line: line.map(Into::into),
        library: Arc::clone(&library),
        named: true,
    };
    found.into_iter().map(frame).collect()
}

fn is_in_helper_library(frame: &StackFrame) -> bool {
    let library = short(&frame.library);
    HELPER_LIBRARIES.iter().any(|name| library.starts_with(name))
}

fn is_helper(frame: &StackFrame) -> bool {
    let function = frame.function.trim_start_matches('<');
    let is_known = HELPER_FUNCTIONS.iter().any(|name| function.starts_with(name));
    is_in_helper_library(frame) || is_known || is_of_rust_library(&frame.function)
}

/// Whether the method of a trait is code of Rust's library although its type is not. Example: `vec![0u8; n]` calls
/// `<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem`. A method of `core` or `std` for a type of the program
/// may be code of the program; those of `alloc` are implemented for all types.
fn is_of_rust_library(function: &str) -> bool {
    let method = function.strip_prefix('<').and_then(|rest| rest.split_once(" as "));
    method.is_some_and(|(of, name)| {
        let is_primitive = !of.contains("::");
        name.starts_with("alloc::")
            || (is_primitive && (name.starts_with("core::") || name.starts_with("std::")))
    })
}

/// The innermost frame that is not a helper. Programs without symbols have none with a name.
fn site(frames: &[StackFrame]) -> Option<&StackFrame> {
    let innermost = |is: fn(&StackFrame) -> bool| frames.iter().rev().find(|f| is(f));
    innermost(|f| f.named && !is_helper(f))
        .or_else(|| innermost(|f| !f.library.is_empty() && !is_in_helper_library(f)))
        .or_else(|| innermost(|_| true))
}

fn label(row: &StackRow, by: CodeBy) -> String {
    let none = || "(no stack)".to_owned();
    match by {
        CodeBy::Thread => row.thread.clone(),
        CodeBy::Path if !row.frames.is_empty() => {
            row.frames.iter().map(|f| &*f.function).collect::<Vec<_>>().join(" > ")
        }
        CodeBy::Path | CodeBy::Data => none(),
        CodeBy::Function => site(&row.frames).map_or_else(none, |f| f.function.to_string()),
        CodeBy::Library => site(&row.frames).map_or_else(none, |f| match &*f.library {
            "" => "[unknown]".to_owned(),
            path => short(path).to_owned(),
        }),
        CodeBy::Line => site(&row.frames).map_or_else(none, |f| match &f.line {
            Some(line) => format!("{} {line}", f.function),
            None => f.function.to_string(),
        }),
    }
}

pub(super) fn by_stack(stacks: &[(StackRow, HeatSum)], by: CodeBy) -> Vec<CodeRow> {
    let mut rows: BTreeMap<String, (u64, HeatSum)> = BTreeMap::new();
    for (row, sum) in stacks {
        let (stacks, total) = rows.entry(label(row, by)).or_default();
        *stacks += 1;
        *total += *sum;
    }
    sorted(rows.into_iter().map(|(name, (stacks, sum))| CodeRow {
        name,
        stacks,
        memory: CodeMemory::of(&sum),
    }))
}

/// Memory by global variable and by mapping, which requires no samples.
pub(super) fn by_data(
    views: &[&TargetView],
    options: &Options,
    variables: &BTreeMap<TargetId, Vec<(AddrRange, String)>>,
) -> Vec<CodeRow> {
    let mut rows: BTreeMap<&str, (HeatBytes, f64)> = BTreeMap::new();
    for &view in views {
        let variables = variables.get(&view.id).map(Vec::as_slice).unwrap_or_default();
        each_piece(view, options.filter.clip(), |region, mapping| {
            let mapping =
                mapping.and_then(|i| view.mappings.get(i)).map_or("(no mapping)", label_of);
            cut(
                region.range,
                variables,
                |(range, _)| *range,
                |range, variable| {
                    let bytes = RegionView { range, ..*region }.bytes(&options.thresholds);
                    let variable = variable.and_then(|i| variables.get(i));
                    let name = variable.map_or(mapping, |(_, name)| name);
                    let (total, idle) = rows.entry(name).or_default();
                    *total += bytes;
                    *idle += bytes.cold as f64 * ms(region.age);
                },
            );
        });
    }
    sorted(rows.into_iter().map(|(name, (bytes, idle))| CodeRow {
        name: name.to_owned(),
        stacks: 0,
        memory: CodeMemory::exact(&bytes, idle),
    }))
}

/// The most cold bytes first, then the most bytes.
fn sorted(rows: impl Iterator<Item = CodeRow>) -> Vec<CodeRow> {
    let mut rows: Vec<CodeRow> = rows.filter(|r| r.memory.of_any_heat.bytes > 0.0).collect();
    let key = |r: &CodeRow| (r.memory.cold.bytes, r.memory.of_any_heat.bytes);
    rows.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_the_innermost_function_of_the_program() {
        let frame = |function: &str, library: &str, named| StackFrame {
            function: function.into(),
            line: None,
            library: library.into(),
            named,
        };
        let app = |name| frame(name, "/app", true);
        let stack = [
            app("main"),
            app("fill"),
            app("<alloc::vec::Vec<u8> as core::clone::Clone>::clone"),
            frame("__memset_avx2", "/lib/libc.so.6", true),
        ];
        assert_eq!(site(&stack).map(|f| &*f.function), Some("fill"));
        assert_eq!(site(&stack[3..]).map(|f| &*f.function), Some("__memset_avx2"));
        for (function, is_own) in [
            ("<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem", false),
            ("<app::Key as alloc::slice::hack::ConvertVec>::to_vec", false),
            ("<&str as core::convert::Into<alloc::string::String>>::into", false),
            (
                "_ZSt9__fill_a1IcEN9__gnu_cxx11__enable_ifIXsrSt9__is_byteIT_E7__valueEvE6__typeEPS3_S7_RKS3_",
                false,
            ),
            ("<app::Index as core::clone::Clone>::clone", true),
            ("<u8 as app::Fill>::fill", true),
        ] {
            let found = site(&[stack[1].clone(), app(function)]).unwrap().function.clone();
            assert_eq!(&*found, if is_own { function } else { "fill" });
        }
        let stripped = [
            frame("__libc_start_main", "/lib/libc.so.6", true),
            frame("app+0x10", "/app", false),
            frame("app+0x20", "/app", false),
            frame("[unknown]", "", false),
            frame("libmimalloc.so.2.0+0x30", "/lib/libmimalloc.so.2.0", false),
        ];
        assert_eq!(site(&stripped).map(|f| &*f.function), Some("app+0x20"));
        assert_eq!(site(&[]), None);
    }
}
