//! `move_pages(2)`.

use std::io;
use std::ptr;

/// The status of a page for which the kernel has stored none, because it had stopped before.
pub const STATUS_NOT_STORED: i32 = i32::MIN;
/// Move pages that only this process maps.
const MOVE: libc::c_int = 1 << 1;

/// The node of each of `pages`, or a negative error number (ENOENT: no page; EFAULT: no memory of the
/// process, or the zero page).
///
/// # Errors
/// ESRCH if there is no such process, EPERM if it may not be accessed.
pub fn page_nodes(pid: i32, pages: &[u64]) -> io::Result<Vec<i32>> {
    let (done, status) = call(pid, pages, None);
    done.map(|_| status)
}

/// Moves each of `pages` to the node with the same index in `nodes`, with its whole folio. Returns the number
/// of pages that the kernel did not move. Also returns a status for each page, even after an error: the node,
/// a negative error number, or [`STATUS_NOT_STORED`].
///
/// The error is ESRCH if there is no such process, or EPERM if it may not be accessed. It is EACCES for a node
/// outside its cpuset, ENODEV for a node without memory, ENOMEM if the node is full, or E2BIG.
pub fn move_pages(pid: i32, pages: &[u64], nodes: &[i32]) -> (io::Result<u64>, Vec<i32>) {
    if pages.len() != nodes.len() {
        let unlike = Err(io::Error::from(io::ErrorKind::InvalidInput));
        return (unlike, vec![STATUS_NOT_STORED; pages.len()]);
    }
    call(pid, pages, Some(nodes))
}

fn call(pid: i32, pages: &[u64], nodes: Option<&[i32]>) -> (io::Result<u64>, Vec<i32>) {
    let mut status = vec![STATUS_NOT_STORED; pages.len()];
    let nodes = nodes.map_or(ptr::null(), <[i32]>::as_ptr);
    // SAFETY: the arrays have the stated number of elements (the caller has checked that of `nodes`) and live
    // until the call returns. The addresses belong to the other process and are not dereferenced in this one.
    // A process cannot observe in its memory on which node a page lies.
    let left = unsafe {
        let (count, pages, status) = (pages.len(), pages.as_ptr(), status.as_mut_ptr());
        libc::syscall(libc::SYS_move_pages, pid, count, pages, nodes, status, MOVE)
    };
    (u64::try_from(left).map_err(|_| io::Error::last_os_error()), status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{OwnPages, allowed_nodes};
    use crate::walker::own_pid;

    #[test]
    fn pages_lie_on_nodes() {
        let mut own = OwnPages::map(4).unwrap();
        own.write(0, 1);
        own.write(2, 1);
        assert_eq!(own.read(3), 0, "the zero page");
        let pages: Vec<u64> = (0..4).map(|p| own.range(p, 1).start).collect();
        let nodes = page_nodes(own_pid(), &pages).unwrap();
        let allowed = allowed_nodes().unwrap();
        let is_node = |n: i32| u32::try_from(n).is_ok_and(|n| allowed.contains(n));
        assert!(is_node(nodes[0]) && is_node(nodes[2]), "{nodes:?}");
        assert!(nodes[1] < 0 && nodes[3] < 0, "{nodes:?}");
        let (left, status) = move_pages(own_pid(), &pages[..1], &nodes[..1]);
        assert_eq!((left.unwrap(), &status[..]), (0, &nodes[..1]), "it is there already");
        let (refused, status) = move_pages(own_pid(), &pages[1..3], &[nodes[0], 1000]);
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert!(
            status[0] < 0 && status[0] != STATUS_NOT_STORED,
            "what was said before that: {status:?}"
        );
    }

    #[test]
    fn unmovable_pages_have_an_error() {
        let errno = |e: io::Error| e.raw_os_error();
        assert_eq!(errno(page_nodes(i32::MAX, &[4096]).unwrap_err()), Some(libc::ESRCH));
        let absent = move_pages(own_pid(), &[4096], &[1000]).0.unwrap_err();
        assert_eq!(errno(absent), Some(libc::ENODEV));
        assert!(move_pages(own_pid(), &[4096], &[]).0.is_err());
    }
}
