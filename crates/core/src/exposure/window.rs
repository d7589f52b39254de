//! What is known of a window.

use super::timing::{EARLY, READS};
use crate::bins::llr_is_below;
use crate::tuning::UNTOUCHED_LEVEL;

/// Touched pages, and page-seconds until they were: their ratio is about a rate.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Evidence {
    pub d: f32,
    pub e: f32,
}

/// Above this, one rate does not explain both of two pieces of evidence; pages of a window are not
/// independent.
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
        // Most often they agree, and logarithms take long.
        if a.max(b) <= 2.0 * a.min(b) {
            return false;
        }
        let both = |x: Evidence| (f64::from(x.d), f64::from(x.e));
        !llr_is_below(CONTRADICTING_LLR, both(self), both(o))
    }
}

/// Of what is known, so much is kept when a window is looked at anew.
const CARRY_OVER: f32 = 0.7;

/// What is known of a window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Window {
    /// pages that were cleared
    pub pages: u16,
    /// of hidden pages, those that another way to look has reported
    pub reported: u16,
    /// how many pages had been found touched at each read since
    pub found: [u16; READS],
    current: Evidence,
    /// of earlier exposures
    carried: Evidence,
    /// when it was last found touched, in ms since the monitor began; at first, when it was first seen
    pub touched: u32,
    /// since when its heat is what it is, likewise
    pub kept: u32,
    /// binary logarithm of its rate
    pub level: i8,
    /// When it looked faster than before, or was touched after a long time, in ms; 0: it never did.
    pub suspect: u32,
    burst: Burst,
}

/// Whether a window in which nothing was touched before was untouched until most of it was touched between two
/// readings.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Burst {
    None,
    /// in this exposure
    Current,
    /// in the one before
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

    /// What an exposure of so many seconds has shown in which nothing was touched.
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

    /// Adds a read, `seconds` after the one before, at which `count` more pages were found touched.
    pub fn add(&mut self, count: u16, seconds: f64, class: usize) {
        let idle = self.current.d == 0.0 && self.carried.d == 0.0;
        if idle && class >= EARLY.len() && count > self.pages / 2 {
            self.burst = Burst::Current;
        }
        let left = f32::from(self.pages) - self.current.d - f32::from(count) / 2.0;
        self.current.d += f32::from(count);
        self.current.e += seconds as f32 * left.max(0.0);
        self.found[class..].fill(self.current.d as u16);
    }

    /// Adds a read at which none was; says whether that tells of anything: of pages that had all been touched before it
    /// does not.
    pub fn pass(&mut self, seconds: f64, class: usize) -> bool {
        let is_spent = self.current.d >= f32::from(self.pages);
        if is_spent && self.found[class] == self.current.d as u16 {
            return false;
        }
        self.add(0, seconds, class);
        true
    }

    /// The same for pages that were reported, `young` of `pages` in `seconds`.
    pub fn take_report(&mut self, young: u32, pages: u16, seconds: f64) {
        let (d, n) = (young as f32, f32::from(pages));
        self.carried = Evidence { d, e: seconds as f32 * (n - d / 2.0).max(0.0) };
    }

    /// What the current exposure and those before say together.
    ///
    /// A change to slower is believed at once. One to faster may be a burst that came just after the
    /// clear: it is believed if there was another sign of it, not long before.
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

    /// Whether the current exposure shows it faster than those before, and nothing else does: not even that
    /// most of it had been touched at once when it was cleared.
    pub fn is_sudden(&self, current: Evidence, confirmed: bool) -> bool {
        let is_confirmed = confirmed || self.burst == Burst::Previous;
        !is_confirmed && self.is_faster(current) && current.contradicts(self.carried)
    }

    /// So many of its pages were touched in an exposure, as a rule.
    pub fn touched_at_once(&self) -> f32 {
        self.current.d.max(self.carried.d * (1.0 - CARRY_OVER) / CARRY_OVER)
    }

    /// Drops what was known before where that is of the past; says whether nothing of it is left.
    pub fn forget(&mut self, current: Evidence) -> bool {
        if self.carried.d > 0.0 && current.contradicts(self.carried) {
            self.carried = Evidence::default();
        }
        self.burst = Burst::None;
        self.carried.d == 0.0
    }

    /// Forgets what exposures have shown: it is presumed to be what others are.
    pub fn forget_all(&mut self) {
        (self.current, self.carried) = (Evidence::default(), Evidence::default());
        self.burst = Burst::None;
        self.found = [0; READS];
    }

    /// The same, but that it was touched once in 1/`hz` s, until now: it may be again.
    pub fn forget_all_but(&mut self, hz: f32) {
        self.forget_all();
        self.carried = Evidence { d: 1.0, e: 1.0 / hz };
        self.burst = Burst::Previous;
    }

    /// Ends the current exposure.
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
