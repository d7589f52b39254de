//! Open files of a process through which others may access its memory.

use std::path::Path;

use super::task_iter::written;
use super::{WalkError, Walker};
use crate::proc::{self, Descriptor, Holdings, MAX_FDS};

/// Size of `struct open_file` in `files.bpf.h`.
const FILE: usize = 40;

impl Walker {
    /// The open files of process `pid` that hide accesses to its memory; none if there is no such process.
    ///
    /// # Errors
    /// If the BPF program does not run.
    pub(crate) fn holdings(
        &mut self,
        root: &Path,
        pid: i32,
        before: &Holdings,
    ) -> Result<Holdings, WalkError> {
        Ok(proc::holdings_of(root, pid, self.descriptors(root, pid)?, before))
    }

    /// The open devices and anonymous files, and whether the list is complete.
    fn descriptors(&mut self, root: &Path, pid: i32) -> Result<(Vec<Descriptor>, bool), WalkError> {
        let failed = |e| WalkError::failed("the list of open files", e);
        let files = written(&self.skel.progs.list_files, pid, MAX_FDS * FILE).map_err(failed)?;
        let (files, _) = files.as_chunks();
        let known = files.iter().filter_map(|file| descriptor(root, file)).collect();
        Ok((known, files.len() < MAX_FDS))
    }
}

/// `None` for a device without a name in the kernel, such as a terminal.
fn descriptor(root: &Path, file: &[u8; FILE]) -> Option<Descriptor> {
    let [fd, device, ..] = *file.as_chunks().0 else { return None };
    let [fd, device] = [fd, device].map(u32::from_ne_bytes);
    let name = file.get(8..)?.split(|&b| b == 0).next()?;
    let link = match device {
        0 => format!("anon_inode:{}", String::from_utf8_lossy(name)),
        _ => proc::device(root, device >> 20, device & 0xf_ffff)?,
    };
    Some(Descriptor { fd, link })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{FromRawFd, OwnedFd};
    use std::os::unix::fs::{FileTypeExt, MetadataExt};

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::walker::{WalkMethod, own_pid};

    /// A ring of `io_uring`, if the kernel has them.
    fn ring() -> Option<OwnedFd> {
        // `struct io_uring_params` without any request.
        let mut params = [0u64; 15];
        // SAFETY: the kernel fills in the parameters, and no other object owns the descriptor.
        unsafe {
            let fd = libc::syscall(libc::SYS_io_uring_setup, 1, params.as_mut_ptr());
            Some(OwnedFd::from_raw_fd(i32::try_from(fd).ok().filter(|fd| *fd >= 0)?))
        }
    }

    /// A device, except for those that almost every process has, or a file whose name is similar to those of
    /// rings, virtual machines and devices.
    fn matters(d: &Descriptor) -> bool {
        if let Some(name) = d.link.strip_prefix("anon_inode:") {
            return ["k", "[v", "[i"].iter().any(|begin| name.starts_with(begin));
        }
        let file = std::fs::metadata(format!("/proc/self/fd/{}", d.fd));
        let major = file.ok().filter(|m| m.file_type().is_char_device()).map(|m| m.rdev() >> 8);
        major.is_some_and(|major| ![1, 4, 5].contains(&major) && !(136..144).contains(&major))
    }

    /// In the form of `/proc/PID/fd`, which lists all files.
    #[test]
    fn the_files_of_a_process_are_those_that_proc_shows() {
        if !rustix::process::geteuid().is_root() {
            let all = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
            assert!(!all, "running BPF requires root");
            return;
        }
        let root = Path::new("/");
        let ring = ring();
        let _open = [
            eventfd(0, EventfdFlags::empty()).unwrap(),
            File::open("/dev/null").unwrap().into(),
            File::open("/proc/self/status").unwrap().into(),
            File::open("/dev/loop-control").or_else(|_| File::open("/dev/fuse")).unwrap().into(),
        ];
        for reading in [WalkMethod::Direct, WalkMethod::Iterator] {
            let mut walker = Walker::load(reading).unwrap();
            // Other tests open and close files at the same time.
            let same = (0..100).any(|_| {
                let shown: Vec<Descriptor> = proc::descriptors(root, own_pid()).collect();
                let expected: Vec<&Descriptor> = shown.iter().filter(|d| matters(d)).collect();
                let (found, _) = walker.descriptors(root, own_pid()).unwrap();
                expected.len() > usize::from(ring.is_some())
                    && found.iter().collect::<Vec<_>>() == expected
            });
            assert!(same, "{reading:?}: {:?}", walker.descriptors(root, own_pid()));
        }
        let mut walker = Walker::fastest().unwrap();
        assert_eq!(walker.descriptors(root, i32::MAX).unwrap(), (vec![], true));
    }
}
