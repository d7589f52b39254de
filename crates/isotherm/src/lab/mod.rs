//! Pictures of the experiments of [`isotherm_sim::lab`].

pub mod fair_zone;
pub mod interleaving;
