//! What a table can be of: the collectives that have a program, and the barrier, which has none.

use crate::collectives::Collective;
use rdma_collective::collective::tuning;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tunable {
    /// What is measured as its program does.
    Program(Collective),
    /// It moves nothing, and so has no sizes.
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

    /// Those of its sizes that are measured: of no bytes any row is.
    pub fn sizes(self, sizes: &[u64]) -> &[u64] {
        match self {
            Self::Program(_) => sizes,
            Self::Barrier => &[u64::MAX],
        }
    }
}
