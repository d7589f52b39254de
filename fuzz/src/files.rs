//! Files that isotherm parses itself: those of a lake, and those that processes execute.

use std::fs;
use std::panic::{set_hook, take_hook};
use std::path::PathBuf;
use std::sync::{LazyLock, Once};

use isotherm_linux::allocations::Probe;
use isotherm_linux::code::{CodeReader, Functions};
use isotherm_linux::faults::StackCopy;
use isotherm_linux::unwind::{StackUnwinder, UnwindTables};
use tempfile::TempDir;

use crate::bounded;

/// Maximum number of rows of a file of a lake here: a row needs up to 1 KiB.
const MAX_ROWS: usize = 32 << 10;

/// Reads a Parquet file of a lake. Each row must belong to a group.
pub fn lake_file(bytes: &[u8]) -> bool {
    static HOOK: Once = Once::new();
    // isotherm catches panics of parquet, at which the hook of libFuzzer would end the target. It still ends at others.
    HOOK.call_once(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |at| at.file());
            if !["/parquet-", "/bytes-"].iter().any(|library| file.contains(library)) {
                hook(panic);
            }
        }));
    });
    bounded(|| {
        if let Ok(rows) = isotherm_fleet::decode(bytes.to_vec(), MAX_ROWS) {
            assert!(rows.rows.len() <= MAX_ROWS, "{} rows", rows.rows.len());
            assert!(rows.rows.iter().all(|row| (row.group as usize) < rows.groups.len()));
        }
        true
    })
}

/// The process that executes the input.
const PID: i32 = 7;
/// Where its file is mapped.
const START: u64 = 0x40_0000;

/// The root of a machine with this process, and the executed file.
struct Machine {
    root: TempDir,
    file: PathBuf,
}

static MACHINE: LazyLock<Machine> = LazyLock::new(|| {
    let root = TempDir::new().unwrap();
    let process = root.path().join("proc/7");
    fs::create_dir_all(process.join("root")).unwrap();
    let maps = "00400000-00410000 r-xp 00000000 08:01 7 /program\n";
    fs::write(process.join("maps"), maps).unwrap();
    Machine { file: process.join("root/program"), root }
});

/// Reads the build id, the functions, the variables and the tables for unwinding of a file that a process executes.
pub fn elf_file(bytes: &[u8]) -> bool {
    let Machine { root, file } = &*MACHINE;
    // A new file, as isotherm keeps what it knows of an old one.
    let _ = fs::remove_file(file);
    fs::write(file, bytes).unwrap();
    bounded(|| {
        let code = CodeReader::default().read(root.path(), PID).unwrap();
        let (mapped, id) = code.first().expect("the process executes a file");
        let mut functions = Functions::default();
        // The entry of the program is the begin of a function.
        let entry =
            bytes.get(24..32).and_then(|entry| Some(u64::from_le_bytes(entry.try_into().ok()?)));
        for offset in [entry.unwrap_or(0), 0x18, 0x1008] {
            let _ = functions.in_file(file, id, offset);
        }
        let variables = functions.variables(file, id, START, 0);
        assert!(variables.is_sorted_by_key(|(range, _)| range.start));
        let mut tables = UnwindTables::default();
        let below = root.path().join("proc/7/root");
        let mut unwinder = StackUnwinder::new(&below, [mapped].into_iter(), &mut tables);
        for at in [entry.unwrap_or(0), 0x18, 0x1008] {
            let stack = [0x10; 512].into();
            let registers = [0x1000, 0x1000, START.wrapping_add(at)];
            let frames = unwinder.frames(&StackCopy { registers, bytes: stack });
            assert!(!frames.is_empty());
        }
        let _ = Probe::of(file);
        true
    })
}
