//! Regions from windows: joins neighbours that the data cannot distinguish.

use crate::bins::llr_is_below;
use crate::range::AddrRange;
use crate::unknown::Unknown;

/// The place of a window: the index of its piece, and its index in that piece.
pub(crate) type WindowPlace = (usize, usize);

/// The state of adjacent windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GroupKind {
    /// no page is resident
    Absent,
    /// accesses cannot be observed
    Hidden(Unknown),
    /// touched pages `d` and page-seconds `e`, reduced to independent observations
    Seen {
        d: f64,
        e: f64,
        /// touched after a long idle time, so that the rate is unknown
        reactivated: bool,
        /// a touch was found after a recent clear
        lately: bool,
        /// earliest and latest time of the last touch of any part, in ms
        touched: (u32, u32),
    },
}

/// Adjacent windows with one state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WindowGroup {
    pub range: AddrRange,
    pub kind: GroupKind,
    /// first window, and the window after the last; `None` where no page is resident
    pub windows: Option<(WindowPlace, WindowPlace)>,
}

/// Thresholds for joining neighbours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MergeThresholds {
    /// maximum log-likelihood ratio of two rates against a common one
    llr: f64,
    /// maximum ratio of two rates
    rate_ratio: f64,
    /// maximum ratio of two idle times
    age_ratio: f64,
    /// additional permitted difference of two idle times, in ms
    age_slack_ms: f64,
    /// join reactivated memory with touched neighbours
    reactivated: bool,
    /// join all neighbours
    any: bool,
}

/// Joins only windows without any difference.
pub(crate) const MERGE_EQUAL: MergeThresholds = MergeThresholds {
    llr: 0.0,
    rate_ratio: 1.0,
    age_ratio: 1.0,
    age_slack_ms: READINGS_APART_MS,
    reactivated: true,
    any: false,
};
pub(crate) const FIRST_PASS: MergeThresholds = MergeThresholds {
    llr: 0.5,
    rate_ratio: 1.1,
    age_ratio: 1.02,
    age_slack_ms: 2.0 * READINGS_APART_MS,
    reactivated: false,
    any: false,
};
const LAST_PASS: MergeThresholds = MergeThresholds {
    llr: 6.0,
    rate_ratio: 1.5,
    age_ratio: 1.05,
    age_slack_ms: 2.0 * READINGS_APART_MS,
    reactivated: true,
    any: false,
};
/// Absent memory shorter than this, in bytes, does not separate its neighbours.
const SHORT_GAP: u64 = 256 << 10;

/// Joins groups until there are at most `max`, if possible: see [`Joined`].
pub(crate) fn fit(joined: Joined, max: usize) -> Vec<WindowGroup> {
    let (all, now) = (joined.all, joined.now);
    let mut groups = joined.done();
    let mut thresholds = if all { LAST_PASS } else { FIRST_PASS.more() };
    if !all {
        while thresholds.llr < LAST_PASS.llr {
            join(&mut groups, thresholds, now);
            thresholds = thresholds.more();
        }
        // The neighbours of reactivated memory have been joined by now.
        thresholds.reactivated = true;
        join(&mut groups, thresholds, now);
    }
    while groups.len() > max && thresholds.llr < 1e12 {
        thresholds = MergeThresholds {
            llr: thresholds.llr * 2.0,
            rate_ratio: thresholds.rate_ratio * 1.2,
            age_ratio: 1.0 + (thresholds.age_ratio - 1.0) * 2.0,
            any: thresholds.llr > 1e6,
            ..thresholds
        };
        join(&mut groups, thresholds, now);
    }
    groups
}

impl MergeThresholds {
    /// The thresholds of the next pass.
    fn more(self) -> Self {
        MergeThresholds {
            llr: (self.llr * 1.9).min(LAST_PASS.llr),
            rate_ratio: (self.rate_ratio * 1.1).min(LAST_PASS.rate_ratio),
            age_ratio: (self.age_ratio + 0.01).min(LAST_PASS.age_ratio),
            ..self
        }
    }
}

/// Groups that are joined as they are added, so that thousands of windows never exist as separate groups.
pub(crate) struct Joined {
    out: Vec<WindowGroup>,
    /// the last untouched group, which has not been compared with the groups before it
    last: Option<WindowGroup>,
    /// thresholds for joining untouched windows
    idle: MergeThresholds,
    /// join only windows without any difference
    all: bool,
    now: u32,
}

impl Joined {
    pub fn new(idle: MergeThresholds, all: bool, now: u32) -> Self {
        Joined { out: Vec::new(), last: None, idle, all, now }
    }

    /// Adds the next group.
    pub fn push(&mut self, group: WindowGroup) {
        self.push_row(group, 1);
    }

    /// Adds the next `windows` windows, each with the state of the group; untouched ones are joined first.
    pub fn push_row(&mut self, one: WindowGroup, windows: usize) {
        let group = WindowGroup { kind: one.kind.times(windows), ..one };
        let idle = |k: &GroupKind| matches!(k, GroupKind::Seen { d, .. } if *d == 0.0);
        let waits = group.kind == GroupKind::Absent || idle(&group.kind);
        if let Some(last) = self.last.as_mut().filter(|l| l.range.end == group.range.start) {
            let same = matches!((&last.kind, &group.kind), (GroupKind::Absent, GroupKind::Absent))
                || idle(&last.kind)
                    && idle(&group.kind)
                    && alike(last, &group, self.idle, self.now);
            if same {
                return unite(last, &group);
            }
        }
        if let Some(before) = self.last.take() {
            self.join(before, &before);
        }
        match waits {
            true => self.last = Some(group),
            false => self.join(group, &one),
        }
    }

    /// Adds a group and compares it with the groups before it, repeatedly. Each window of a row would be
    /// joined individually: if the first one is joined, so are the later ones, because the result is more
    /// similar to them.
    fn join(&mut self, group: WindowGroup, one: &WindowGroup) {
        let thresholds = if self.all { MERGE_EQUAL } else { FIRST_PASS };
        match self.out.last_mut() {
            Some(last) if are_alike(last, one, thresholds, self.now) => unite(last, &group),
            _ => self.out.push(group),
        }
        let left = unite_last(&mut self.out, thresholds, self.now);
        self.out.truncate(left);
    }

    fn done(mut self) -> Vec<WindowGroup> {
        if let Some(last) = self.last.take() {
            self.join(last, &last);
        }
        self.out
    }
}

/// The `parts` of `pieces` (sorted), and the absent memory between them, as groups that cover `areas`.
pub(crate) fn cover<P>(
    pieces: &[P],
    range: impl Fn(&P) -> AddrRange,
    parts: impl Fn(&P, usize, &mut Joined),
    areas: &[AddrRange],
    out: &mut Joined,
) {
    let mut rest = 0;
    for area in areas {
        let mut at = area.start;
        while let Some(piece) = pieces.get(rest).filter(|p| range(p).start < area.end) {
            if at < range(piece).start {
                out.push(absent(AddrRange::new(at, range(piece).start)));
            }
            parts(piece, rest, out);
            at = range(piece).end;
            rest += 1;
        }
        if at < area.end {
            out.push(absent(AddrRange::new(at, area.end)));
        }
    }
}

fn absent(range: AddrRange) -> WindowGroup {
    WindowGroup { range, kind: GroupKind::Absent, windows: None }
}

impl GroupKind {
    /// The state of `windows` windows with this state.
    fn times(self, windows: usize) -> GroupKind {
        match self {
            GroupKind::Seen { d, e, reactivated, lately, touched } => GroupKind::Seen {
                d: d * windows as f64,
                e: e * windows as f64,
                reactivated,
                lately,
                touched,
            },
            other => other,
        }
    }

    /// The state at `now`, in ms. Memory that may be touched at any time counts as touched now. A touch found
    /// since the clear counts as recent if the memory was cleared `lately`.
    pub fn at(self, now: u32, lately: bool) -> GroupKind {
        match self {
            GroupKind::Seen { d, e, reactivated, lately: found, touched: (oldest, newest) } => {
                GroupKind::Seen {
                    d,
                    e,
                    reactivated,
                    lately: lately && found,
                    touched: (oldest.min(now), newest.min(now)),
                }
            }
            other => other,
        }
    }
}

/// Joins the most similar groups.
pub(crate) fn join_first(groups: &mut Vec<WindowGroup>, now: u32) {
    join(groups, FIRST_PASS, now);
}

/// Joins groups in one pass: a joined group is compared again with the group before it.
fn join(groups: &mut Vec<WindowGroup>, thresholds: MergeThresholds, now: u32) {
    let mut left = 0;
    for next in 0..groups.len() {
        groups.swap(left, next);
        left = unite_last(&mut groups[..=left], thresholds, now);
    }
    groups.truncate(left);
}

/// Joins the last group with the groups before it while they are similar. Returns the number of remaining
/// groups.
fn unite_last(groups: &mut [WindowGroup], thresholds: MergeThresholds, now: u32) -> usize {
    let mut left = groups.len();
    while let [.., before, last] = &mut groups[..left] {
        if !are_alike(before, last, thresholds, now) {
            break;
        }
        unite(before, last);
        left -= 1;
    }
    left
}

/// Whether two groups are adjacent, and similar within the thresholds.
fn are_alike(a: &WindowGroup, b: &WindowGroup, thresholds: MergeThresholds, now: u32) -> bool {
    a.range.end == b.range.start && alike(a, b, thresholds, now)
}

fn alike(a: &WindowGroup, b: &WindowGroup, thresholds: MergeThresholds, now: u32) -> bool {
    if thresholds.any {
        return true;
    }
    let short = |g: &WindowGroup| g.range.len() < SHORT_GAP;
    match (a.kind, b.kind) {
        (GroupKind::Absent, GroupKind::Absent) => true,
        (GroupKind::Absent, _) => short(a),
        (_, GroupKind::Absent) => short(b),
        (GroupKind::Hidden(x), GroupKind::Hidden(y)) => x == y,
        (
            GroupKind::Seen { d: d1, e: e1, reactivated: w1, lately: l1, touched: t1 },
            GroupKind::Seen { d: d2, e: e2, reactivated: w2, lately: l2, touched: t2 },
        ) => {
            // Also if one of them is new and was never cleared.
            if d1 == 0.0 && d2 == 0.0 {
                return as_old(all_of(t1, t2), thresholds, now);
            }
            if e1 <= 0.0 || e2 <= 0.0 {
                return true;
            }
            if w1 && w2 {
                return true;
            }
            if w1 || w2 {
                // Otherwise memory that was touched just once would get an outdated rate.
                return thresholds.reactivated && if w1 { l2 } else { l1 };
            }
            let (r1, r2) = ((d1 + 0.5) / e1, (d2 + 0.5) / e2);
            r1.max(r2) < thresholds.rate_ratio * r1.min(r2)
                || llr_is_below(thresholds.llr, (d1, e1), (d2, e2))
        }
        _ => false,
    }
}

fn all_of(a: (u32, u32), b: (u32, u32)) -> (u32, u32) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Maximum time between two reads, in ms: simultaneous touches may be found by either read.
const READINGS_APART_MS: f64 = 500.0;

/// Whether all parts have been untouched for about the same time. Ages are facts, so that they lose little
/// precision until there are too many regions.
pub(crate) fn as_old((oldest, newest): (u32, u32), thresholds: MergeThresholds, now: u32) -> bool {
    let ago = |ms: u32| f64::from(now.saturating_sub(ms));
    ago(oldest) <= ago(newest) * thresholds.age_ratio + thresholds.age_slack_ms
}

fn unite(left: &mut WindowGroup, right: &WindowGroup) {
    left.range.end = right.range.end;
    left.windows = match (left.windows, right.windows) {
        (Some((first, _)), Some((_, end))) => Some((first, end)),
        (one, other) => one.or(other),
    };
    left.kind = match (left.kind, right.kind) {
        (GroupKind::Absent, kind) | (kind, GroupKind::Absent) => kind,
        (
            GroupKind::Seen { d: d1, e: e1, reactivated: w1, lately: l1, touched: t1 },
            GroupKind::Seen { d: d2, e: e2, reactivated: w2, lately: l2, touched: t2 },
        ) => {
            let (touched, lately) = (all_of(t1, t2), l1 || l2);
            match (w1, w2) {
                // The rate follows from the other group.
                (true, false) => {
                    GroupKind::Seen { d: d2, e: e2, reactivated: false, lately, touched }
                }
                (false, true) => {
                    GroupKind::Seen { d: d1, e: e1, reactivated: false, lately, touched }
                }
                _ => GroupKind::Seen { d: d1 + d2, e: e1 + e2, reactivated: w1, lately, touched },
            }
        }
        (seen @ GroupKind::Seen { .. }, _) | (_, seen @ GroupKind::Seen { .. }) => seen,
        (hidden, _) => hidden,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 60_000;

    /// The n-th 64 KiB, with `d` touches in one page-second.
    fn touched(n: u64, d: f64, reactivated: bool, lately: bool) -> WindowGroup {
        let range = AddrRange::new(n << 16, (n + 1) << 16);
        let kind = GroupKind::Seen { d, e: 1.0, reactivated, lately, touched: (NOW, NOW) };
        WindowGroup { range, kind, windows: None }
    }

    fn left(groups: Vec<WindowGroup>) -> usize {
        let mut joined = Joined::new(FIRST_PASS, false, NOW);
        groups.into_iter().for_each(|g| joined.push(g));
        fit(joined, 100).len()
    }

    #[test]
    fn old_rates_are_not_passed_on() {
        let beside = |lately| vec![touched(0, 100.0, false, lately), touched(1, 1.0, true, false)];
        assert_eq!(left(beside(true)), 1, "it is as hot as what was found beside it");
        assert_eq!(left(beside(false)), 2);
    }

    #[test]
    fn neighbours_that_become_hot_together_join() {
        assert_eq!(left((0..8).map(|n| touched(n, 1.0 + n as f64, true, false)).collect()), 1);
    }
}
