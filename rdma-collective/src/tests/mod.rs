//! Test support of the whole crate: the functions behind the fuzz targets, and a network in simulated time.

pub mod fuzz;
#[cfg(test)]
pub(crate) mod netsim;
