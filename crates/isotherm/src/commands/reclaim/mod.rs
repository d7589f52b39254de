//! `isotherm reclaim`: one scheme with good defaults, that an operator leaves running.

mod kernel;
mod memory;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::scheme::{
    Filter, FilterKind, Mark, Pattern, Quota, Scheme, SchemeError, Watermarks, Weights,
};
use isotherm_core::{
    Action, AddrRange, Attrs, MappingKind, PAGE_SIZE, PageFilter, PageKind, align_down,
};

use super::run::{Told, act};
use super::text_of;
use crate::cli::{Acting, Config, Look, Reclaim, UsageError};

/// The scheme that options make.
const NAME: &str = "reclaim";
/// How often watermarks are looked at.
const MARKS_EVERY: Duration = Duration::from_secs(5);

/// Pages out until it is told to end.
pub fn run(options: Reclaim) -> Result<ExitCode> {
    // Behind the name of the program and `reclaim`, which has no options before it.
    let typed = std::env::args_os().skip(2).collect();
    let service = match options.config {
        None => Service::new(options, None, typed),
        Some(path) => Service::read(path, typed)?,
    };
    if service.options.acting.watching.look == Look::Damon {
        service.check_alone()?;
        let asked = kernel::asked(&service.options).map_err(|e| service.placed(e))?;
        return kernel::run(&service.options, asked);
    }
    act(&(Rc::new(service) as Rc<dyn Told>))
}

/// One scheme made of options, and what else a file has.
struct Service {
    options: Reclaim,
    config: Option<(PathBuf, Config)>,
    typed: Vec<OsString>,
}

impl Service {
    fn new(options: Reclaim, config: Option<(PathBuf, Config)>, typed: Vec<OsString>) -> Self {
        let mut options = options;
        // It may be started before those that it is for.
        options.acting.targets.awaited = true;
        Service { options, config, typed }
    }

    fn read(path: PathBuf, typed: Vec<OsString>) -> Result<Self> {
        let text = text_of(&path, || format!("cannot read the options in {}", path.display()))?;
        let config = Config::read(&path, text)?;
        let options = config.under(&typed)?;
        Ok(Service::new(options, Some((path, config)), typed))
    }

    /// The kernel has one scheme from us.
    fn check_alone(&self) -> Result<(), UsageError> {
        let more =
            self.config.as_ref().map(|(_, config)| config.schemes(Duration::from_secs(1), NAME));
        match more.transpose()?.is_none_or(|more| more.is_empty()) {
            true => Ok(()),
            false => Err(UsageError::new("[[scheme]] and --look damon do not go together")),
        }
    }
}

impl Told for Service {
    fn acting(&self) -> &Acting {
        &self.options.acting
    }

    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError> {
        let more =
            self.config.as_ref().map(|(_, config)| config.schemes(attrs.snapshot_interval(), NAME));
        let first = checked(&self.options).map_err(|e| self.placed(e))?;
        Ok(std::iter::once(first).chain(more.transpose()?.into_iter().flatten()).collect())
    }

    fn socket(&self) -> Option<PathBuf> {
        self.options.socket()
    }

    fn is_service(&self) -> bool {
        true
    }

    fn of_options(&self) -> Option<&'static str> {
        Some(NAME)
    }

    fn placed(&self, e: UsageError) -> UsageError {
        match &self.config {
            Some((_, config)) => config.placed(e, &self.typed),
            None => e,
        }
    }

    fn is_in_file(&self) -> bool {
        self.config.is_some()
    }

    fn anew(&self) -> Result<Rc<dyn Told>> {
        let Some((path, before)) = &self.config else {
            anyhow::bail!("there is no file to read anew: --config names one");
        };
        let service = Service::read(path.clone(), self.typed.clone())?;
        if let Some((_, config)) = &service.config {
            config.check_change(before)?;
        }
        Ok(Rc::new(service))
    }
}

/// What the options say; without any, what DAMON_RECLAIM of the kernel does
/// (`Documentation/admin-guide/mm/damon/reclaim.rst`): the oldest of what nobody touches first.
fn scheme(o: &Reclaim) -> Scheme {
    let every = Pattern { size: PAGE_SIZE..=u64::MAX, ..Pattern::default() };
    let untouched = Pattern { hz: 0.0..=0.0, age: o.min_age..=Duration::MAX, ..every.clone() };
    let pattern = if o.pages { every } else { untouched };
    let mut scheme = Scheme::new(NAME, pattern, Action::PageOut);
    if o.pages {
        // Each page has an age of its own, whatever is beside it.
        let kind = PageKind::Touched { within: o.min_age };
        scheme.page_filters = vec![PageFilter { kind, matching: true, allow: false }];
    }
    let held_back = |kind| Filter { kind, matching: true, allow: false };
    let outside = outside(&o.range).into_iter().map(FilterKind::Addresses).map(held_back);
    let anon = [MappingKind::Anonymous, MappingKind::Heap, MappingKind::Stack];
    let anon = anon.map(FilterKind::Mapping).map(held_back).into_iter().filter(|_| o.skip_anon);
    scheme.filters = outside.chain(anon).collect();
    scheme.quota = Quota {
        time: o.quota.time,
        bytes: o.quota_size.0,
        reset: o.quota.window,
        goals: o.goal.iter().map(|aim| aim.of(o.acting.targets.all)).collect(),
        weights: Weights { age: 1, ..Weights::default() },
    };
    scheme.watermarks = o.watermarks.0.map(|[high, mid, low]| Watermarks {
        metric: Mark::Free,
        interval: o.watermarks_interval.unwrap_or(MARKS_EVERY),
        high,
        mid,
        low,
    });
    scheme
}

/// What lies in none of `ranges`; nothing, if there are none.
fn outside(ranges: &[AddrRange]) -> Vec<AddrRange> {
    if ranges.is_empty() {
        return Vec::new();
    }
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|r| r.start);
    let (mut from, mut gaps) = (0, Vec::new());
    for r in sorted {
        if from < r.start {
            gaps.push(AddrRange::new(from, r.start));
        }
        from = from.max(r.end);
    }
    let end = align_down(u64::MAX, PAGE_SIZE);
    gaps.extend((from < end).then(|| AddrRange::new(from, end)));
    gaps
}

/// The option of which a key of the scheme `reclaim` is made.
fn option_of(key: &str) -> &'static str {
    match key {
        "quota.time" | "quota.reset" => "--quota",
        "quota.bytes" => "--quota-size",
        "quota.goals" | "goals" => "--goal",
        "watermarks.interval" => "--watermarks-interval",
        key if key.starts_with("watermarks") => "--watermarks",
        "filters" => "--range",
        _ => "--min-age",
    }
}

/// The scheme that the options say, if it makes sense.
fn checked(o: &Reclaim) -> Result<Scheme, UsageError> {
    let scheme = scheme(o);
    match scheme.check() {
        Ok(()) => Ok(scheme),
        // `--pages` is a filter, too, of what was touched within --min-age.
        Err(SchemeError::Scheme { why, .. }) => {
            let option = match *why {
                SchemeError::Within(_) => "--min-age",
                _ => option_of(why.key()),
            };
            Err(UsageError::new(format!("{option}: {why}")))
        }
        Err(e) => Err(UsageError::new(e.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use isotherm_core::scheme::{Goal, Scope};

    use super::*;
    use crate::cli::{Cli, Command};

    fn of(options: &[&str]) -> Scheme {
        let args = ["isotherm", "reclaim"].iter().chain(options);
        match Cli::try_parse_from(args).unwrap().command {
            Command::Reclaim(o) => scheme(&o),
            _ => unreachable!(),
        }
    }

    #[test]
    fn the_defaults_are_those_of_the_kernel() {
        let scheme = of(&["--all"]);
        assert_eq!(scheme.check(), Ok(()));
        assert_eq!(scheme.pattern.age, Duration::from_secs(120)..=Duration::MAX);
        assert_eq!((*scheme.pattern.hz.end(), *scheme.pattern.size.start()), (0.0, PAGE_SIZE));
        assert_eq!(scheme.quota.time, Some(Duration::from_millis(10)));
        assert_eq!(scheme.quota.bytes, Some(128 << 20));
        assert_eq!(scheme.quota.reset, Duration::from_secs(1));
        assert_eq!(scheme.quota.weights, Weights { size: 0, rate: 0, age: 1 });
        let marks = scheme.watermarks.unwrap();
        assert_eq!((marks.high, marks.mid, marks.low), (5000, 4000, 2000));
        assert_eq!((marks.metric, marks.interval), (Mark::Free, Duration::from_secs(5)));
    }

    #[test]
    fn single_pages_are_told_apart_by_the_same_age() {
        let scheme = of(&["--all", "--min-age=30s", "--pages"]);
        assert_eq!(scheme.check(), Ok(()));
        assert_eq!(scheme.pattern, Pattern { size: PAGE_SIZE..=u64::MAX, ..Pattern::default() });
        let kind = PageKind::Touched { within: Duration::from_secs(30) };
        assert_eq!(scheme.page_filters, [PageFilter { kind, matching: true, allow: false }]);
        assert!(of(&["--all"]).page_filters.is_empty());
    }

    #[test]
    fn goals_are_of_who_is_watched() {
        let goals = |options| of(options).quota.goals;
        let machine = Goal::Refaults { of: Scope::Machine, ppm: 2000 };
        assert_eq!(goals(&["--all", "--goal", "refault=0.2%"]), [machine]);
        let target = Duration::from_millis(1);
        let targets = Goal::Stalled { of: Scope::Group("targets".into()), target };
        assert_eq!(goals(&["--comm", "x", "--goal", "psi=0.1%"]), [targets]);
    }

    #[test]
    fn ranges_and_anonymous_memory_are_held_back() {
        let kinds = |options: &[&str]| -> Vec<FilterKind> {
            let scheme = of(options);
            assert_eq!(scheme.check(), Ok(()));
            assert!(scheme.filters.iter().all(|f| f.matching && !f.allow));
            scheme.filters.into_iter().map(|f| f.kind).collect()
        };
        let at = |from, to| FilterKind::Addresses(AddrRange::new(from, to));
        let end = align_down(u64::MAX, PAGE_SIZE);
        assert_eq!(kinds(&["--all"]), []);
        assert_eq!(
            kinds(&["--all", "--range=5000..9000", "--range=1000..2000", "--range=1000..3000"]),
            [at(0, 0x1000), at(0x3000, 0x5000), at(0x9000, end)]
        );
        assert_eq!(kinds(&["--all", "--range=..1000", "--range=1000.."]), []);
        let anon = [MappingKind::Anonymous, MappingKind::Heap, MappingKind::Stack];
        assert_eq!(kinds(&["--all", "--skip-anon"]), anon.map(FilterKind::Mapping));
        let marks = of(&["--all", "--watermarks-interval=1s"]).watermarks.unwrap();
        assert_eq!(marks.interval, Duration::from_secs(1));
    }

    #[test]
    fn what_makes_no_sense_is_told_by_its_option() {
        for (options, said) in [
            (&["--quota=2s/1s"][..], "--quota: a quota of 2s"),
            (&["--quota=1ms/1ms"], "--quota: a quota for each"),
            (&["--quota-size=1K"], "--quota-size: a quota of 1024 bytes"),
            (&["--watermarks=20%,40%,50%"], "--watermarks: watermarks 2000"),
            (&["--watermarks-interval=0"], "--watermarks-interval: "),
            (&["--goal=psi=0%"], "--goal: "),
            (&["--pages", "--min-age=9h"], "--min-age: "),
        ] {
            let args = ["isotherm", "reclaim", "--all"].iter().chain(options);
            let Command::Reclaim(o) = Cli::try_parse_from(args).unwrap().command else {
                unreachable!()
            };
            let why = checked(&o).unwrap_err().to_string();
            assert!(why.starts_with(said), "{options:?}: {why}");
        }
    }

    #[test]
    fn no_bound_is_none() {
        let scheme = of(&["--all", "--quota=none", "--quota-size=none", "--watermarks=none"]);
        assert_eq!((scheme.quota.time, scheme.quota.bytes, scheme.watermarks), (None, None, None));
    }
}
