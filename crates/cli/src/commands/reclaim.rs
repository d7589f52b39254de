//! `isotherm reclaim`: one scheme with good defaults, which an operator leaves running.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use isotherm::control::machine_text;
use isotherm::reclaim::SCHEME_NAME;
use isotherm::service::kernel::{self, KernelReclaim};
use isotherm::service::{self, ServiceConfig, ServiceError};
use isotherm::text_file::text_of;
use isotherm::watch::{AttrsFor, LookBy};
use isotherm_core::Attrs;
use isotherm_core::scheme::Scheme;
use isotherm_linux::damon;

use super::report::output::print;
use super::run::act;
use crate::cli::{Config, Reclaim, UsageError};

/// Pages out memory until a signal, a request or `--duration` ends it.
pub fn run(options: Reclaim) -> Result<ExitCode> {
    // The arguments after `reclaim`: only options without a value, as -v, may stand before it.
    let typed = std::env::args_os().skip_while(|word| word != "reclaim").skip(1).collect();
    let service = match options.config {
        None => Service::new(options, None, typed)?,
        Some(path) => Service::read(path, typed)?,
    };
    let json = service.options.acting.json;
    if service.options.acting.watching.look == LookBy::Damon {
        service.check_alone()?;
        let (asked, scheme) = service.kernel_request().map_err(|e| service.placed(e))?;
        return by_kernel(&service.options, asked, scheme);
    }
    act(&(Rc::new(service) as Rc<dyn ServiceConfig>), json)
}

/// Lets the kernel page out, and prints the result.
fn by_kernel(o: &Reclaim, asked: damon::ReclaimSpec, scheme: Scheme) -> Result<ExitCode> {
    let done = kernel::run(KernelReclaim {
        asked,
        scheme,
        ranges: o.range.clone(),
        socket: o.socket(),
        duration: o.acting.duration,
        is_in_file: o.config.is_some(),
    })?;
    let text = if o.acting.json {
        serde_json::to_string(&done)? + "\n"
    } else {
        done.table.text() + &machine_text(&serde_json::to_value(&done.total)?)
    };
    print(text.as_bytes())
}

/// The configuration: one scheme made from options, and further schemes from a file.
struct Service {
    options: Reclaim,
    acting: service::Acting,
    config: Option<(PathBuf, Config)>,
    typed: Vec<OsString>,
}

impl Service {
    fn new(
        options: Reclaim,
        config: Option<(PathBuf, Config)>,
        typed: Vec<OsString>,
    ) -> Result<Self, UsageError> {
        // The service may start before its targets.
        let acting = options.acting.acting(true)?;
        Ok(Service { options, acting, config, typed })
    }

    fn read(path: PathBuf, typed: Vec<OsString>) -> Result<Self, ServiceError> {
        let text = text_of(&path, || format!("cannot read the options in {}", path.display()))?;
        let config = Config::read(&path, text)?;
        let options = config.under(&typed)?;
        Ok(Service::new(options, Some((path, config)), typed)?)
    }

    /// The request to the kernel, for `--look damon`, and its scheme.
    fn kernel_request(&self) -> Result<(damon::ReclaimSpec, Scheme), UsageError> {
        let attrs = self.options.acting.watching.kdamond()?;
        kernel::request(&self.options.scheme(), &self.acting, attrs)
    }

    /// Fails if the file has schemes: the kernel's monitor runs only the one made from options.
    fn check_alone(&self) -> Result<(), UsageError> {
        let more = self
            .config
            .as_ref()
            .map(|(_, config)| config.schemes(Duration::from_secs(1), SCHEME_NAME));
        match more.transpose()?.is_none_or(|more| more.is_empty()) {
            true => Ok(()),
            false => Err(UsageError::new("[[scheme]] and --look damon cannot be combined")),
        }
    }
}

impl ServiceConfig for Service {
    fn acting(&self) -> &service::Acting {
        &self.acting
    }

    fn attrs(&self) -> &dyn AttrsFor {
        &self.options.acting.watching
    }

    fn check(&self) -> Result<Attrs, UsageError> {
        self.options.acting.check()
    }

    fn schemes(&self, attrs: &Attrs) -> Result<Vec<Scheme>, UsageError> {
        let more = self
            .config
            .as_ref()
            .map(|(_, config)| config.schemes(attrs.snapshot_interval(), SCHEME_NAME));
        let first = self.options.scheme().checked().map_err(|e| self.placed(e))?;
        Ok(std::iter::once(first).chain(more.transpose()?.into_iter().flatten()).collect())
    }

    fn socket(&self) -> Option<PathBuf> {
        self.options.socket()
    }

    fn is_service(&self) -> bool {
        true
    }

    fn of_options(&self) -> Option<&'static str> {
        Some(SCHEME_NAME)
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

    fn reread(&self) -> Result<Rc<dyn ServiceConfig>, ServiceError> {
        let Some((path, before)) = &self.config else {
            let text = "there is no file to re-read: --config names one";
            return Err(UsageError::new(text).into());
        };
        let service = Service::read(path.clone(), self.typed.clone())?;
        if let Some((_, config)) = &service.config {
            config.check_change(before)?;
        }
        Ok(Rc::new(service))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use isotherm_core::scheme::{FilterKind, Goal, Pattern, Scope, WatermarkMetric, Weights};
    use isotherm_core::{AddrRange, MappingKind, PAGE_SIZE, PageFilter, PageKind, align_down};

    use super::*;
    use crate::cli::{Cli, Command};

    fn of(options: &[&str]) -> Scheme {
        let args = ["isotherm", "reclaim"].iter().chain(options);
        match Cli::try_parse_from(args).unwrap().command {
            Command::Reclaim(o) => o.scheme().scheme(),
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
        assert_eq!(scheme.quota.weights, Weights { age: 1, ..Weights::default() });
        let marks = scheme.watermarks.unwrap();
        assert_eq!((marks.high, marks.mid, marks.low), (5000, 4000, 2000));
        assert_eq!((marks.metric, marks.interval), (WatermarkMetric::Free, Duration::from_secs(5)));
    }

    #[test]
    fn single_pages_are_distinguished_by_the_same_age() {
        let scheme = of(&["--all", "--min-age=30s", "--pages"]);
        assert_eq!(scheme.check(), Ok(()));
        assert_eq!(scheme.pattern, Pattern { size: PAGE_SIZE..=u64::MAX, ..Pattern::default() });
        let kind = PageKind::Touched { within: Duration::from_secs(30) };
        assert_eq!(scheme.page_filters, [PageFilter { kind, matching: true, allow: false }]);
        assert!(of(&["--all"]).page_filters.is_empty());
    }

    #[test]
    fn goals_apply_to_the_watched_scope() {
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
    fn invalid_values_name_their_option() {
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
            let why = o.scheme().checked().unwrap_err().to_string();
            assert!(why.starts_with(said), "{options:?}: {why}");
        }
    }

    #[test]
    fn no_bound_is_none() {
        let scheme = of(&["--all", "--quota=none", "--quota-size=none", "--watermarks=none"]);
        assert_eq!((scheme.quota.time, scheme.quota.bytes, scheme.watermarks), (None, None, None));
    }

    fn of_kernel(options: &[&str]) -> Result<damon::ReclaimSpec, String> {
        let args = ["isotherm", "reclaim", "--look=damon"].iter().chain(options);
        match Cli::try_parse_from(args).unwrap().command {
            Command::Reclaim(o) => {
                let service = Service::new(o, None, Vec::new()).unwrap();
                service.kernel_request().map(|(asked, _)| asked).map_err(|e| e.to_string())
            }
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_lake_requires_processes() {
        for (selected, is_refused) in
            [(&["--dir=/tmp"][..], true), (&["--dir=/tmp", "--pid=1"], false)]
        {
            let args = ["isotherm", "reclaim", "--lake=/no/lake"].iter().chain(selected);
            let Command::Reclaim(o) = Cli::try_parse_from(args).unwrap().command else {
                unreachable!()
            };
            let refused = o.acting.check().err().is_some_and(|e| e.to_string().contains("--lake"));
            assert_eq!(refused, is_refused, "{selected:?}");
        }
    }

    #[test]
    fn options_become_a_request_to_the_kernel() {
        let asked = of_kernel(&["--all", "--goal", "psi=0.1%", "--quota", "20ms/2s"]).unwrap();
        assert_eq!(asked.min_age, Duration::from_secs(120));
        assert_eq!((asked.time, asked.bytes), (Some(Duration::from_millis(20)), Some(128 << 20)));
        assert_eq!(asked.stalled, Some(Duration::from_millis(2)), "in each window");
        assert_eq!(asked.watermarks, Some(([5000, 4000, 2000], Duration::from_millis(500))));
        let asked = of_kernel(&["--all", "--watermarks-interval=2s", "--skip-anon"]).unwrap();
        assert_eq!(asked.watermarks.unwrap().1, Duration::from_secs(2));
        assert!(asked.skip_anon);
    }

    #[test]
    fn options_that_the_kernel_lacks_are_refused() {
        for (options, said) in [
            (&["--pid=1"][..], "choose --look bpf"),
            (&["--comm=x"], "give --all"),
            (&["--all", "--log=x"], "--log"),
            (&["--all", "--except-comm=x"], "leave out --except-comm"),
            (&["--all", "--goal=refault=1%"], "psi=SHARE"),
            (&["--all", "--goal=psi=1%", "--goal=psi=2%"], "psi=SHARE once"),
            (&["--all", "--", "true"], "leave out the command"),
            (&["--all", "--budget=1%"], "--budget"),
            (&["--all", "--quota=0ms/1s"], "quota of 0"),
            (&["--all", "--quota=none", "--quota-size=0", "--dry-run"], "quota of 0"),
            (&["--all", "--quota=0ms/0s"], "10 ms to 24 hours"),
            (&["--all", "--quota=2s/1s"], "no more time than that"),
            (&["--all", "--quota-size=100"], "the action takes 4096 at least"),
            (&["--all", "--watermarks=20%,40%,50%"], "falling order"),
            (&["--all", "--goal=psi=0%"], "no goal"),
        ] {
            let why = of_kernel(options).unwrap_err();
            assert!(why.contains(said), "{options:?}: {why}");
        }
    }
}
