//! Regions from windows: neighbours that nothing tells apart are joined.

use crate::bins::llr_is_below;
use crate::range::AddrRange;
use crate::unknown::Unknown;

/// A window: indices of its piece and of it in there.
pub(crate) type Place = (usize, usize);

/// What is known of a stretch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// nothing is resident
    Absent,
    /// its accesses cannot be seen
    Hidden(Unknown),
    /// touched pages and page-seconds, pages of a window counted as one or two
    Seen {
        d: f64,
        e: f64,
        /// touched after a long time, which does not tell how often
        awoken: bool,
        /// That it is touched was found after it was cleared a short time ago.
        lately: bool,
        /// since when it is untouched, as a time in ms: the part of it for which that is the longest,
        /// and the one for which it is the shortest
        touched: (u32, u32),
    },
}

/// Adjacent windows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Group {
    pub range: AddrRange,
    pub kind: Kind,
    /// the first window and the one behind the last; none where nothing is resident
    pub windows: Option<(Place, Place)>,
}

/// How easily neighbours are joined.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ease {
    /// if two rates are not more likely than one by so much
    llr: f64,
    /// if rates differ by less than so many times
    ratio: f64,
    /// if what was untouched for longer was so for less than so many times as long,
    aged: f64,
    /// and so many ms
    apart: f64,
    /// what was touched after a long time with what is touched beside it
    awoken: bool,
    /// whatever they are
    any: bool,
}

/// Only what nothing at all tells apart.
pub(crate) const EXACT: Ease =
    Ease { llr: 0.0, ratio: 1.0, aged: 1.0, apart: READINGS, awoken: true, any: false };
pub(crate) const FIRST: Ease =
    Ease { llr: 0.5, ratio: 1.1, aged: 1.02, apart: 2.0 * READINGS, awoken: false, any: false };
const FULL: Ease =
    Ease { llr: 6.0, ratio: 1.5, aged: 1.05, apart: 2.0 * READINGS, awoken: true, any: false };
/// Shorter stretches of nothing do not divide what lies around them.
const SHORT_GAP: u64 = 256 << 10;

/// Joins groups until there are at most `max`, as far as that is possible: see [`Joined`].
pub(crate) fn fit(joined: Joined, max: usize) -> Vec<Group> {
    let (all, now) = (joined.all, joined.now);
    let mut groups = joined.done();
    let mut ease = if all { FULL } else { FIRST.more() };
    if !all {
        while ease.llr < FULL.llr {
            join(&mut groups, ease, now);
            ease = ease.more();
        }
        // What lies beside it has been joined by now.
        ease.awoken = true;
        join(&mut groups, ease, now);
    }
    while groups.len() > max && ease.llr < 1e12 {
        ease = Ease {
            llr: ease.llr * 2.0,
            ratio: ease.ratio * 1.2,
            aged: 1.0 + (ease.aged - 1.0) * 2.0,
            any: ease.llr > 1e6,
            ..ease
        };
        join(&mut groups, ease, now);
    }
    groups
}

impl Ease {
    /// That of the next pass.
    fn more(self) -> Self {
        Ease {
            llr: (self.llr * 1.9).min(FULL.llr),
            ratio: (self.ratio * 1.1).min(FULL.ratio),
            aged: (self.aged + 0.01).min(FULL.aged),
            ..self
        }
    }
}

/// Groups that are joined as they come: thousands of windows never lie side by side.
pub(crate) struct Joined {
    out: Vec<Group>,
    /// the last one, of which nothing was touched, and which is yet to be compared with those before
    last: Option<Group>,
    /// how easily windows are joined of which nothing was touched
    idle: Ease,
    /// only what nothing at all tells apart
    all: bool,
    now: u32,
}

impl Joined {
    pub fn new(idle: Ease, all: bool, now: u32) -> Self {
        Joined { out: Vec::new(), last: None, idle, all, now }
    }

    /// Adds what follows.
    pub fn push(&mut self, group: Group) {
        self.push_row(group, 1);
    }

    /// Adds so many windows that follow, each of which says what the group does; the many of which nothing was touched
    /// are joined first.
    pub fn push_row(&mut self, one: Group, windows: usize) {
        let group = Group { kind: one.kind.times(windows), ..one };
        let idle = |k: &Kind| matches!(k, Kind::Seen { d, .. } if *d == 0.0);
        let waits = group.kind == Kind::Absent || idle(&group.kind);
        if let Some(last) = self.last.as_mut().filter(|l| l.range.end == group.range.start) {
            let same = matches!((&last.kind, &group.kind), (Kind::Absent, Kind::Absent))
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

    /// What was joined is compared again with what is before it. Each window of a row would be joined by itself: if one
    /// is, so are those that follow, as what it was joined with is then more like it.
    fn join(&mut self, group: Group, one: &Group) {
        let ease = if self.all { EXACT } else { FIRST };
        match self.out.last_mut() {
            Some(last) if are_alike(last, one, ease, self.now) => unite(last, &group),
            _ => self.out.push(group),
        }
        let left = unite_last(&mut self.out, ease, self.now);
        self.out.truncate(left);
    }

    fn done(mut self) -> Vec<Group> {
        if let Some(last) = self.last.take() {
            self.join(last, &last);
        }
        self.out
    }
}

/// The `parts` of `pieces` (sorted), and what lies between, as groups that cover `areas`.
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

fn absent(range: AddrRange) -> Group {
    Group { range, kind: Kind::Absent, windows: None }
}

impl Kind {
    /// Of so many windows that say this.
    fn times(self, windows: usize) -> Kind {
        match self {
            Kind::Seen { d, e, awoken, lately, touched } => {
                Kind::Seen { d: d * windows as f64, e: e * windows as f64, awoken, lately, touched }
            }
            other => other,
        }
    }

    /// The same at `now`, in ms: what may be touched at any time is touched now, and what was found touched since it
    /// was cleared was so a short time ago, if it was cleared `lately`.
    pub fn at(self, now: u32, lately: bool) -> Kind {
        match self {
            Kind::Seen { d, e, awoken, lately: found, touched: (oldest, newest) } => Kind::Seen {
                d,
                e,
                awoken,
                lately: lately && found,
                touched: (oldest.min(now), newest.min(now)),
            },
            other => other,
        }
    }
}

/// Joins what is most alike of `groups`.
pub(crate) fn join_first(groups: &mut Vec<Group>, now: u32) {
    join(groups, FIRST, now);
}

/// Joins what may be, in one pass: what was joined is compared again with what is before it.
fn join(groups: &mut Vec<Group>, ease: Ease, now: u32) {
    let mut left = 0;
    for next in 0..groups.len() {
        groups.swap(left, next);
        left = unite_last(&mut groups[..=left], ease, now);
    }
    groups.truncate(left);
}

/// Joins the last one with those before it as far as they are alike; says how many are left.
fn unite_last(groups: &mut [Group], ease: Ease, now: u32) -> usize {
    let mut left = groups.len();
    while let [.., before, last] = &mut groups[..left] {
        if !are_alike(before, last, ease, now) {
            break;
        }
        unite(before, last);
        left -= 1;
    }
    left
}

/// Whether they lie beside each other, and nothing tells them apart.
fn are_alike(a: &Group, b: &Group, ease: Ease, now: u32) -> bool {
    a.range.end == b.range.start && alike(a, b, ease, now)
}

fn alike(a: &Group, b: &Group, ease: Ease, now: u32) -> bool {
    if ease.any {
        return true;
    }
    let short = |g: &Group| g.range.len() < SHORT_GAP;
    match (a.kind, b.kind) {
        (Kind::Absent, Kind::Absent) => true,
        (Kind::Absent, _) => short(a),
        (_, Kind::Absent) => short(b),
        (Kind::Hidden(x), Kind::Hidden(y)) => x == y,
        (
            Kind::Seen { d: d1, e: e1, awoken: w1, lately: l1, touched: t1 },
            Kind::Seen { d: d2, e: e2, awoken: w2, lately: l2, touched: t2 },
        ) => {
            if e1 <= 0.0 || e2 <= 0.0 {
                return true;
            }
            if d1 == 0.0 && d2 == 0.0 {
                return as_old(all_of(t1, t2), ease, now);
            }
            if w1 && w2 {
                return true;
            }
            if w1 || w2 {
                // A rate of the past would be given to what was touched just once.
                return ease.awoken && if w1 { l2 } else { l1 };
            }
            let (r1, r2) = ((d1 + 0.5) / e1, (d2 + 0.5) / e2);
            r1.max(r2) < ease.ratio * r1.min(r2) || llr_is_below(ease.llr, (d1, e1), (d2, e2))
        }
        _ => false,
    }
}

fn all_of(a: (u32, u32), b: (u32, u32)) -> (u32, u32) {
    (a.0.min(b.0), a.1.max(b.1))
}

/// Readings apart, in ms: what was touched at the same time may be found in one or the other.
const READINGS: f64 = 500.0;

/// Whether all of it has been untouched for about the same time: ages are facts, so that little is given
/// up of them before there are too many regions.
pub(crate) fn as_old((oldest, newest): (u32, u32), ease: Ease, now: u32) -> bool {
    let ago = |ms: u32| f64::from(now.saturating_sub(ms));
    ago(oldest) <= ago(newest) * ease.aged + ease.apart
}

fn unite(left: &mut Group, right: &Group) {
    left.range.end = right.range.end;
    left.windows = match (left.windows, right.windows) {
        (Some((first, _)), Some((_, end))) => Some((first, end)),
        (one, other) => one.or(other),
    };
    left.kind = match (left.kind, right.kind) {
        (Kind::Absent, kind) | (kind, Kind::Absent) => kind,
        (
            Kind::Seen { d: d1, e: e1, awoken: w1, lately: l1, touched: t1 },
            Kind::Seen { d: d2, e: e2, awoken: w2, lately: l2, touched: t2 },
        ) => {
            let (touched, lately) = (all_of(t1, t2), l1 || l2);
            match (w1, w2) {
                // How often is told by the other one.
                (true, false) => Kind::Seen { d: d2, e: e2, awoken: false, lately, touched },
                (false, true) => Kind::Seen { d: d1, e: e1, awoken: false, lately, touched },
                _ => Kind::Seen { d: d1 + d2, e: e1 + e2, awoken: w1, lately, touched },
            }
        }
        (seen @ Kind::Seen { .. }, _) | (_, seen @ Kind::Seen { .. }) => seen,
        (hidden, _) => hidden,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 60_000;

    /// The n-th 64 KiB, touched `d` times in a page-second.
    fn touched(n: u64, d: f64, awoken: bool, lately: bool) -> Group {
        let range = AddrRange::new(n << 16, (n + 1) << 16);
        let kind = Kind::Seen { d, e: 1.0, awoken, lately, touched: (NOW, NOW) };
        Group { range, kind, windows: None }
    }

    fn left(groups: Vec<Group>) -> usize {
        let mut joined = Joined::new(FIRST, false, NOW);
        groups.into_iter().for_each(|g| joined.push(g));
        fit(joined, 100).len()
    }

    #[test]
    fn a_rate_of_the_past_is_given_to_nobody() {
        let beside = |lately| vec![touched(0, 100.0, false, lately), touched(1, 1.0, true, false)];
        assert_eq!(left(beside(true)), 1, "it is as hot as what was found beside it");
        assert_eq!(left(beside(false)), 2);
    }

    #[test]
    fn what_awakes_together_is_one() {
        assert_eq!(left((0..8).map(|n| touched(n, 1.0 + n as f64, true, false)).collect()), 1);
    }
}
