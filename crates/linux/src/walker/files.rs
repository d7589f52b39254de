//! What a process has open by which others may reach its memory.

use std::path::Path;

use super::task_iter::written;
use super::{WalkError, Walker};
use crate::proc::{self, Descriptor, Holdings};

/// Size of `struct open_file` in `files.bpf.h`.
const FILE: usize = 40;
/// Most files looked at, of those that may matter.
const MAX_FILES: usize = 65_536;

impl Walker {
    /// What process `pid` holds that hides accesses to its memory; nothing if there is no such process.
    ///
    /// # Errors
    /// If the program does not run.
    pub(crate) fn holdings(&self, root: &Path, pid: i32) -> Result<Holdings, WalkError> {
        Ok(proc::holdings_of(root, pid, self.descriptors(root, pid)?.into_iter()))
    }

    /// Devices, and what lies in no directory.
    fn descriptors(&self, root: &Path, pid: i32) -> Result<Vec<Descriptor>, WalkError> {
        let failed = |e: std::io::Error| WalkError::Run(format!("the list of open files: {e}"));
        let files = written(&self.skel.progs.list_files, pid, MAX_FILES * FILE).map_err(failed)?;
        let (files, _) = files.as_chunks();
        Ok(files.iter().filter_map(|file| descriptor(root, file)).collect())
    }
}

/// None of a device that the kernel has no name for, such as a terminal.
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

    use rustix::event::{EventfdFlags, epoll, eventfd};

    use super::*;
    use crate::walker::{Reading, own_pid};

    /// In the words of `/proc/PID/fd`, which tells of all files.
    #[test]
    fn the_files_of_a_process_are_those_that_proc_shows() {
        if !rustix::process::geteuid().is_root() {
            let all = std::env::var_os("ISOTHERM_REQUIRE_ALL").is_some();
            assert!(!all, "running BPF takes root");
            return;
        }
        let root = Path::new("/");
        let _open = [
            eventfd(0, EventfdFlags::empty()).unwrap(),
            epoll::create(epoll::CreateFlags::empty()).unwrap(),
            File::open("/dev/null").unwrap().into(),
            File::open("/proc/self/status").unwrap().into(),
            File::open("/dev/loop-control").or_else(|_| File::open("/dev/fuse")).unwrap().into(),
        ];
        for reading in [Reading::Direct, Reading::Iterator] {
            let walker = Walker::load(reading).unwrap();
            // Other tests open and close files meanwhile.
            let same = (0..100).any(|_| {
                let shown: Vec<Descriptor> = proc::descriptors(root, own_pid()).collect();
                let matters = |d: &&Descriptor| {
                    let is_common = d.link == "/dev/null" || d.link.starts_with("/dev/pts");
                    d.link.starts_with("anon_inode:") || d.link.starts_with("/dev/") && !is_common
                };
                let expected: Vec<&Descriptor> = shown.iter().filter(matters).collect();
                let told = walker.descriptors(root, own_pid()).unwrap();
                let told = told.iter().filter(|d| d.link != "anon_inode:bpf_iter");
                expected.len() >= 3 && told.collect::<Vec<_>>() == expected
            });
            assert!(same, "{reading:?}: {:?}", walker.descriptors(root, own_pid()));
        }
        let walker = Walker::fastest().unwrap();
        assert_eq!(walker.descriptors(root, i32::MAX).unwrap(), []);
    }
}
