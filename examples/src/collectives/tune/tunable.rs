//! The operations that a table can have: the collectives that have a program, and the barrier, which has none.

use crate::collectives::Collective;
use rdma_collective::collective::tuning;

/// An operation that a table can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tunable {
    /// A collective, measured as its program does.
    Program(Collective),
    /// The barrier, which moves nothing and so has no sizes.
    Barrier,
}

impl Tunable {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let programs = Collective::ALL.iter().copied().filter(|of| of.tuned().is_some());
        programs.map(Self::Program).chain([Self::Barrier])
    }

    /// As flags have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Program(collective) => collective.name(),
            Self::Barrier => "barrier",
        }
    }

    /// As a table has it.
    pub const fn tuned(self) -> Option<tuning::Collective> {
        match self {
            Self::Program(collective) => collective.tuned(),
            Self::Barrier => Some(tuning::Collective::Barrier),
        }
    }

    /// Returns the sizes that are measured: an operation without bytes has one row for any size.
    pub fn sizes(self, sizes: &[u64]) -> &[u64] {
        match self {
            Self::Program(_) => sizes,
            Self::Barrier => &[u64::MAX],
        }
    }
}
