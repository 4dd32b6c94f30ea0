//! Test support of the whole crate: the functions behind the fuzz targets, a network in simulated time, and samples of
//! exhaustive tests.

pub mod fuzz;
#[cfg(test)]
pub(crate) mod netsim;
#[cfg(test)]
pub(crate) mod soak;
