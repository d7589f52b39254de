//! The services of a fleet: classes of pages, their load, and deploys.

use super::load::{Load, Rhythm};
use super::{DAY, DAY_MINUTES, FleetSpec};
use crate::random::{below, mix, unit};

/// Services of a large fleet; a smaller one has a service for every four groups.
const NR_SERVICES: u32 = 40;
const TEAMS: [&str; 8] = ["cart", "search", "billing", "users", "orders", "ads", "mail", "stock"];
const MIB: u64 = 1 << 20;

/// The kind of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServiceKind {
    /// a cache, whose entries are read by Zipf's law
    Cache,
    /// answers requests of users, more by day
    Web,
    /// works for some hours of each day, then keeps its memory
    Batch,
    /// keeps memory that it never uses again
    Leak,
    /// does hardly anything
    Idle,
}

impl ServiceKind {
    const ALL: [ServiceKind; 5] = [
        ServiceKind::Cache,
        ServiceKind::Web,
        ServiceKind::Batch,
        ServiceKind::Leak,
        ServiceKind::Idle,
    ];

    /// Its name in the truth.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ServiceKind::Cache => "cache",
            ServiceKind::Web => "web",
            ServiceKind::Batch => "batch",
            ServiceKind::Leak => "leak",
            ServiceKind::Idle => "idle",
        }
    }

    /// The last part of the names of its services. A leak is not announced by a name.
    fn suffix(self) -> &'static str {
        match self {
            ServiceKind::Leak => "worker",
            ServiceKind::Idle => "archive",
            other => other.name(),
        }
    }
}

/// Pages that are touched equally often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageClass {
    /// as a share of the size of the service
    pub share: f64,
    /// touches of a page per second at load 1; 0: touched only at the start
    pub hz: f64,
}

/// A process generation of a service: one image, and when it was started.
#[derive(Debug, Clone, PartialEq)]
pub struct Generation {
    /// start in s; negative if it was before the first day
    pub born: f64,
    /// its pages
    pub classes: Vec<PageClass>,
    /// growth by memory that is touched once: a share of the size of the service per day
    pub leak: f64,
}

/// A new image.
#[derive(Debug, Clone, PartialEq)]
pub struct Deploy {
    /// minute of the fleet at which the groups restart with it
    pub minute: u32,
    /// share of the groups that it reaches
    pub share: f64,
    /// memory that is never touched in addition, as a share of the size of the service
    pub cold: f64,
}

/// A service: the same on every host, but for its size.
#[derive(Debug, Clone)]
pub struct Service {
    /// its name
    pub name: String,
    /// the team it belongs to: a Kubernetes namespace
    pub namespace: String,
    /// kind of the service
    pub kind: ServiceKind,
    /// mean size of a group, without its growth
    pub bytes: u64,
    /// memory limit of a group
    pub limit_bytes: u64,
    /// share of the resident memory whose accesses cannot be observed
    pub unknown: f64,
    /// a new image, if there is one
    pub deploy: Option<Deploy>,
    /// before and after the deploy
    pub(super) generations: Vec<Generation>,
    pub(super) load: Load,
}

impl Service {
    /// The image before (`new` is false) or after the deploy.
    #[must_use]
    pub fn image(&self, new: bool) -> String {
        format!("registry.example/{}:1.{}", self.name, if new { 5 } else { 4 })
    }
}

pub(super) fn services(spec: &FleetSpec) -> Vec<Service> {
    let groups = u64::from(spec.hosts) * u64::from(spec.groups);
    let number = (groups / 4).clamp(1, u64::from(NR_SERVICES)) as u32;
    (0..number).map(|i| service(spec, i)).collect()
}

fn service(spec: &FleetSpec, number: u32) -> Service {
    let key = mix(mix(spec.seed, 3), u64::from(number));
    let draw = |what: u64, from: f64, to: f64| from + (to - from) * unit(mix(key, what));
    let kind = ServiceKind::ALL[number as usize % ServiceKind::ALL.len()];
    let team = TEAMS[(number as usize / ServiceKind::ALL.len()) % TEAMS.len()];
    let classes = classes(kind, &draw);
    let first = Generation {
        born: -draw(10, 2.0, 20.0) * DAY,
        leak: if kind == ServiceKind::Leak { draw(11, 0.01, 0.06) } else { 0.0 },
        classes,
    };
    let deploy = deploy(spec, kind, key);
    let second = deploy.as_ref().map(|deploy| {
        let mut classes = first.classes.clone();
        classes.push(PageClass { share: deploy.cold, hz: 0.0 });
        Generation { born: f64::from(deploy.minute) * 60.0, classes, leak: first.leak }
    });
    let growth = 1.25 * first.leak * (f64::from(spec.days) - first.born / DAY);
    let bytes = (draw(12, 4096.0, 18_432.0) / f64::from(spec.groups)) as u64 * MIB;
    let rhythm = match kind {
        ServiceKind::Cache | ServiceKind::Leak => {
            Rhythm::Users { swing: 0.3, peak: draw(13, 10.0, 20.0) }
        }
        ServiceKind::Web => Rhythm::Users { swing: draw(14, 0.5, 0.8), peak: draw(13, 10.0, 20.0) },
        ServiceKind::Batch => {
            Rhythm::Phases { start: draw(13, 0.0, 24.0), hours: draw(14, 6.0, 14.0) }
        }
        ServiceKind::Idle => Rhythm::Even,
    };
    Service {
        name: format!("{team}-{}", kind.suffix()),
        namespace: team.to_owned(),
        kind,
        bytes,
        limit_bytes: (bytes as f64 * (draw(15, 1.6, 2.6) + growth)) as u64 / MIB * MIB,
        unknown: draw(16, 0.0, 0.03),
        deploy,
        generations: std::iter::once(first).chain(second).collect(),
        load: Load::new(rhythm, spec.days, mix(key, 17)),
    }
}

/// A deploy for two of three services. The restart of one that leaks would hide what the image changes.
fn deploy(spec: &FleetSpec, kind: ServiceKind, key: u64) -> Option<Deploy> {
    if kind == ServiceKind::Leak || spec.days < 3 || below(mix(key, 20), 3) == 0 {
        return None;
    }
    let changes = [0.0, 0.0, 0.06, 0.12];
    // Not on the first day and not on the last: a comparison requires a whole day on both sides.
    let day = 1 + below(mix(key, 21), u64::from(spec.days) - 2) as u32;
    Some(Deploy {
        minute: day * DAY_MINUTES + below(mix(key, 22), u64::from(DAY_MINUTES)) as u32,
        share: 0.5,
        cold: changes[below(mix(key, 23), changes.len() as u64) as usize],
    })
}

/// The pages of a kind of service. `draw` draws a number of a purpose from an interval.
fn classes(kind: ServiceKind, draw: &impl Fn(u64, f64, f64) -> f64) -> Vec<PageClass> {
    let spread = |share, from, to| geometric(share, from, to, 8);
    let once = |share| vec![PageClass { share, hz: 0.0 }];
    match kind {
        ServiceKind::Cache => {
            let cold = draw(30, 0.02, 0.1);
            let rarest = 1.0 / draw(31, 30.0, 1000.0);
            [once(cold), zipf(1.0 - cold, draw(32, 0.7, 1.1), rarest)].concat()
        }
        ServiceKind::Web => {
            let (hot, warm) = (draw(30, 0.4, 0.6), draw(31, 0.2, 0.3));
            [
                spread(hot, 1.0, 200.0),
                spread(warm, 1.0 / draw(32, 900.0, 7200.0), 1.0),
                once(1.0 - hot - warm),
            ]
            .concat()
        }
        ServiceKind::Batch => {
            let work = draw(30, 0.5, 0.9);
            [spread(work, 1.0 / 600.0, 50.0), once(1.0 - work)].concat()
        }
        ServiceKind::Leak => {
            let (hot, warm) = (draw(30, 0.4, 0.6), draw(31, 0.15, 0.25));
            [
                spread(hot, 1.0, 100.0),
                spread(warm, 1.0 / draw(32, 1800.0, 7200.0), 1.0),
                once(1.0 - hot - warm),
            ]
            .concat()
        }
        ServiceKind::Idle => {
            let used = draw(30, 0.15, 0.4);
            [spread(used, 1.0 / 7200.0, 1.0), once(1.0 - used)].concat()
        }
    }
}

/// `parts` classes of equal size whose rates are spread evenly over the logarithm.
fn geometric(share: f64, from: f64, to: f64, parts: u32) -> Vec<PageClass> {
    let parts = f64::from(parts);
    let hz = |i: f64| from * (to / from).powf((i + 0.5) / parts);
    let mut classes = Vec::new();
    let mut i = 0.0;
    while i < parts {
        classes.push(PageClass { share: share / parts, hz: hz(i) });
        i += 1.0;
    }
    classes
}

/// A million pages whose rates fall with their rank by `exponent`, down to `rarest` hz, in classes of ranks.
fn zipf(share: f64, exponent: f64, rarest: f64) -> Vec<PageClass> {
    const PAGES: f64 = 1e6;
    const CLASSES: i32 = 24;
    let border = |i: i32| PAGES.powf(f64::from(i) / f64::from(CLASSES));
    let class = |i: i32| {
        let (from, to) = (if i == 0 { 0.0 } else { border(i) }, border(i + 1));
        let rank = (from.max(1.0) * to).sqrt();
        PageClass {
            share: share * (to - from) / PAGES,
            hz: (rarest * (PAGES / rank).powf(exponent)).min(1000.0),
        }
    };
    (0..CLASSES).map(class).collect()
}
