//! Which blocks of a pool are in use by transfers: read by leases, to be written by grants.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::Layout;
use super::pool::{Pool, PoolId};
use crate::kv::KvError;
use crate::kv::layout::Side;
use crate::kv::plan::PlanError;

/// How a transfer holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldKind {
    /// It is a source: it keeps what it has until the peer has confirmed it.
    Leased,
    /// It is a destination: a peer may write it.
    Granted,
    /// The device refused to end a lane over which it may still be read or written: it is never used again.
    Quarantined,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leased => "leased to a transfer that reads it",
            Self::Granted => "granted to a transfer that writes it",
            Self::Quarantined => "quarantined, since the device did not let go of it",
        })
    }
}

/// The state of every block of a pool.
#[derive(Debug)]
pub(super) struct Holds {
    /// 0 is free, what is positive counts leases, the others are below.
    blocks: Box<[i32]>,
    next_lease: u64,
    /// How often each block was granted, or written by the caller.
    generations: Box<[AtomicU64]>,
}

const GRANTED: i32 = -1;
const QUARANTINED: i32 = -2;

impl Holds {
    pub(super) fn new(blocks: u32) -> Self {
        let generations = (0..blocks).map(|_| AtomicU64::new(0)).collect();
        Self { blocks: vec![0; blocks as usize].into(), next_lease: 1, generations }
    }

    /// How a block is held; one that is not there is free.
    pub(super) fn of(&self, block: u32) -> Option<HoldKind> {
        match self.blocks.get(block as usize).copied().unwrap_or(0) {
            0 => None,
            GRANTED => Some(HoldKind::Granted),
            QUARANTINED => Some(HoldKind::Quarantined),
            _ => Some(HoldKind::Leased),
        }
    }

    /// What a block holds is something else from now on.
    pub(super) fn changes(&self, block: u32) {
        // Nothing else is ordered by it: who asks has been told of the change by other means.
        if let Some(generation) = self.generations.get(block as usize) {
            generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells contents of a block apart.
    pub(super) fn generation(&self, block: u32) -> Option<u64> {
        self.generations.get(block as usize).map(|generation| generation.load(Ordering::Relaxed))
    }

    fn set(&mut self, blocks: &[u32], change: impl Fn(i32) -> i32) {
        for block in blocks {
            if let Some(state) = self.blocks.get_mut(*block as usize) {
                *state = change(*state);
            }
        }
    }
}

/// What verdicts speak of: the blocks of one pool, as one transfer has left them.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pool: PoolId,
    /// By place in the request.
    generations: Box<[u64]>,
}

impl Origin {
    /// The places of a request whose blocks do not hold any more what they held.
    pub(super) fn changed(&self, pool: &Pool, blocks: &[u32]) -> Vec<usize> {
        let (same, holds) = (self.pool == pool.id(), pool.holds());
        let still = |place: usize, block| {
            same && self.generations.get(place).is_some_and(|of| holds.generation(block) == Some(*of))
        };
        let places = blocks.iter().enumerate();
        places.filter(|(place, block)| !still(*place, **block)).map(|(place, _)| place).collect()
    }
}

/// Blocks that one transfer holds; they are free again when it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    pool: Pool,
    kind: HoldKind,
    blocks: Box<[u32]>,
    /// Tells leases of one pool apart; 0 for grants.
    lease: u64,
    /// Of what is written into the blocks by this transfer; none for leases.
    generations: Box<[u64]>,
    released: bool,
}

impl Hold {
    /// Holds `blocks` to be read: several transfers may, as requests with a common beginning do.
    pub(super) fn lease(pool: &Pool, blocks: &[u32]) -> Result<Self, KvError> {
        check_blocks(Side::Source, blocks, pool.layout())?;
        let mut holds = pool.holds();
        for &block in blocks {
            match holds.of(block) {
                None | Some(HoldKind::Leased) => {}
                Some(by) => return Err(KvError::Held { block, by }),
            }
        }
        holds.set(blocks, |leases| leases.saturating_add(1));
        let lease = holds.next_lease;
        holds.next_lease += 1;
        drop(holds);
        let (pool, kind, generations) = (pool.clone(), HoldKind::Leased, Box::default());
        Ok(Self { pool, kind, blocks: blocks.into(), lease, generations, released: false })
    }

    /// Holds `blocks` to be written by one transfer. They hold what they did until it [begins](Self::begin).
    pub(super) fn grant(pool: &Pool, blocks: &[u32]) -> Result<Self, KvError> {
        check_blocks(Side::Destination, blocks, pool.layout())?;
        let mut holds = pool.holds();
        for &block in blocks {
            if let Some(by) = holds.of(block) {
                return Err(KvError::Held { block, by });
            }
        }
        holds.set(blocks, |_| GRANTED);
        drop(holds);
        let (pool, kind, generations) = (pool.clone(), HoldKind::Granted, Box::default());
        Ok(Self { pool, kind, blocks: blocks.into(), lease: 0, generations, released: false })
    }

    /// What the blocks hold is of the transfer that writes them from now on.
    pub(super) fn begin(&mut self) {
        let holds = self.pool.holds();
        self.blocks.iter().for_each(|block| holds.changes(*block));
        self.generations = self.blocks.iter().filter_map(|block| holds.generation(*block)).collect();
    }

    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// What the blocks hold once this transfer has ended, to be told apart from what they hold later.
    pub(super) fn origin(&self) -> Origin {
        Origin { pool: self.pool.id(), generations: self.generations.clone() }
    }

    pub(super) fn lease_id(&self) -> u64 {
        self.lease
    }

    /// Lets go, unless the blocks are quarantined. What they were is still known.
    pub(super) fn release(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        let kind = self.kind;
        self.pool.holds().set(&self.blocks, |state| match kind {
            HoldKind::Quarantined => QUARANTINED,
            HoldKind::Granted => 0,
            // A block of several leases may have been quarantined by one of them.
            HoldKind::Leased if state == QUARANTINED => QUARANTINED,
            HoldKind::Leased => state - 1,
        });
    }

    /// Never lets go: the device may still use the blocks.
    pub(super) fn quarantine(&mut self) {
        self.kind = HoldKind::Quarantined;
        tracing::error!(
            blocks = self.blocks.len(),
            "blocks are quarantined, since a lane could not be ended"
        );
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

/// That `blocks` are some, all there, and none given twice.
pub(super) fn check_blocks(side: Side, blocks: &[u32], layout: &Layout) -> Result<(), PlanError> {
    if blocks.is_empty() {
        return Err(PlanError::NoBlocks);
    }
    let count = layout.shape().blocks;
    let mut seen = vec![false; count as usize];
    for &block in blocks {
        let Some(seen) = seen.get_mut(block as usize) else {
            return Err(PlanError::BlockOutOfRange { side, block, blocks: count });
        };
        if std::mem::replace(seen, true) {
            return Err(PlanError::BlockRepeated { side, block });
        }
    }
    Ok(())
}
