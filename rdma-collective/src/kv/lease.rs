//! The holds of a pool: which blocks transfers read (leased), which they write (granted), and which are quarantined.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::Layout;
use super::pool::{Pool, PoolId};
use crate::kv::KvError;
use crate::kv::layout::Side;
use crate::kv::plan::PlanError;

/// The hold of a transfer on a block.
///
/// A part of [`KvError`](crate::kv::KvError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldKind {
    /// A transfer reads the block: it must keep its bytes until the peer has confirmed them.
    Leased,
    /// A transfer fills the block: a peer, or a read of this side, may write it at any moment.
    Granted,
    /// The device refused to end a lane over which the block may still be read or written, so it is never used again.
    Quarantined,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leased => "leased to a transfer that reads it",
            Self::Granted => "granted to a transfer that writes it",
            Self::Quarantined => "quarantined, because the device may still use it",
        })
    }
}

/// The hold on every block of a pool.
#[derive(Debug)]
pub(super) struct Holds {
    /// By block: 0 is free, a positive number counts leases, [`GRANTED`] and [`QUARANTINED`] are negative.
    blocks: Box<[i32]>,
    next_lease: u64,
    /// Generation of each block: how often it was granted, or written by the caller.
    generations: Box<[AtomicU64]>,
}

const GRANTED: i32 = -1;
const QUARANTINED: i32 = -2;

impl Holds {
    pub(super) fn new(blocks: u32) -> Self {
        let generations = (0..blocks).map(|_| AtomicU64::new(0)).collect();
        Self { blocks: vec![0; blocks as usize].into(), next_lease: 1, generations }
    }

    /// The hold on a block; a block out of range counts as free.
    pub(super) fn of(&self, block: u32) -> Option<HoldKind> {
        match self.blocks.get(block as usize).copied().unwrap_or(0) {
            0 => None,
            GRANTED => Some(HoldKind::Granted),
            QUARANTINED => Some(HoldKind::Quarantined),
            _ => Some(HoldKind::Leased),
        }
    }

    /// Counts a change of the block's contents, so that older verdicts on it no longer apply.
    pub(super) fn changes(&self, block: u32) {
        // Relaxed is enough because no other data is published by this counter: a thread that compares generations is
        // ordered after the change by the lock of the holds, or by its own use of the pool.
        if let Some(generation) = self.generations.get(block as usize) {
            generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of the block's present contents.
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

/// The contents that verdicts describe: blocks of one pool, as one transfer left them.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pool: PoolId,
    /// By position in the request.
    generations: Box<[u64]>,
}

impl Origin {
    /// Positions in the request whose blocks no longer hold those contents.
    pub(super) fn changed(&self, pool: &Pool, blocks: &[u32]) -> Vec<usize> {
        let (same, holds) = (self.pool == pool.id(), pool.holds());
        let still = |place: usize, block| {
            same && self.generations.get(place).is_some_and(|of| holds.generation(block) == Some(*of))
        };
        let places = blocks.iter().enumerate();
        places.filter(|(place, block)| !still(*place, **block)).map(|(place, _)| place).collect()
    }
}

/// The hold of one transfer on its blocks. Dropping it frees the blocks, unless they are quarantined.
#[derive(Debug)]
pub(super) struct Hold {
    pool: Pool,
    kind: HoldKind,
    blocks: Box<[u32]>,
    /// Number of the lease, unique in the pool; 0 for grants.
    lease: u64,
    /// Generations of the contents that this transfer writes; empty for leases.
    generations: Box<[u64]>,
    released: bool,
}

impl Hold {
    /// Leases `blocks` for reading. Several transfers may lease the same block, because requests with a common prefix
    /// share blocks.
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

    /// Grants `blocks` to one transfer for writing. Their contents count as unchanged until [`begin`](Self::begin),
    /// so that verdicts can still be compared with them.
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

    /// Starts new contents: verdicts on the blocks from before no longer apply.
    pub(super) fn begin(&mut self) {
        let holds = self.pool.holds();
        self.blocks.iter().for_each(|block| holds.changes(*block));
        self.generations = self.blocks.iter().filter_map(|block| holds.generation(*block)).collect();
    }

    pub(super) fn blocks(&self) -> &[u32] {
        &self.blocks
    }

    /// The contents that this transfer leaves, for its verdicts.
    pub(super) fn origin(&self) -> Origin {
        Origin { pool: self.pool.id(), generations: self.generations.clone() }
    }

    pub(super) fn lease_id(&self) -> u64 {
        self.lease
    }

    /// Frees the blocks, unless they are quarantined. Their list stays readable.
    pub(super) fn release(&mut self) {
        if std::mem::replace(&mut self.released, true) {
            return;
        }
        let kind = self.kind;
        self.pool.holds().set(&self.blocks, |state| match kind {
            HoldKind::Quarantined => QUARANTINED,
            HoldKind::Granted => 0,
            // Another lease of the block may have quarantined it meanwhile, and that must last.
            HoldKind::Leased if state == QUARANTINED => QUARANTINED,
            HoldKind::Leased => state - 1,
        });
    }

    /// Marks the hold as permanent, because the device may still read or write the blocks.
    pub(super) fn quarantine(&mut self) {
        self.kind = HoldKind::Quarantined;
        crate::log::error!(
            blocks = self.blocks.len(),
            "blocks are quarantined, because the device did not end their lane; make a new pool, and see the device's log"
        );
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.release();
    }
}

/// Fails if `blocks` is empty, has a block out of range, or repeats a block.
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
