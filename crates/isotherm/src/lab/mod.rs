//! Pictures of the experiments of [`isotherm_sim::lab`], and the lake of a simulated fleet.

pub mod fair_zone;
pub mod fleet;
pub mod interleaving;
