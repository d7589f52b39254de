//! The windows of a piece: one stands for all of them as long as nothing tells them apart.

use std::ops::{Index, IndexMut};

use super::window::Window;

/// Most memory is cold, and 2 MiB of it have 32 windows of 56 bytes that say the same.
#[derive(Debug, Clone)]
pub(super) struct Windows {
    len: usize,
    /// one for all, or each
    kept: Vec<Window>,
}

impl Windows {
    /// So many, all like this one.
    pub fn new(window: Window, len: usize) -> Self {
        Windows { len, kept: vec![window] }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Those that differ, as far as is known; what is done to all of them is done to all.
    pub fn distinct(&self) -> &[Window] {
        &self.kept
    }

    /// The same, to be changed.
    pub fn distinct_mut(&mut self) -> &mut [Window] {
        &mut self.kept
    }

    /// Keeps one for all of them, if they are alike.
    pub fn join(&mut self) {
        let alike = self.kept.windows(2).all(|pair| pair.first() == pair.last());
        if alike && self.kept.len() > 1 {
            self.kept.truncate(1);
            self.kept.shrink_to_fit();
        }
    }
}

impl Index<usize> for Windows {
    type Output = Window;

    fn index(&self, i: usize) -> &Window {
        &self.kept[if self.kept.len() == 1 { 0 } else { i }]
    }
}

/// From then on it may differ.
impl IndexMut<usize> for Windows {
    fn index_mut(&mut self, i: usize) -> &mut Window {
        if self.kept.len() < self.len {
            self.kept = vec![self.kept[0]; self.len];
        }
        &mut self.kept[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_stands_for_all_until_one_differs() {
        let mut windows = Windows::new(Window::new(7), 32);
        assert_eq!((windows.len(), windows.distinct().len()), (32, 1));
        windows[5].touched = 9;
        let touched: Vec<u32> = (0..32).map(|i| windows[i].touched).collect();
        assert_eq!((touched[5], touched.iter().filter(|t| **t == 7).count()), (9, 31));
        windows.join();
        assert_eq!(windows.distinct().len(), 32, "one differs");
        windows[5].touched = 7;
        windows.join();
        assert_eq!((windows.distinct().len(), windows[31].touched), (1, 7));
        windows.distinct_mut().iter_mut().for_each(|w| w.kept = 3);
        assert_eq!(windows[31].kept, 3);
    }
}
