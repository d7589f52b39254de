//! Conversion of schemes from text to the engine's types.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::scheme::{
    Filter, FilterKind, Goal, Pattern, Quota, Scheme, Scope, WatermarkMetric, Watermarks, Weights,
};
use isotherm_core::{Action, PageFilter, PageKind};
use isotherm_linux::cgroup::Cgroup;
use isotherm_linux::proc;

use super::text::{
    Bounds, FilterText, GoalText, KindText, MetricText, QuotaText, SchemeText, TARGETS,
    WatermarksText,
};
use crate::units;

/// Default time between two checks of the watermarks.
pub(crate) const WATERMARKS_INTERVAL: Duration = Duration::from_secs(5);

/// A key of a scheme with an invalid value.
pub struct InvalidKey {
    /// the key with the error, such as `quota.time`, or `filters.0.kind` for the kind of the first filter
    pub key: String,
    pub what: String,
}

impl InvalidKey {
    fn at(key: &str) -> impl FnOnce(String) -> InvalidKey {
        let key = key.to_owned();
        move |what| InvalidKey { key, what }
    }
}

/// The name of a scheme without a name: its action, with a number that distinguishes it from the schemes
/// `before`.
pub fn default_name(action: &Action, before: &[Scheme]) -> String {
    let same = before.iter().filter(|s| s.action.name() == action.name()).count();
    let number = if same == 0 { String::new() } else { format!("-{}", same + 1) };
    format!("{}{number}", action.name())
}

/// Converts and checks a scheme. No scheme may have the name `taken`.
pub fn scheme(
    t: SchemeText,
    interval: Duration,
    before: &[Scheme],
    taken: Option<&str>,
) -> Result<Scheme, InvalidKey> {
    let action = t.action.0;
    let pattern = Pattern {
        size: range(t.size, 0..=u64::MAX, |size| size.0),
        hz: range(t.rate, 0.0..=f64::INFINITY, |rate| rate.0),
        age: range(t.age, Duration::ZERO..=Duration::MAX, |age| age.at(interval)),
    };
    let name = t.name.unwrap_or_else(|| default_name(&action, before));
    if taken == Some(&*name) || before.iter().any(|s| *s.name == *name) {
        let what = format!("two schemes are called `{name}`: give each a name of its own");
        return Err(InvalidKey::at("name")(what));
    }
    let mut scheme = Scheme::new(&name, pattern, action);
    scheme.apply_interval = t.apply_interval.map_or(Duration::ZERO, |t| t.0);
    scheme.recheck = t.recheck.map(|t| t.0);
    let goals;
    (scheme.quota, goals) = quota(t.quota);
    let marks = t.watermarks.map(watermarks).transpose();
    scheme.watermarks = marks.map_err(InvalidKey::at("watermarks.of"))?;
    scheme.check().map_err(|e| InvalidKey::at(e.key())(e.to_string()))?;
    // Each goal is checked by itself, so that the error can name the goal.
    for (i, g) in goals.into_iter().enumerate() {
        scheme.quota.goals.push(goal(g));
        scheme.check().map_err(|e| InvalidKey::at(&format!("quota.goals.{i}"))(e.to_string()))?;
    }
    for (i, filter) in t.filters.into_iter().enumerate() {
        let at = format!("filters.{i}.kind");
        add_filter(&mut scheme, filter).map_err(InvalidKey::at(&at))?;
        scheme.check().map_err(|e| InvalidKey::at(&at)(e.to_string()))?;
    }
    Ok(scheme)
}

fn range<T, U>(b: Bounds<T>, all: RangeInclusive<U>, value: impl Fn(T) -> U) -> RangeInclusive<U> {
    let (start, end) = all.into_inner();
    let least = b.min.map_or(start, &value);
    least..=b.max.map_or(end, &value)
}

/// A quota, and the text of its goals.
fn quota(t: QuotaText) -> (Quota, Vec<GoalText>) {
    let default = Quota::default();
    let quota = Quota {
        time: t.time.map(|t| t.0),
        bytes: t.bytes.map(|b| b.0),
        reset: t.reset.map_or(default.reset, |t| t.0),
        goals: Vec::new(),
        weights: Weights {
            size: t.weights.size,
            rate: t.weights.rate,
            age: t.weights.age,
            cost: t.weights.cost,
        },
    };
    (quota, t.goals)
}

fn scope(of: &str) -> Scope {
    if of == "machine" { Scope::Machine } else { Scope::Group(Arc::from(of)) }
}

fn goal(t: GoalText) -> Goal {
    match t {
        GoalText::Stalled(g) => Goal::Stalled { of: scope(&g.of), target: g.target.0 },
        GoalText::Refaults(g) => Goal::Refaults { of: scope(&g.of), ppm: g.target.ppm() },
        GoalText::Free(share) => Goal::Free { bp: share.bp() },
        GoalText::Resident(g) => Goal::Resident { of: scope(&g.of), bytes: g.target.0 },
        GoalText::File(g) => Goal::User { name: g.path.into(), target: g.target },
    }
}

fn watermarks(t: WatermarksText) -> Result<Watermarks, String> {
    let metric = match (t.metric, t.of) {
        (MetricText::Stalled, of) => {
            WatermarkMetric::Stalled(scope(of.as_deref().unwrap_or(TARGETS)))
        }
        (_, Some(of)) => {
            return Err(format!(
                "watermarks on `free` and `fragmentation` are of the whole machine, and `of = {of:?}` says \
                 otherwise: leave it out, or choose `stalled`"
            ));
        }
        (MetricText::Free, None) => WatermarkMetric::Free,
        (MetricText::Fragmentation, None) => WatermarkMetric::Fragmentation,
    };
    Ok(Watermarks {
        metric,
        interval: t.interval.map_or(WATERMARKS_INTERVAL, |t| t.0),
        high: t.high.bp(),
        mid: t.mid.bp(),
        low: t.low.bp(),
    })
}

fn add_filter(scheme: &mut Scheme, t: FilterText) -> Result<(), String> {
    let (matching, allow) = (!t.not, t.allow);
    let mut part = |kind| scheme.filters.push(Filter { kind, matching, allow });
    let mut page = |kind, matching| {
        scheme.page_filters.push(PageFilter { kind, matching, allow });
    };
    match t.kind {
        KindText::Addresses(text) => part(FilterKind::Addresses(units::addresses(&text)?)),
        KindText::Pid(pid) => part(FilterKind::Pid(pid)),
        KindText::Comm(name) => part(FilterKind::Comm(proc::cut_comm(&name).into())),
        KindText::Cgroup(path) => part(FilterKind::Cgroup(directory(&path)?)),
        KindText::Mapping(kind) => part(FilterKind::Mapping(kind.into())),
        KindText::Name(name) => part(FilterKind::Name(name.into())),
        KindText::NamePrefix(prefix) => part(FilterKind::NamePrefix(prefix.into())),
        KindText::HugePage(size) => {
            let (min, max) = range(size, 0..=u64::MAX, |size| size.0).into_inner();
            page(PageKind::HugePage { min, max }, matching);
        }
        KindText::Node(node) => page(PageKind::Node(node), matching),
        KindText::Young(young) => page(PageKind::Young, matching == young),
        KindText::TouchedWithin(time) => page(PageKind::Touched { within: time.0 }, matching),
    }
    Ok(())
}

/// The directory of a control group, which identifies the groups of targets.
fn directory(path: &str) -> Result<Arc<str>, String> {
    let group = Cgroup::find("/".as_ref(), Path::new(path)).map_err(|e| e.to_string())?;
    Ok(group.dir().to_string_lossy().into())
}
