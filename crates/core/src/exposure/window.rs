//! The state of a window.

use super::timing::{EARLY_READS, READS};
use crate::bins::llr_is_below;
use crate::tuning::UNTOUCHED_LEVEL;

/// Touched pages `d`, and page-seconds `e` before the touch; d / e approximates a rate in Hz.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Evidence {
    pub d: f32,
    pub e: f32,
}

/// Log-likelihood ratio above which one rate does not explain both of two pieces of evidence. The limit is
/// high because pages of a window are not independent.
const CONTRADICTING_LLR: f64 = 16.0;

impl Evidence {
    pub fn plus(self, o: Evidence) -> Evidence {
        Evidence { d: self.d + o.d, e: self.e + o.e }
    }

    fn hz(self) -> f32 {
        self.d / self.e.max(1e-9)
    }

    fn contradicts(self, o: Evidence) -> bool {
        let (a, b) = (self.hz(), o.hz());
        // They usually agree, and logarithms are expensive.
        if a.max(b) <= 2.0 * a.min(b) {
            return false;
        }
        let both = |x: Evidence| (f64::from(x.d), f64::from(x.e));
        !llr_is_below(CONTRADICTING_LLR, both(self), both(o))
    }
}

/// Fraction of the earlier evidence that is kept when a window is cleared again.
const CARRY_OVER: f32 = 0.7;

/// The state of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// pages that the last clear armed
    pub pages: u16,
    /// hidden pages that another way to look has reported
    pub reported: u16,
    /// cumulative count of pages found touched at each read since the clear
    pub found: [u16; READS],
    current: Evidence,
    /// of earlier exposures
    carried: Evidence,
    /// time of the last touch, in ms since the monitor began; initially the time of the first read
    pub touched: u32,
    /// time since which the window has kept its heat, in ms
    pub kept: u32,
    /// binary logarithm of its rate
    pub level: i8,
    /// Time at which the window looked faster than before, or was touched after a long idle time, in ms; 0:
    /// never.
    pub suspect: u32,
    burst: Burst,
}

/// Marks a burst: in a window without earlier touches, more than half of the pages were touched between two
/// reads of all memory.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Burst {
    None,
    /// in the current exposure
    Current,
    /// in the previous exposure
    Previous,
}

impl Window {
    pub fn new(ms: u32) -> Self {
        Window {
            pages: 0,
            reported: 0,
            found: [0; READS],
            current: Evidence::default(),
            carried: Evidence::default(),
            touched: ms,
            kept: ms,
            level: UNTOUCHED_LEVEL,
            suspect: 0,
            burst: Burst::None,
        }
    }

    /// Whether both windows have the same evidence. Times of touches and of heat may differ.
    pub fn shows_the_same(&self, o: &Window) -> bool {
        let Window { touched, kept, level, .. } = *self;
        *self == Window { touched, kept, level, ..*o }
    }

    /// The evidence of an exposure of `seconds` without a touch.
    pub fn idle_for(&self, seconds: f64) -> Evidence {
        Evidence { d: 0.0, e: f32::from(self.pages) * seconds as f32 }
    }

    pub fn stay_idle(&mut self, seconds: f64) {
        self.current = self.idle_for(seconds);
        self.found = [0; READS];
    }

    pub fn current(&self) -> Evidence {
        self.current
    }

    /// Adds a read `seconds` after the previous one that found `count` newly touched pages.
    pub fn add(&mut self, count: u16, seconds: f64, class: usize) {
        let idle = self.current.d == 0.0 && self.carried.d == 0.0;
        if idle && class >= EARLY_READS.len() && count > self.pages / 2 {
            self.burst = Burst::Current;
        }
        let left = f32::from(self.pages) - self.current.d - f32::from(count) / 2.0;
        self.current.d += f32::from(count);
        self.current.e += seconds as f32 * left.max(0.0);
        self.found[class..].fill(self.current.d as u16);
    }

    /// Adds a read that found no newly touched page. Returns whether the read carries information: it does
    /// not if all pages had been touched earlier.
    pub fn pass(&mut self, seconds: f64, class: usize) -> bool {
        let is_spent = self.current.d >= f32::from(self.pages);
        if is_spent && self.found[class] == self.current.d as u16 {
            return false;
        }
        self.add(0, seconds, class);
        true
    }

    /// Sets the earlier evidence from a report of hidden pages: `young` of `pages` pages touched in
    /// `seconds`.
    pub fn take_report(&mut self, young: u32, pages: u16, seconds: f64) {
        let (d, n) = (young as f32, f32::from(pages));
        self.carried = Evidence { d, e: seconds as f32 * (n - d / 2.0).max(0.0) };
    }

    /// Combines the evidence of the current exposure with the earlier evidence.
    ///
    /// A change to a slower rate is accepted at once. A change to a faster rate may be a burst just after the
    /// clear: it is accepted only with another recent sign of heat.
    pub fn together(&self, current: Evidence, confirmed: bool) -> Evidence {
        let changed = current.contradicts(self.carried);
        match changed && (confirmed || self.burst == Burst::Previous || !self.is_faster(current)) {
            true => current,
            false => current.plus(self.carried),
        }
    }

    fn is_faster(&self, current: Evidence) -> bool {
        current.hz() > self.carried.hz()
    }

    /// Whether the current exposure shows a faster rate than the earlier ones without confirmation. A burst
    /// before the clear is a confirmation.
    pub fn is_sudden(&self, current: Evidence, confirmed: bool) -> bool {
        let is_confirmed = confirmed || self.burst == Burst::Previous;
        !is_confirmed && self.is_faster(current) && current.contradicts(self.carried)
    }

    /// Estimate of the pages that are touched in one exposure.
    pub fn touched_at_once(&self) -> f32 {
        self.current.d.max(self.carried.d * (1.0 - CARRY_OVER) / CARRY_OVER)
    }

    /// Drops earlier evidence if the current evidence contradicts it. Returns whether no earlier touch
    /// remains.
    pub fn forget(&mut self, current: Evidence) -> bool {
        if self.carried.d > 0.0 && current.contradicts(self.carried) {
            self.carried = Evidence::default();
        }
        self.burst = Burst::None;
        self.carried.d == 0.0
    }

    /// Drops all evidence of exposures: the window is presumed similar to other memory.
    pub fn forget_all(&mut self) {
        (self.current, self.carried) = (Evidence::default(), Evidence::default());
        self.burst = Burst::None;
        self.found = [0; READS];
    }

    /// Drops all evidence, then notes one touch in 1/`hz` s that ends now: the window may be touched again.
    pub fn forget_all_but(&mut self, hz: f32) {
        self.forget_all();
        self.carried = Evidence { d: 1.0, e: 1.0 / hz };
        self.burst = Burst::Previous;
    }

    /// Ends the current exposure and carries its evidence over.
    pub fn carry(&mut self, current: Evidence, confirmed: bool, ms: u32) {
        let sudden = current.contradicts(self.carried) && self.is_faster(current);
        let all = self.together(current, confirmed);
        self.carried = Evidence { d: all.d * CARRY_OVER, e: all.e * CARRY_OVER };
        if sudden && !confirmed {
            self.suspect = ms.max(1);
        }
        self.burst = if self.burst == Burst::Current { Burst::Previous } else { Burst::None };
        self.current = Evidence::default();
        self.found = [0; READS];
    }
}
