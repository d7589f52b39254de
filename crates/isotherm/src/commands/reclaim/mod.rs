//! `isotherm reclaim`: one scheme with good defaults, that an operator leaves running.

mod kernel;
mod memory;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use isotherm_core::scheme::{Mark, Pattern, Quota, Scheme, Watermarks, Weights};
use isotherm_core::{Action, Attrs, PAGE_SIZE, PageFilter, PageKind};

use super::run::{Told, act};
use super::text_of;
use crate::cli::{Acting, Config, Look, Reclaim, UsageError};

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
        return kernel::run(&service.options);
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
        let more = self.config.as_ref().map(|(_, config)| config.schemes(Duration::from_secs(1)));
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
            self.config.as_ref().map(|(_, config)| config.schemes(attrs.snapshot_interval()));
        let first = scheme(&self.options);
        Ok(std::iter::once(first).chain(more.transpose()?.into_iter().flatten()).collect())
    }

    fn socket(&self) -> Option<PathBuf> {
        self.options.socket()
    }

    fn is_service(&self) -> bool {
        true
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
    let mut scheme = Scheme::new("reclaim", pattern, Action::PageOut);
    if o.pages {
        // Each page has an age of its own, whatever is beside it.
        let kind = PageKind::Touched { within: o.min_age };
        scheme.page_filters = vec![PageFilter { kind, matching: true, allow: false }];
    }
    scheme.quota = Quota {
        time: o.quota.time,
        bytes: o.quota_size.0,
        reset: o.quota.window,
        goals: o.goal.iter().map(|aim| aim.of(o.acting.targets.all)).collect(),
        weights: Weights { age: 1, ..Weights::default() },
    };
    scheme.watermarks = o.watermarks.0.map(|[high, mid, low]| Watermarks {
        metric: Mark::Free,
        interval: MARKS_EVERY,
        high,
        mid,
        low,
    });
    scheme
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
    fn no_bound_is_none() {
        let scheme = of(&["--all", "--quota=none", "--quota-size=none", "--watermarks=none"]);
        assert_eq!((scheme.quota.time, scheme.quota.bytes, scheme.watermarks), (None, None, None));
    }
}
