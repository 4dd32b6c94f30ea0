//! Memory that lanes on every rail of an engine may use: the names of one region at the workers of all rails.

use rdma_core::{Attached, AttachedRange};

/// Rails of an engine, at most.
pub(crate) const RAILS_MAX: usize = 8;

/// The rail of what uses a single one: windows of shared memory.
pub(crate) const FIRST_RAIL: usize = 0;

/// A region that is attached on each rail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttachedOnRails {
    /// By rail; behind the last one, the first again.
    names: [Attached; RAILS_MAX],
}

/// A range of a region that is attached on each rail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeOnRails {
    region: AttachedOnRails,
    offset: usize,
    len: usize,
}

impl AttachedOnRails {
    /// A region that the workers of the first and of the other rails call so.
    pub(crate) fn new(first: Attached, others: impl Iterator<Item = Attached>) -> Self {
        let mut names = [first; RAILS_MAX];
        names[1..].iter_mut().zip(others).for_each(|(name, other)| *name = other);
        Self { names }
    }

    /// The name of the region at the worker of a rail.
    pub(crate) fn on(&self, rail: usize) -> Attached {
        self.names[rail % RAILS_MAX]
    }

    /// A range of the region.
    pub(crate) fn range(self, offset: usize, len: usize) -> RangeOnRails {
        RangeOnRails { region: self, offset, len }
    }
}

impl RangeOnRails {
    /// The range, as requests on a rail name it.
    pub(crate) fn on(&self, rail: usize) -> AttachedRange {
        self.region.on(rail).range(self.offset, self.len)
    }
}
