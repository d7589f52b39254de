//! Why there can be no swap in compressed memory.

use std::io;
use std::path::PathBuf;

use crate::proc::ProcError;
use crate::state::hint;

/// Why swap in compressed memory cannot be made or taken away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// no zram
    #[error("there is no zram here ({path} is missing): load the module (modprobe zram)")]
    NoZram {
        /// what is missing
        path: PathBuf,
    },
    /// a senseless size
    #[error(
        "swap of {bytes} bytes makes no sense: choose {} MiB to {} MiB, twice the memory of this machine",
        .shortest >> 20, .longest >> 20
    )]
    Size {
        /// as asked for
        bytes: u64,
        /// at least
        shortest: u64,
        /// at most
        longest: u64,
    },
    /// there is some already
    #[error(
        "isotherm has made {device} already, of {} MiB: {restore} takes it away; or give yours another name (--name NAME)",
        .bytes >> 20
    )]
    InUse {
        /// which
        device: PathBuf,
        /// its size
        bytes: u64,
        /// what to type
        restore: String,
    },
    /// a name that makes no sense as that of a file
    #[error(
        "swap cannot be called `{0}`: write 1 to 64 letters, digits, `-`, `_` and `.`, no `.` first"
    )]
    Name(String),
    /// not made
    #[error(
        "isotherm has made no swap called {0} (or the machine was started anew since): isotherm system swap zram SIZE --name {0} makes some"
    )]
    NoSuch(String),
    /// of others
    #[error(
        "{device} is not taken away, as others have memory in swap that would be brought back: {who}. End them, or say --force"
    )]
    Foreign {
        /// which
        device: PathBuf,
        /// with how much
        who: String,
    },
    /// it would not fit
    #[error(
        "{device} is not taken away, as {need} would come back to {place}, which has room for {room}: processes would be killed. End something that needs memory there, or raise the limit, and try again"
    )]
    NoRoom {
        /// which
        device: PathBuf,
        /// where
        place: String,
        /// how much
        need: String,
        /// how much there is
        room: String,
    },
    /// somebody else's
    #[error(
        "{device} is not as isotherm has made it, and is left alone: somebody else has set it to {bytes} bytes. Remove {noted} if that is as it should be"
    )]
    NotOurs {
        /// which
        device: PathBuf,
        /// its size
        bytes: u64,
        /// the file in which it is noted
        noted: PathBuf,
    },
    /// a file
    #[error("cannot {what} {path}: {source}{}", hint(.source))]
    File {
        /// read or write
        what: &'static str,
        /// which
        path: PathBuf,
        /// why
        source: io::Error,
    },
    /// what is noted
    #[error(
        "{0} holds what isotherm does not understand: swapon --show tells what there is; remove that file when it is right"
    )]
    Noted(PathBuf),
    /// two at once
    #[error("another isotherm is making or taking away swap: try again when it has done so")]
    Busy,
    /// swapon
    #[error("cannot swap to {device}: {source}{}", hint(.source))]
    On {
        /// which
        device: PathBuf,
        /// why
        source: io::Error,
    },
    /// swapoff
    #[error("cannot take back what is in {device}: {source}{}", off_hint(.source))]
    Off {
        /// which
        device: PathBuf,
        /// why
        source: io::Error,
    },
    /// neither made nor taken away again
    #[error("{why}. What was added for it cannot be taken away: {removal}. Do it by: {how}")]
    Left {
        /// why there is no swap
        why: Box<SwapError>,
        /// why the device stays
        removal: Box<SwapError>,
        /// what to type
        how: String,
    },
    /// from `/proc`
    #[error(transparent)]
    Proc(#[from] ProcError),
}

fn off_hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::OutOfMemory => {
            ". Memory is too short for it: end something that needs much of it, and try again"
        }
        _ => hint(e),
    }
}
