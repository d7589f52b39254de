//! Errors of swap in compressed memory.

use std::io;
use std::path::PathBuf;

use crate::proc::ProcError;
use crate::state::hint;

/// Why swap in compressed memory cannot be made or taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// The kernel has no zram.
    #[error("there is no zram here ({path} is missing): load the module (modprobe zram)")]
    NoZram {
        /// the missing file
        path: PathBuf,
    },
    /// The size is out of range.
    #[error(
        "swap of {bytes} bytes is out of range: choose {} MiB to {} MiB, twice the memory of this machine",
        .shortest >> 20, .longest >> 20
    )]
    Size {
        /// requested size in bytes
        bytes: u64,
        /// minimum in bytes
        shortest: u64,
        /// maximum in bytes
        longest: u64,
    },
    /// Swap of this name already exists.
    #[error(
        "isotherm has already made {device} of {} MiB: {restore} removes it; or choose another \
         name (--name NAME)",
        .bytes >> 20
    )]
    InUse {
        /// its device
        device: PathBuf,
        /// its size in bytes
        bytes: u64,
        /// command that removes it
        restore: String,
    },
    /// A command was killed while it added a device.
    #[error(
        "isotherm was killed while it added a device for swap, and may have left these empty \
         devices: {}. If no other program is about to use them, remove them: {}; or else remove \
         {noted}", devices(.numbers), removal(.numbers)
    )]
    Interrupted {
        /// numbers of the devices without a size that are there since
        numbers: Vec<u32>,
        /// the file that notes it
        noted: PathBuf,
    },
    /// The name cannot be used in a file name.
    #[error(
        "swap cannot be called `{0}`: write 1 to 64 letters, digits, `-`, `_` and `.`, no `.` first"
    )]
    Name(String),
    /// isotherm has made no swap of this name.
    #[error(
        "isotherm has made no swap called {0} (or the machine has rebooted since): isotherm \
         system swap zram SIZE --name {0} makes some"
    )]
    NoSuch(String),
    /// Processes of others have memory in it.
    #[error(
        "{device} is not removed: other programs have memory in swap, which would move back: \
         {who}. End them, or give --force"
    )]
    Foreign {
        /// the device
        device: PathBuf,
        /// the processes, with their bytes
        who: String,
    },
    /// The content does not fit in memory or in the limit of a cgroup.
    #[error(
        "{device} is not removed: {need} would move back to {place}, which has room for {room}, \
         and the kernel would kill processes. End a program that needs memory there, or raise \
         the limit, and try again"
    )]
    NoRoom {
        /// the device
        device: PathBuf,
        /// memory, or the cgroup
        place: String,
        /// size of the content
        need: String,
        /// available space
        room: String,
    },
    /// Another program has changed the device.
    #[error(
        "isotherm leaves {device} alone: another program has changed its size to {bytes} bytes. \
         If that is intended, remove {noted}"
    )]
    NotOurs {
        /// the device
        device: PathBuf,
        /// its size in bytes
        bytes: u64,
        /// the file that notes it
        noted: PathBuf,
    },
    /// A file operation has failed.
    #[error("cannot {what} {path}: {source}{}", hint(.source))]
    File {
        /// read, write or another operation
        what: &'static str,
        /// the file
        path: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// A state file is not readable for this isotherm.
    #[error(
        "{0} has content that isotherm cannot parse: check the swap devices (swapon --show), \
         then remove that file"
    )]
    Noted(PathBuf),
    /// Another isotherm makes or removes this swap now.
    #[error("another isotherm is making or removing swap: try again when it has finished")]
    Busy,
    /// All names of notes are in use.
    #[error(
        "there are {0} notes of swap in /run/isotherm: remove the swap of processes that were killed (isotherm system \
         swap restore)"
    )]
    TooManyNotes(u32),
    /// swapon has failed.
    #[error("cannot swap to {device}: {source}{}", hint(.source))]
    On {
        /// the device
        device: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// swapoff has failed.
    #[error("cannot move the content of {device} back to memory: {source}{}", off_hint(.source))]
    Off {
        /// the device
        device: PathBuf,
        /// error of the system
        source: io::Error,
    },
    /// The device could neither be used nor be removed.
    #[error("{why}. Removing the incomplete swap failed too: {removal}. Remove it by hand: {how}")]
    Left {
        /// why it cannot be used
        why: Box<SwapError>,
        /// why it cannot be removed
        removal: Box<SwapError>,
        /// commands that remove it
        how: String,
    },
    /// error of reading `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
}

fn off_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::OutOfMemory => {
            ". There is too little memory: end a program that uses much of it, and try again"
        }
        _ => hint(e),
    }
}

fn devices(numbers: &[u32]) -> String {
    numbers.iter().map(|n| format!("/dev/zram{n}")).collect::<Vec<_>>().join(", ")
}

fn removal(numbers: &[u32]) -> String {
    let remove = |n| format!("echo {n} > /sys/class/zram-control/hot_remove");
    numbers.iter().map(remove).collect::<Vec<_>>().join("; ")
}
