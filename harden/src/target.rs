//! Processes for the program to watch, which this program becomes.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use rustix::thread::set_name;

/// Memory of a target in bytes, and the part of it that the target keeps touching.
const TARGET_BYTES: usize = 8 << 20;
const HOT_BYTES: usize = 1 << 20;
const PAGE: usize = 4096;
/// Mappings of a target that has as many as the kernel permits by default.
const AREAS: usize = 65_000;

/// The behaviour of a target, in addition to touching memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Behaviour {
    /// nothing else
    Touch,
    /// touches its memory once, and sleeps: a process that the program must not touch
    Canary,
    /// has children that end at once
    Fork,
    /// becomes this program repeatedly
    Exec,
    /// maps and unmaps memory
    Unmap,
    /// has 65,000 mappings
    Areas,
    /// has 65,000 mappings of a file whose path has 5 KB
    LongPath,
    /// maps code of a file, and puts a pipe in its place
    Pipe,
    /// changes its name to control characters and back
    Rename,
    /// ends within a second
    Die,
    /// stops, and ends only when it is killed
    Stop,
    /// enters other namespaces
    Namespaces,
}

/// The name of targets that misbehave.
pub const ODD_NAME: &str = "odd";

/// A running target, ended when dropped.
pub struct TargetProcess(Child);

impl TargetProcess {
    /// A target with this behaviour.
    pub fn start(deed: Behaviour) -> Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg("target").arg(name(deed));
        TargetProcess::by(&mut command)
    }

    /// A target that `strace` traces.
    pub fn traced() -> Result<Self> {
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-o", "/dev/null", "/tmp/harden", "target", "touch"]);
        TargetProcess::by(&mut command)
    }

    fn by(command: &mut Command) -> Result<Self> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(TargetProcess(quiet.spawn().context("cannot start a target")?))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn name(deed: Behaviour) -> String {
    deed.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The work of a target. It ends with its parent.
pub fn be(deed: Behaviour) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    rename(if deed == Behaviour::Canary { "canary" } else { ODD_NAME })?;
    let mut memory = vec![1_u8; TARGET_BYTES];
    for turn in 0_u64.. {
        for byte in memory[..HOT_BYTES].iter_mut().step_by(PAGE) {
            *byte = std::hint::black_box(byte.wrapping_add(1));
        }
        match deed {
            Behaviour::Touch => {}
            Behaviour::Canary => loop {
                std::thread::park();
            },
            Behaviour::Fork => drop(Command::new("/bin/true").status()),
            Behaviour::Exec if turn > 3 => {
                let again = Command::new("/proc/self/exe").args(["target", "exec"]).exec();
                return Err(again).context("exec");
            }
            Behaviour::Unmap => unmap(turn)?,
            Behaviour::Areas if turn == 0 => areas()?,
            Behaviour::LongPath if turn == 0 => long_path()?,
            Behaviour::Pipe if turn == 0 => pipe()?,
            Behaviour::Rename if turn % 2 == 0 => rename("\u{1b}[2J\n\r\u{7}\u{1b}]0;")?,
            Behaviour::Rename => rename(ODD_NAME)?,
            Behaviour::Die if turn > u64::from(std::process::id() % 150) => return Ok(()),
            Behaviour::Stop if turn == 60 => kill_process(getpid(), Signal::STOP)?,
            Behaviour::Namespaces if turn == 20 => {
                let mut inside = Command::new("unshare");
                inside.args([
                    "--mount",
                    "--net",
                    "--ipc",
                    "--uts",
                    "/tmp/harden",
                    "target",
                    "touch",
                ]);
                return Err(inside.exec()).context("unshare");
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn rename(name: &str) -> Result<()> {
    Ok(set_name(&CString::new(name)?)?)
}

/// Maps memory, touches it, makes a hole, and unmaps it.
fn unmap(turn: u64) -> Result<()> {
    let size = (64 << 10) << (turn % 5);
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    for _ in 0..20 {
        // SAFETY: the mapping is new, and nothing refers to it after `munmap`.
        unsafe {
            let start = mmap_anonymous(std::ptr::null_mut(), size, prot, MapFlags::PRIVATE)?;
            for at in (0..size).step_by(PAGE) {
                start.byte_add(at).cast::<u8>().write_volatile(1);
            }
            munmap(start.byte_add(size / 4), size / 4)?;
            munmap(start, size / 4)?;
            munmap(start.byte_add(size / 2), size / 2)?;
        }
    }
    Ok(())
}

fn areas() -> Result<()> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the mapping is new, and nothing refers to it.
    unsafe {
        let start = mmap_anonymous(std::ptr::null_mut(), AREAS * PAGE, prot, MapFlags::PRIVATE)?;
        split(start);
    }
    Ok(())
}

/// The kernel opens no path of this length, but a process can go there step by step.
fn long_path() -> Result<()> {
    std::env::set_current_dir(std::env::temp_dir())?;
    for depth in 0..20 {
        let folder = format!("{}{}", std::process::id(), "n".repeat(240));
        fs::create_dir(&folder).with_context(|| format!("folder {depth}"))?;
        std::env::set_current_dir(folder)?;
    }
    let file = File::options().read(true).write(true).create_new(true).open("file")?;
    file.set_len((AREAS * PAGE) as u64)?;
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the mapping is new, and nothing refers to it.
    unsafe {
        let flags = MapFlags::PRIVATE;
        split(mmap(std::ptr::null_mut(), AREAS * PAGE, prot, flags, &file, 0)?);
    }
    Ok(())
}

/// The kernel names the removed file as the pipe is named.
fn pipe() -> Result<()> {
    let path = std::env::temp_dir().join(format!("code-{}", std::process::id()));
    let path = path.display().to_string();
    fs::write(&path, [0; PAGE])?;
    let (file, prot) = (File::open(&path)?, ProtFlags::READ | ProtFlags::EXEC);
    // SAFETY: the mapping is new, and nothing refers to it.
    unsafe { mmap(std::ptr::null_mut(), PAGE, prot, MapFlags::PRIVATE, &file, 0)? };
    fs::remove_file(&path)?;
    let mode = Mode::RUSR | Mode::WUSR;
    Ok(mknodat(CWD, format!("{path} (deleted)"), FileType::Fifo, mode, 0)?)
}

/// Gives every second page other permissions, so that each page is a mapping.
///
/// # Safety
/// Nothing refers to the [`AREAS`] pages of memory at `start`.
unsafe fn split(start: *mut std::ffi::c_void) {
    // SAFETY: the caller.
    unsafe {
        for area in 0..AREAS {
            let page = start.byte_add(area * PAGE);
            page.cast::<u8>().write_volatile(1);
            // The last ones may exceed the limit of the kernel.
            if area % 2 == 0 && mprotect(page, PAGE, MprotectFlags::READ).is_err() {
                break;
            }
        }
    }
}
