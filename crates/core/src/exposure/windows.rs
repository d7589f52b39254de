//! The windows of a piece. One window represents all of them while they are equal.

use std::ops::{Index, IndexMut};

use super::window::Window;

/// The windows of a piece in compact form. Most memory is cold, and 2 MiB of it have 32 windows of 56 bytes
/// with equal contents.
#[derive(Debug, Clone, Default)]
pub(super) struct Windows {
    len: u16,
    /// one window that represents all, or one for each
    kept: Box<[Window]>,
}

impl Windows {
    /// `len` windows equal to `window`.
    pub fn new(window: Window, len: u16) -> Self {
        Windows { len, kept: Box::new([window]) }
    }

    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// The stored windows: one for all, or each. A change of the single window applies to all.
    pub fn distinct(&self) -> &[Window] {
        &self.kept
    }

    /// Mutable access to [`Windows::distinct`].
    pub fn distinct_mut(&mut self) -> &mut [Window] {
        &mut self.kept
    }

    /// Applies `change` to each window with the argument `by(i)`. If the argument is the same for all, one
    /// window still represents them.
    pub fn change<T: PartialEq>(
        &mut self,
        by: impl Fn(usize) -> T,
        mut change: impl FnMut(&mut Window, T),
    ) {
        if let [one] = &mut self.kept[..] {
            let first = by(0);
            if (1..self.len.into()).all(|i| by(i) == first) {
                change(one, first);
                return;
            }
        }
        (0..self.len()).for_each(|i| change(&mut self[i], by(i)));
    }

    /// Changes the number of windows: the i-th is the present one at `kept(i)`, or `new`.
    pub fn fit(&mut self, len: usize, kept: impl Fn(usize) -> Option<usize>, new: Window) {
        self.kept = (0..len).map(|i| kept(i).map_or(new, |at| self[at])).collect();
        self.len = u16::try_from(len).unwrap_or(u16::MAX);
        self.join();
    }

    /// Stores one window for all if they are equal.
    pub fn join(&mut self) {
        let alike = self.kept.windows(2).all(|pair| pair.first() == pair.last());
        if alike && self.kept.len() > 1 {
            self.kept = self.kept.iter().copied().take(1).collect();
        }
    }
}

impl Index<usize> for Windows {
    type Output = Window;

    fn index(&self, i: usize) -> &Window {
        &self.kept[if self.kept.len() == 1 { 0 } else { i }]
    }
}

/// Mutable access to one window: from then on, each window is stored.
impl IndexMut<usize> for Windows {
    fn index_mut(&mut self, i: usize) -> &mut Window {
        if self.kept.len() < self.len() {
            self.kept = vec![self.kept[0]; self.len()].into();
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

    #[test]
    fn an_operation_on_all_windows_applies_to_each() {
        let mut windows = Windows::new(Window::new(7), 32);
        windows.change(|_| 9, |w, touched| w.touched = touched);
        assert_eq!((windows.distinct().len(), windows[31].touched), (1, 9));
        windows.change(|i| i as u32 / 16, |w, kept| w.kept = kept);
        let kept = |i: usize| (windows[i].kept, windows[i].touched);
        assert_eq!((windows.distinct().len(), kept(15), kept(16)), (32, (0, 9), (1, 9)));
    }
}
