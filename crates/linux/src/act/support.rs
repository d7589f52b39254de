//! The actions that are possible here, and why others are not.

use std::io;
use std::path::Path;

use isotherm_core::{Action, Destinations, Support};

use super::actions::{huge_pages, weights};
use super::swap_space::SwapSpace;
use crate::numa;
use crate::ops::vaddr::Clearing;
use crate::proc::KPageFlags;
use crate::sys::probe_touch;

/// Whether `action` is possible at this moment.
pub(super) fn support(root: &Path, clearing: Clearing, action: &Action) -> Support {
    never(clearing, action).map_or_else(Support::No, |()| possible(root, action))
}

/// Whether `action` is possible on this machine at this moment, regardless of the way to look.
#[must_use]
pub fn possible(root: &Path, action: &Action) -> Support {
    match action {
        Action::PageOut => SwapSpace::now().check().map_or_else(Support::NotNow, |()| Support::Yes),
        Action::HugePage => huge_pages(root),
        Action::LruPrio => touching(probe_touch()).map_or_else(Support::No, |()| Support::Yes),
        Action::MigrateHot(to) | Action::MigrateCold(to) => {
            nodes(root, to).map_or_else(Support::No, |()| Support::Yes)
        }
        _ => Support::Yes,
    }
}

/// The reason why `action` can never be done, which does not change while isotherm runs.
pub(super) fn never(clearing: Clearing, action: &Action) -> Result<(), String> {
    if clearing == Clearing::Refs {
        return Err(needs_second_look("clear_refs"));
    }
    match action {
        Action::MigrateHot(to) | Action::MigrateCold(to) => weights(to).map(drop),
        _ => Ok(()),
    }
}

/// Why nothing can be done where a way to look cannot look at single pages again.
pub(super) fn needs_second_look(way: &str) -> String {
    format!(
        "isotherm checks each page again before it acts on it, and {way} cannot do that: choose \
         --look bpf, bpf-probe or bpf-iter"
    )
}

/// Why `lru_prio`, which reads the pages of other processes, can never be done.
fn touching(probe: io::Result<()>) -> Result<(), String> {
    probe.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOSYS) => {
            "this kernel cannot read the memory of other processes: lru_prio requires CONFIG_CROSS_MEMORY_ATTACH".into()
        }
        _ => format!(
            "reading the memory of other processes is refused ({e}): permit process_vm_readv in the sandbox or container, \
             which lru_prio requires"
        ),
    })
}

fn nodes(root: &Path, to: &Destinations) -> Result<(), String> {
    let have: Vec<u32> =
        numa::nodes(root).map_err(|e| e.to_string())?.iter().map(|n| n.node).collect();
    if let Some(&node) = to.0.iter().map(|d| &d.node).find(|node| !have.contains(node)) {
        return Err(numa::NumaError::NoNode { node, have }.to_string());
    }
    KPageFlags::open(root).map(drop).map_err(|_| numa::NumaError::NoFrames.to_string())
}

#[cfg(test)]
mod tests {
    use isotherm_core::Destination;

    use super::*;
    use crate::testing::tree;

    fn why_not(root: &Path, action: &Action) -> String {
        match support(root, Clearing::Cold, action) {
            Support::Yes => "yes".into(),
            Support::NotNow(why) => format!("not now: {why}"),
            Support::No(why) => why,
        }
    }

    #[test]
    fn a_setting_may_change_and_a_kernel_does_not() {
        let setting = "sys/kernel/mm/transparent_hugepage/enabled";
        let root = tree([(setting, "always madvise [never]\n")]);
        let said = why_not(root.path(), &Action::HugePage);
        assert!(said.starts_with("not now") && said.contains("says never"), "{said}");
        let said = why_not(tree([]).path(), &Action::HugePage);
        assert!(said.starts_with("this kernel has no huge pages"), "{said}");
    }

    #[test]
    fn nodes_that_are_not_there() {
        let to = |nodes: &[(u32, u32)]| {
            let all = nodes.iter().map(|&(node, weight)| Destination { node, weight });
            Action::MigrateCold(Destinations(all.collect()))
        };
        let root = tree([
            ("sys/devices/system/node/has_memory", "0-1\n"),
            ("sys/devices/system/node/online", "0-1\n"),
            ("proc/kpageflags", ""),
        ]);
        assert_eq!(why_not(root.path(), &to(&[(1, 3)])), "yes");
        let said = why_not(root.path(), &to(&[(0, 1), (2, 1)]));
        assert!(said.contains("no node 2 with memory") && said.contains("0, 1"), "{said}");
        for bad in [&[][..], &[(0, 0)], &[(0, 1), (0, 2)], &[(0, 256)]] {
            assert_ne!(why_not(root.path(), &to(bad)), "yes", "{bad:?}");
        }
    }

    #[test]
    fn lru_prio_requires_reads_of_other_processes() {
        let why = |errno| touching(Err(io::Error::from_raw_os_error(errno))).unwrap_err();
        assert!(why(libc::ENOSYS).contains("CONFIG_CROSS_MEMORY_ATTACH"));
        assert!(why(libc::EPERM).contains("sandbox"));
        assert_eq!(touching(Ok(())), Ok(()));
        assert_eq!(why_not("/".as_ref(), &Action::LruPrio), "yes");
    }

    #[test]
    fn a_way_that_clears_everything_cannot_act() {
        let said = support("/".as_ref(), Clearing::Refs, &Action::Cold);
        assert!(matches!(said, Support::No(why) if why.contains("bpf")));
    }
}
