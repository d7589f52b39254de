//! The result of an epoch for each page frame.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// When a page was accessed in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum EpochAccess {
    #[default]
    Never,
    /// before the first read
    First,
    /// between the reads
    Later,
}

/// One page frame, over all watched processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Frame {
    /// number of entries that map it; 65,535 means 65,535 or more
    pub mapped: u16,
    pub touched: EpochAccess,
}

/// Frames per chunk. Most memory of one mapping has adjacent frames.
const CHUNK_FRAMES: u64 = 16;

/// The kernel assigns frame numbers, so no attacker can choose them for collisions: Fibonacci hashing is
/// enough, and ten times faster than the default.
#[derive(Debug, Default)]
struct FrameHasher(u64);

impl Hasher for FrameHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32);
    }
}

/// A sparse array of frames: 64 bytes for each 16 frames of which at least one was seen, and about 20 bytes of
/// index.
#[derive(Debug, Default)]
pub(super) struct Frames {
    index: HashMap<u64, u32, BuildHasherDefault<FrameHasher>>,
    chunks: Vec<[Frame; CHUNK_FRAMES as usize]>,
    /// the chunk used last
    last: Option<(u64, u32)>,
}

impl Frames {
    /// Notes that a frame was found accessed.
    pub fn touch(&mut self, frame: u64, touched: EpochAccess) {
        let f = self.entry(frame);
        if f.touched == EpochAccess::Never {
            f.touched = touched;
        }
    }

    /// Notes that an entry maps a frame.
    pub fn map(&mut self, frame: u64) {
        let f = self.entry(frame);
        f.mapped = f.mapped.saturating_add(1);
    }

    /// The result for a frame; a frame that was never seen is not mapped.
    pub fn get(&self, frame: u64) -> Frame {
        let chunk =
            self.index.get(&(frame / CHUNK_FRAMES)).and_then(|&i| self.chunks.get(i as usize));
        chunk.and_then(|c| c.get((frame % CHUNK_FRAMES) as usize)).copied().unwrap_or_default()
    }

    /// Frees spare capacity.
    pub fn shrink(&mut self) {
        self.chunks.shrink_to_fit();
        self.index.shrink_to_fit();
    }

    fn entry(&mut self, frame: u64) -> &mut Frame {
        let key = frame / CHUNK_FRAMES;
        let at = match self.last {
            Some((k, at)) if k == key => at,
            _ => *self.index.entry(key).or_insert_with(|| {
                self.chunks.push(Default::default());
                u32::try_from(self.chunks.len() - 1).unwrap_or(u32::MAX)
            }),
        };
        self.last = Some((key, at));
        &mut self.chunks[at as usize][(frame % CHUNK_FRAMES) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_far_apart() {
        let mut frames = Frames::default();
        for frame in [5, 1 << 36, 6, 5] {
            frames.map(frame);
        }
        frames.touch(5, EpochAccess::First);
        frames.touch(5, EpochAccess::Later);
        frames.touch(1 << 36, EpochAccess::Later);
        assert_eq!(frames.get(5), Frame { mapped: 2, touched: EpochAccess::First });
        assert_eq!(frames.get(6), Frame { mapped: 1, touched: EpochAccess::Never });
        assert_eq!(frames.get(1 << 36), Frame { mapped: 1, touched: EpochAccess::Later });
        assert_eq!(frames.get(7), Frame::default());
        (0..70_000).for_each(|_| frames.map(6));
        assert_eq!(frames.get(6).mapped, 65_535);
    }
}
