//! Runs programs of the types `iter/task` and `iter/task_file` for one process.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::{ProgramMut, libbpf_sys};

use super::WalkError;

/// Links of the program to processes, by pid in isotherm's own pid namespace. Each run resolves the pid again.
#[derive(Debug, Default)]
pub(super) struct TaskIter(HashMap<i32, OwnedFd>);

/// Maximal number of links; each one uses a descriptor.
const MAX_LINKS: usize = 256;

impl TaskIter {
    /// Runs the program for process `pid`; does nothing if there is no such process.
    pub(super) fn run(&mut self, program: &ProgramMut<'_>, pid: i32) -> Result<(), WalkError> {
        let failed = |e| WalkError::failed("the task iterator", e);
        if !self.0.contains_key(&pid) {
            if self.0.len() >= MAX_LINKS {
                self.0.clear();
            }
            self.0.insert(pid, link(program, pid).map_err(failed)?);
        }
        let Some(link) = self.0.get(&pid) else { return Ok(()) };
        match begin(link).map_err(failed)?.read(&mut [0; 8]) {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            Err(e) => Err(failed(e)),
        }
    }
}

/// The output of the program for process `pid`, or for all with 0, at most `limit` bytes; nothing if there is no
/// such process.
pub(crate) fn written(program: &ProgramMut<'_>, pid: i32, limit: usize) -> io::Result<Vec<u8>> {
    let mut iter = begin(&link(program, pid)?)?;
    let (mut out, mut part) = (Vec::new(), [0; 4096]);
    while out.len() < limit {
        match iter.read(&mut part) {
            Ok(0) => break,
            Ok(n) => out.extend_from_slice(part.get(..n).unwrap_or_default()),
            // The kernel returns this after a million objects without output: continue reading.
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(out)
}

fn begin(link: &OwnedFd) -> io::Result<File> {
    // SAFETY: the call uses no memory; the returned descriptor has no other owner.
    unsafe {
        let fd = libbpf_sys::bpf_iter_create(link.as_raw_fd());
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(File::from_raw_fd(fd)) }
    }
}

fn link(program: &ProgramMut<'_>, pid: i32) -> io::Result<OwnedFd> {
    let mut info = libbpf_sys::bpf_iter_link_info::default();
    info.task.tid = u32::try_from(pid).map_err(io::Error::other)?;
    let opts = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        iter_info: &raw mut info,
        iter_info_len: u32::try_from(size_of_val(&info)).unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: `opts` and `info` live until the call returns; the returned descriptor has no other owner.
    unsafe {
        let fd = libbpf_sys::bpf_link_create(
            program.as_fd().as_raw_fd(),
            0,
            libbpf_sys::BPF_TRACE_ITER,
            &raw const opts,
        );
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}
