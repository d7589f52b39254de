//! Sets of nodes, in the form of system calls.

/// Maximum number of nodes in the kernel.
pub const MAX_KERNEL_NODES: u32 = 1024;
const WORDS: usize = MAX_KERNEL_NODES as usize / 64;

/// A set of nodes below [`MAX_KERNEL_NODES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMask([u64; WORDS]);

impl NodeMask {
    /// Whether the set contains `node`.
    #[must_use]
    pub fn contains(&self, node: u32) -> bool {
        self.nodes().any(|n| n == node)
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The nodes in ascending order.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let is_in = |&n: &u32| self.0.get(n as usize / 64).is_some_and(|w| w >> (n % 64) & 1 == 1);
        (0..MAX_KERNEL_NODES).filter(is_in)
    }

    /// Its words, and the number of bits for the kernel: one more, because the kernel subtracts one.
    pub(super) fn raw(&self) -> (*const u64, libc::c_ulong) {
        (self.0.as_ptr(), libc::c_ulong::from(MAX_KERNEL_NODES) + 1)
    }

    pub(super) fn raw_mut(&mut self) -> (*mut u64, libc::c_ulong) {
        (self.0.as_mut_ptr(), libc::c_ulong::from(MAX_KERNEL_NODES) + 1)
    }
}

impl FromIterator<u32> for NodeMask {
    fn from_iter<I: IntoIterator<Item = u32>>(nodes: I) -> Self {
        let mut mask = NodeMask::default();
        for n in nodes {
            if let Some(word) = mask.0.get_mut(n as usize / 64) {
                *word |= 1 << (n % 64);
            }
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_a_mask_are_read_back() {
        let mask: NodeMask = [63, 0, 64, 1023, 1024].into_iter().collect();
        assert_eq!(mask.nodes().collect::<Vec<_>>(), [0, 63, 64, 1023]);
        assert!(mask.contains(64) && !mask.contains(1) && !mask.contains(1024));
        assert!(NodeMask::default().is_empty() && !mask.is_empty());
    }
}
