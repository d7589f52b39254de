//! Figures of the mails, for comparison: percentages, as the mails print them.

use super::config::Config;

/// A mail with the tables of 25 programs: more run time, and more resident memory, under rec, thp, ethp and prcl.
#[derive(Debug, Clone, Copy)]
pub struct Mail {
    /// its name in the tables
    pub name: &'static str,
    /// total run time
    pub time: [Option<f64>; 4],
    /// total resident memory; `None` where the mail does not print it
    pub resident: [Option<f64>; 4],
}

/// The mails.
pub const MAILS: [Mail; 2] = [
    Mail {
        name: "DAMON",
        time: [Some(1.02), Some(-4.29), Some(-1.56), Some(8.41)],
        resident: [Some(-0.47), Some(10.84), Some(2.08), Some(-24.26)],
    },
    Mail {
        name: "its schemes",
        time: [Some(0.76), Some(-4.50), Some(-1.83), Some(4.84)],
        resident: [None, None, None, Some(-23.59)],
    },
];

/// A row of the grid of quotas in the mail that proposed proactive reclamation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reclamation {
    /// memory saved
    pub saved: f64,
    /// CPU time of the reclaimer
    pub cpu: f64,
    /// slowdown of the programs
    pub slowdown: f64,
}

/// The row of a configuration.
pub fn reclamation(config: Config) -> Option<Reclamation> {
    let of = |saved, cpu, slowdown| Some(Reclamation { saved, cpu, slowdown });
    match config {
        Config::Prcl => of(47.16, 11.62, 5.4),
        Config::Quota { ms: 10, prioritised: false } => of(4.55, 1.78, 2.51),
        Config::Quota { ms: 50, prioritised: false } => of(40.84, 5.7, 4.53),
        Config::Quota { ms: 200, prioritised: false } => of(48.42, 10.92, 4.69),
        Config::Quota { ms: 10, prioritised: true } => of(0.77, 1.37, 1.84),
        Config::Quota { ms: 50, prioritised: true } => of(40.34, 5.16, 3.38),
        Config::Quota { ms: 200, prioritised: true } => of(47.99, 10.41, 5.1),
        _ => None,
    }
}
