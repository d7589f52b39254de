//! `/proc/PID/fd`: descriptors through which memory is accessed without the CPU's own page tables.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use isotherm_core::{AddrRange, Unknown};

use super::{pid_file, read_limited, read_up_to};

/// Objects that a process holds and that hide accesses to its memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    /// a virtual machine, or a device that accesses all of the process's memory
    pub everything: Option<Unknown>,
    /// buffers that `io_uring` has fixed, by the descriptor of the ring
    rings: BTreeMap<u32, Vec<AddrRange>>,
    /// The process may hold more: not all of its descriptors could be read.
    is_incomplete: bool,
}

impl Holdings {
    /// All memory, or the buffers of one ring.
    #[cfg(test)]
    pub(crate) fn of(everything: Option<Unknown>, fixed: Vec<AddrRange>) -> Self {
        Holdings { everything, rings: BTreeMap::from([(3, fixed)]), is_incomplete: false }
    }

    /// The reason for which no access to its memory can be observed, if there is one.
    #[must_use]
    pub fn hides_all(&self) -> Option<Unknown> {
        self.everything.or(self.is_incomplete.then_some(Unknown::Dma))
    }

    /// The memory that is fixed for devices, sorted.
    #[must_use]
    pub fn ranges(&self) -> Vec<AddrRange> {
        let mut ranges: Vec<AddrRange> = self.rings.values().flatten().copied().collect();
        ranges.sort_unstable();
        ranges
    }
}

/// Maximum number of descriptors to read. A process with more may hold any object.
pub(crate) const MAX_FDS: usize = 65_536;
/// The kernel may be working on a ring; reading it is repeated for this time.
const TIMEOUT: Duration = Duration::from_millis(2);
const PAUSE: Duration = Duration::from_micros(200);

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// its number
    pub fd: u32,
    /// its object, as `/proc/PID/fd` shows it
    pub link: String,
}

/// Reads the descriptors of `pid`, whose previous result is `before`. An unreadable descriptor hides nothing.
#[must_use]
pub fn holdings(root: &Path, pid: i32, before: &Holdings) -> Holdings {
    let descriptors: Vec<Descriptor> = descriptors(root, pid).collect();
    let all = descriptors.len() < MAX_FDS;
    holdings_of(root, pid, (descriptors, all), before)
}

/// The open descriptors of `pid`, as far as they can be read.
pub(crate) fn descriptors(root: &Path, pid: i32) -> impl Iterator<Item = Descriptor> {
    let fds = std::fs::read_dir(pid_file(root, pid, "fd")).into_iter().flatten().flatten();
    fds.take(MAX_FDS).filter_map(|fd| {
        let link = std::fs::read_link(fd.path()).ok()?.to_string_lossy().into_owned();
        Some(Descriptor { fd: fd.file_name().to_str()?.parse().ok()?, link })
    })
}

/// The effect of these descriptors of `pid` on its memory; `all` states whether they are complete. For busy
/// rings the result of `before` stays.
pub(crate) fn holdings_of(
    root: &Path,
    pid: i32,
    (descriptors, all): (Vec<Descriptor>, bool),
    before: &Holdings,
) -> Holdings {
    let mut found = Holdings { is_incomplete: !all, ..Holdings::default() };
    let mut busy = Vec::new();
    for Descriptor { fd, link } in descriptors {
        if let Some(why) = hides(&link) {
            // Devices hide more than guests do: kernel DAMON observes the accesses of a guest.
            found.everything =
                Some(if found.everything == Some(Unknown::Dma) { Unknown::Dma } else { why });
        } else if link.starts_with("anon_inode:[io_uring]") {
            busy.push(fd);
        }
    }
    let begin = Instant::now();
    loop {
        busy.retain(|&fd| {
            match buffers_of_ring(&pid_file(root, pid, "fdinfo").join(fd.to_string())) {
                Ring::Buffers(ranges) => drop(found.rings.insert(fd, ranges)),
                Ring::Unreadable => found.is_incomplete = true,
                Ring::IsBusy => return true,
            }
            false
        });
        if busy.is_empty() || begin.elapsed() >= TIMEOUT {
            break;
        }
        std::thread::sleep(PAUSE);
    }
    for fd in busy {
        match before.rings.get(&fd) {
            Some(ranges) => drop(found.rings.insert(fd, ranges.clone())),
            None => found.is_incomplete = true,
        }
    }
    found
}

/// The path below `/dev` of a character device, by the kernel's name. `None` if the device has no name, such
/// as a terminal, and [`ANY_DEVICE`] if the name cannot be read.
pub(crate) fn device(root: &Path, major: u32, minor: u32) -> Option<String> {
    let devices = root.join("sys/dev/char");
    match read_up_to(&devices.join(format!("{major}:{minor}/uevent")), 4096) {
        Ok(text) => {
            let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
            Some(format!("/dev/{name}"))
        }
        Err(e) if e.kind() == ErrorKind::NotFound && devices.exists() => None,
        Err(_) => Some(ANY_DEVICE.to_owned()),
    }
}

/// Stands for an unknown device, which may hide memory. Devices without a name cannot.
const ANY_DEVICE: &str = "/dev/?";

/// The reason if this is a KVM VM, VFIO (by group, container, device or iommufd), or RDMA verbs.
fn hides(link: &str) -> Option<Unknown> {
    if link.starts_with("anon_inode:kvm-v") {
        return Some(Unknown::Kvm);
    }
    let devices = [
        "/dev/vfio/",
        "anon_inode:[vfio-device]",
        "/dev/iommu",
        "/dev/infiniband/uverbs",
        ANY_DEVICE,
    ];
    devices.iter().any(|d| link.starts_with(d)).then_some(Unknown::Dma)
}

/// The result of reading the buffers of a ring.
enum Ring {
    Buffers(Vec<AddrRange>),
    /// the kernel is working on the ring
    IsBusy,
    /// the ring cannot be read
    Unreadable,
}

/// The buffers in the ring's file in `fdinfo`. A ring that has been closed holds none.
fn buffers_of_ring(fdinfo: &Path) -> Ring {
    match read_limited(fdinfo, 4 << 20).map(|text| fixed_buffers(&text)) {
        Ok(Some(ranges)) => Ring::Buffers(ranges),
        Ok(None) => Ring::IsBusy,
        Err(e) if e.is_gone() => Ring::Buffers(Vec::new()),
        Err(_) => Ring::Unreadable,
    }
}

/// After `UserBufs:\t2` follows a line for each buffer: `    0: 0x7f0000000000/65536`, widened to pages here,
/// or `    0: <none>`. `None` if lines are missing: the kernel omits them while it works on the ring.
fn fixed_buffers(text: &str) -> Option<Vec<AddrRange>> {
    let mut lines = text.lines().skip_while(|l| !l.starts_with("UserBufs:"));
    let count: usize = lines.next()?.split_once(':')?.1.trim().parse().ok()?;
    let buffers: Vec<&str> = lines.map_while(|l| Some(l.split_once(": ")?.1)).take(count).collect();
    let range = |b: &&str| {
        let (address, len) = b.strip_prefix("0x")?.split_once('/')?;
        let start = u64::from_str_radix(address, 16).ok()?;
        let end = start.checked_add(len.trim().parse().ok()?)?.checked_next_multiple_of(4096)?;
        Some(AddrRange::new(start / 4096 * 4096, end))
    };
    (buffers.len() == count).then(|| buffers.iter().filter_map(range).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::testing::put;

    fn held(root: &tempfile::TempDir) -> Holdings {
        holdings(root.path(), 7, &Holdings::default())
    }

    fn tree(links: &[(&str, &str)], fdinfo: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for dir in ["fd", "fdinfo"] {
            std::fs::create_dir_all(pid_file(root.path(), 7, dir)).unwrap();
        }
        for (fd, to) in links {
            symlink(to, pid_file(root.path(), 7, "fd").join(fd)).unwrap();
        }
        for (fd, text) in fdinfo {
            std::fs::write(pid_file(root.path(), 7, "fdinfo").join(fd), text).unwrap();
        }
        root
    }

    #[test]
    fn an_ordinary_process_hides_nothing() {
        let root = tree(&[("0", "/dev/null"), ("1", "pipe:[12]"), ("2", "/dev/kvm")], &[]);
        assert_eq!(held(&root), Holdings::default());
    }

    #[test]
    fn kvm_vfio_rdma() {
        for (link, why) in [
            ("anon_inode:kvm-vm", Unknown::Kvm),
            ("anon_inode:kvm-vcpu:0", Unknown::Kvm),
            ("/dev/vfio/12", Unknown::Dma),
            ("anon_inode:[vfio-device]", Unknown::Dma),
            ("/dev/infiniband/uverbs0", Unknown::Dma),
        ] {
            let root = tree(&[("0", "/dev/null"), ("5", link)], &[]);
            assert_eq!(held(&root).everything, Some(why), "{link}");
        }
    }

    #[test]
    fn a_virtual_machine_with_a_device() {
        for links in [["anon_inode:kvm-vm", "/dev/vfio/12"], ["/dev/vfio/12", "anon_inode:kvm-vm"]]
        {
            let root = tree(&[("5", links[0]), ("6", links[1])], &[]);
            assert_eq!(held(&root).everything, Some(Unknown::Dma));
        }
    }

    #[test]
    fn devices_have_the_names_of_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "sys/dev/char/243:0/uevent", "MAJOR=243\nMINOR=0\nDEVNAME=vfio/12\n");
        assert_eq!(device(root.path(), 243, 0).as_deref(), Some("/dev/vfio/12"));
        assert_eq!(device(root.path(), 136, 7), None, "a terminal");
        let nothing = tempfile::tempdir().unwrap();
        let any = device(nothing.path(), 243, 0).unwrap();
        assert_eq!(hides(&any), Some(Unknown::Dma), "without sysfs it may be one");
    }

    #[test]
    fn a_ring_without_information_may_have_fixed_buffers() {
        let ring = |info: &[(&str, &str)]| {
            let root = tree(&[("9", "anon_inode:[io_uring]")], info);
            held(&root).hides_all()
        };
        assert_eq!(ring(&[("9", "pos:\t0\nSqMask:\t0x7\n")]), Some(Unknown::Dma));
        assert_eq!(ring(&[("9", "UserFiles:\t0\nUserBufs:\t2\nPollList:\n")]), Some(Unknown::Dma));
        assert_eq!(ring(&[("9", "UserFiles:\t0\nUserBufs:\t0\nPollList:\n")]), None);
        assert_eq!(ring(&[]), None, "it is closed by now");
    }

    #[test]
    fn a_busy_ring_keeps_its_files() {
        let link = [("9", "anon_inode:[io_uring]")];
        let idle = tree(&link, &[("9", "UserBufs:\t1\n    0: 0x7f0000000000/4096\n")]);
        let before = held(&idle);
        let busy = tree(&link, &[("9", "UserBufs:\t1\n")]);
        assert_eq!(holdings(busy.path(), 7, &before), before);
        assert_eq!(before.ranges(), [AddrRange::new(0x7f00_0000_0000, 0x7f00_0000_1000)]);
        assert_eq!(before.hides_all(), None);
    }

    #[test]
    fn fixed_buffers_of_io_uring() {
        let info = "pos:\t0\nSqMask:\t0x7\nUserFiles:\t0\nUserBufs:\t3\n    0: 0x7f0000000100/4096\n    \
                    1: <none>\n    2: 0x7f0000100000/65536\nPollList:\n  3: 0x1000/1\n";
        let root = tree(&[("9", "anon_inode:[io_uring]")], &[("9", info)]);
        let found = held(&root);
        assert_eq!(found.hides_all(), None);
        let want = [
            AddrRange::new(0x7f00_0000_0000, 0x7f00_0000_2000),
            AddrRange::new(0x7f00_0010_0000, 0x7f00_0011_0000),
        ];
        assert_eq!(found.ranges(), want);
    }
}
