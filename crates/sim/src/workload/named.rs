//! The workloads that come with isotherm.

use super::{Workload, WorkloadError};

/// A workload with a name.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// its name
    pub name: &'static str,
    text: &'static str,
}

macro_rules! named {
    ($($name:literal),+ $(,)?) => {
        [$(Named { name: $name, text: include_str!(concat!("../../workloads/", $name, ".toml")) }),+]
    };
}

/// All named workloads.
pub const NAMED: [Named; 11] = named![
    "hot-warm-cold",
    "stairs",
    "zigzag",
    "moving-window",
    "zipf",
    "sparse",
    "rate-ladder",
    "phases",
    "fork",
    "thp",
    "heat",
];

impl Named {
    /// The workload with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Named> {
        NAMED.into_iter().find(|n| n.name == name)
    }

    /// The parsed workload.
    ///
    /// # Errors
    /// None: a test checks all of them.
    pub fn workload(&self) -> Result<Workload, WorkloadError> {
        Workload::parse(self.text)
    }
}
