//! A simulated fleet: the rows that agents on many hosts would have written, and their truth.
//!
//! Services of five kinds run on the hosts: caches, web services, batch jobs, services that leak, and idle ones. A
//! service consists of classes of pages ([`Service`]). From these follow exactly, for each minute, which share of its
//! memory is idle for how long, and which share is touched after how long ([`Day`]). A [`Measured`] minute adds the
//! errors of a monitor: ages that are read from a histogram of few bins and slightly wrong, and samples of pages.
//! The [`PageOutTruth`] does not use these shares: it simulates the touches of pages, one by one, and pages out each page at
//! its exact age.
//!
//! The same seed gives the same fleet, and each minute can be computed without the others.

mod day;
mod load;
mod measured;
mod service;
mod truth;

pub use day::Day;
pub use measured::Measured;
pub use service::{Deploy, Service, ServiceKind};
pub use truth::{PageOutTruth, truth};

use crate::random::{below, mix, unit};

/// Number of ages for which a row of the lake has columns.
pub const NR_AGES: usize = 22;
/// Seconds of a minute.
const MINUTE: f64 = 60.0;
/// Seconds of a day.
const DAY: f64 = 86_400.0;
/// Minutes of a day.
pub const DAY_MINUTES: u32 = 1440;
const GIB: u64 = 1 << 30;

/// The options of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FleetSpec {
    /// number of hosts
    pub hosts: u32,
    /// number of days
    pub days: u32,
    /// control groups on each host
    pub groups: u32,
    /// seed of everything
    pub seed: u64,
}

/// A simulated fleet.
#[derive(Debug, Clone)]
pub struct Fleet {
    spec: FleetSpec,
    /// in s, ascending
    ages: [u64; NR_AGES],
    services: Vec<Service>,
}

/// A control group of a host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// number of its service
    pub service: usize,
    /// identifies it among all groups of the fleet
    key: u64,
    /// its size, as a multiple of the size of its service
    scale: f64,
    /// memory that is never touched, in addition to that of its service, as a share of the size of its service
    extra: f64,
    /// whether a deploy of its service reaches it
    deployed: bool,
}

impl Group {
    /// Six hexadecimal digits that distinguish the groups of a service.
    #[must_use]
    pub fn suffix(&self) -> String {
        format!("{:06x}", self.key >> 40)
    }

    /// Whether it runs the new image of `service` in a minute.
    #[must_use]
    pub fn is_new(&self, service: &Service, minute: u32) -> bool {
        self.deployed && service.deploy.as_ref().is_some_and(|deploy| deploy.minute <= minute)
    }
}

impl Fleet {
    /// A fleet whose rows have columns for `ages`, in s, ascending.
    #[must_use]
    pub fn new(spec: FleetSpec, ages: [u64; NR_AGES]) -> Self {
        let services = service::services(&spec);
        Fleet { spec, ages, services }
    }

    /// The options of the simulation.
    #[must_use]
    pub fn spec(&self) -> &FleetSpec {
        &self.spec
    }

    /// The services.
    #[must_use]
    pub fn services(&self) -> &[Service] {
        &self.services
    }

    /// Memory of a host in bytes: 32 GiB, or 64 GiB for one of four hosts.
    #[must_use]
    pub fn host_bytes(&self, host: u32) -> u64 {
        GIB << (5 + below(mix(mix(self.spec.seed, 1), u64::from(host)), 4) / 3)
    }

    /// Group `number` of a host.
    #[must_use]
    pub fn group(&self, host: u32, number: u32) -> Group {
        let key = mix(mix(self.spec.seed, 2), u64::from(host) << 32 | u64::from(number));
        let service = below(mix(key, 1), self.services.len() as u64) as usize;
        let share = self.services[service].deploy.as_ref().map_or(0.0, |deploy| deploy.share);
        Group {
            service,
            key,
            scale: 0.8 * 1.5625f64.powf(unit(mix(key, 2))),
            extra: 0.06 * unit(mix(key, 3)),
            deployed: unit(mix(key, 4)) < share,
        }
    }

    /// All groups, in the order of the hosts.
    pub fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        let numbers = 0..self.spec.groups;
        let of = move |host| numbers.clone().map(move |number| self.group(host, number));
        (0..self.spec.hosts).flat_map(of)
    }

    /// The mean size of the groups that the deploy of a service reaches, as a multiple of its size.
    #[must_use]
    pub fn mean_scale_of_deployed(&self, service: usize) -> f64 {
        let scales = self.groups().filter(|g| g.service == service && g.deployed).map(|g| g.scale);
        let (sum, count) =
            scales.fold((0.0, 0.0), |(sum, count), scale| (sum + scale, count + 1.0));
        if count > 0.0 { sum / count } else { 0.0 }
    }

    /// The expected values of day `number`, for every service.
    #[must_use]
    pub fn day(&self, number: u32) -> Day {
        Day::new(&self.services, &self.ages, number)
    }
}

#[cfg(test)]
mod tests;
