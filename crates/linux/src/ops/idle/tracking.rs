//! Which page frames are idle, and for which frames this can be observed.

use std::io;
use std::path::Path;

use isotherm_core::{Ask, Cost, OpsError, Seen, Unknown};

use crate::proc::{FrameContent, IdleBitmap, KPageFlags, ProcError};
use crate::sys::monotonic;

/// The two files of idle page tracking.
#[derive(Debug)]
pub(super) struct Tracking {
    flags: KPageFlags,
    bitmap: IdleBitmap,
}

/// The result of reading one window.
#[derive(Debug)]
pub(super) struct Window {
    seen: Seen,
    /// frames to be marked as idle: the first frame of each folio that was accessed
    young: Vec<u64>,
}

impl Window {
    /// A window that needs no further work.
    pub fn known(seen: Seen) -> Self {
        Window { seen, young: Vec::new() }
    }
}

impl Tracking {
    pub fn open(root: &Path) -> Result<Self, ProcError> {
        Ok(Tracking { bitmap: IdleBitmap::open(root)?, flags: KPageFlags::open(root)? })
    }

    /// Reads a window of `pages` pages, which includes those of `frames`. Frame 0 stands for a hidden frame.
    pub fn read(&self, pages: u32, frames: &[u64]) -> Result<Window, OpsError> {
        let read_at = monotonic();
        let mut seen = Seen { pages, read_at, cleared_at: read_at, ..Seen::default() };
        let mut heads = Vec::with_capacity(frames.len());
        for content in self.flags.contents(frames).map_err(failed)? {
            match content {
                FrameContent::Nothing => {}
                FrameContent::Unknown(why) => seen.unknown.0[why.index()] += 1,
                FrameContent::Seen(head) => heads.push(head),
            }
        }
        let mut young = Vec::new();
        for (head, idle) in heads.iter().zip(self.bitmap.are_idle(&heads).map_err(failed)?) {
            match idle {
                None => seen.unknown.0[Unknown::Unseen.index()] += 1,
                Some(true) => seen.present += 1,
                Some(false) => {
                    seen.present += 1;
                    seen.young += 1;
                    young.push(*head);
                }
            }
        }
        young.dedup();
        Ok(Window { seen, young })
    }

    /// Answers `asks`; `read` reads each of them. All windows are read before the first one is marked, because
    /// two of them may contain the same folio. Marking interrupts no CPU, so it does not count as a clear.
    pub fn look(
        &self,
        asks: &[Ask],
        out: &mut Vec<Seen>,
        mut read: impl FnMut(&Self, &Ask) -> Result<Window, OpsError>,
    ) -> Result<Cost, OpsError> {
        let mut cost = Cost::default();
        let windows: Vec<Window> =
            asks.iter().map(|ask| read(self, ask)).collect::<Result<_, _>>()?;
        for (ask, Window { mut seen, young }) in asks.iter().zip(windows) {
            if ask.clear && !young.is_empty() {
                self.bitmap.mark(&young).map_err(failed)?;
                seen.cleared_at = monotonic();
            }
            cost.pages += u64::from(seen.pages);
            out.push(seen);
        }
        Ok(cost)
    }
}

fn failed(e: io::Error) -> OpsError {
    OpsError::Failed(format!("idle page tracking: /proc/kpageflags or the bitmap: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::{AddrRange, PAGE_SIZE, TargetId};

    const LRU: u64 = 1 << 5;
    const FREE: u64 = 1 << 10;
    const ANON: u64 = 1 << 12;
    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;
    const HUGE: u64 = 1 << 17;
    const NO_PAGE: u64 = 1 << 20;
    const ZERO: u64 = 1 << 24;

    /// Files that stand for those of the kernel; of the bitmap, one that keeps what is written.
    fn tracking(flags: &[u64], idle: &[u8]) -> (tempfile::TempDir, Tracking) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sys/kernel/mm/page_idle");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let bytes: Vec<[u8; 8]> = flags.iter().map(|f| f.to_ne_bytes()).collect();
        std::fs::write(root.path().join("proc/kpageflags"), bytes.concat()).unwrap();
        std::fs::write(dir.join("bitmap"), idle).unwrap();
        let tracking = Tracking::open(root.path()).unwrap();
        (root, tracking)
    }

    fn look(tracking: &Tracking, windows: &[&[u64]], clear: bool) -> Vec<Seen> {
        let range = AddrRange::new(0, PAGE_SIZE);
        let asks = vec![Ask { target: TargetId(0), range, clear }; windows.len()];
        let (mut out, mut next) = (Vec::new(), windows.iter());
        let read = |t: &Tracking, _: &Ask| t.read(16, next.next().unwrap());
        let cost = tracking.look(&asks, &mut out, read).unwrap();
        assert_eq!((cost.pages, cost.clears), (16 * windows.len() as u64, 0));
        out
    }

    fn counts(seen: &Seen) -> [u32; 3] {
        [seen.pages, seen.present, seen.young]
    }

    #[test]
    fn untracked_frames_are_unknown_and_free_frames_absent() {
        let flags =
            [LRU, FREE, NO_PAGE, LRU | ZERO, ANON, HUGE | HEAD, HUGE | TAIL, 1 << 7, LRU, LRU];
        let (_root, tracking) = tracking(&flags, &[0; 8]);
        let frames: Vec<u64> = (0..12).collect();
        let [seen] = *look(&tracking, &[&frames], false) else { panic!() };
        assert_eq!(counts(&seen), [16, 2, 2], "frames 8 and 9; 0 stands for a hidden one");
        let unknown = |why: Unknown| seen.unknown.0[why.index()];
        assert_eq!(unknown(Unknown::Hugetlb), 2);
        assert_eq!((unknown(Unknown::Unseen), unknown(Unknown::Special)), (2, 1));
        assert_eq!(seen.unknown.total(), 5);
    }

    #[test]
    fn the_head_speaks_for_its_folio() {
        let flags = [&[0, LRU, LRU, LRU, LRU | HEAD][..], &[TAIL; 3], &[HEAD], &[TAIL; 7]].concat();
        let (_root, tracking) = tracking(&flags, &[0; 8]);
        // In any order, and from its middle on; the other folio is not on a list, so that it is the
        // kernel's own.
        let windows: [&[u64]; 4] = [&[3, 4, 5], &[6, 7], &[7, 2, 5], &[9, 10, 12]];
        let looked = |windows: &[&[u64]], clear| look(&tracking, windows, clear);
        let young = looked(&windows, false);
        let counted: Vec<_> = young.iter().map(counts).collect();
        assert_eq!(counted, [[16, 3, 3], [16, 2, 2], [16, 3, 3], [16, 0, 0]]);
        assert_eq!(young[3].unknown.0[Unknown::Special.index()], 3);
        let [marked] = *looked(&[&[2, 3, 6, 7]], true) else { panic!() };
        assert!(counts(&marked) == [16, 4, 4] && marked.cleared_at > marked.read_at);
        let idle = looked(&windows, true);
        let counted: Vec<_> = idle.iter().map(counts).collect();
        assert_eq!(counted, [[16, 3, 0], [16, 2, 0], [16, 3, 0], [16, 0, 0]]);
        assert!(idle.iter().all(|s| s.cleared_at == s.read_at), "nothing to be cleared");
    }

    #[test]
    fn frames_of_the_last_word_are_unseen() {
        let (_root, tracking) = tracking(&[LRU; 70], &[0; 8]);
        let [seen] = *look(&tracking, &[&[63, 64, 65]], true) else { panic!() };
        assert_eq!((counts(&seen), seen.unknown.0[Unknown::Unseen.index()]), ([16, 1, 1], 2));
    }
}
