//! The holds of a pool: which blocks transfers read (leased), which they write (granted), which readers of this process
//! share, and which are quarantined.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::blocks::List;
use super::pool::{Pool, PoolId};
use crate::kv::KvError;
use crate::kv::layout::{Layout, Side};
use crate::kv::plan::PlanError;
use crate::metrics::{self, Present};

/// The hold of a transfer, or of a reader, on a block.
///
/// A part of [`KvError`](crate::kv::KvError).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HoldKind {
    /// A transfer reads the block: it must keep its bytes until the peer has confirmed them.
    Leased,
    /// A transfer fills the block: a peer, or a read of this side, may write it at any moment.
    Granted,
    /// Readers of this process use the block: those of a [`BlockShare`](crate::kv::BlockShare), and transfers whose
    /// decode [has](crate::kv::Blocks::having) it. A block that is leased as well counts as leased.
    Shared,
    /// The device refused to end a lane over which the block may still be read or written, so it is never used again.
    Quarantined,
}

impl fmt::Display for HoldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Leased => "leased to a transfer that reads it",
            Self::Granted => "granted to a transfer that writes it",
            Self::Shared => "shared by readers of this process",
            Self::Quarantined => "quarantined, because the device may still use it",
        })
    }
}

/// The hold on every block of a pool. Blocks of groups that share memory have one hold together.
#[derive(Debug)]
pub(super) struct Holds {
    layout: Layout,
    /// An entry a block, so that a request touches one cache line for each of its blocks.
    blocks: Box<[BlockHold]>,
    /// Number of the next hold.
    next: u64,
}

/// The hold on one block.
#[derive(Debug)]
struct BlockHold {
    /// 0 is free, a positive number counts leases, [`GRANTED`] and [`QUARANTINED`] are negative.
    state: i32,
    /// Number of shares. They go together with leases.
    shares: u32,
    /// The number of the hold that took the block last, so that a block which a request gives twice is noticed without
    /// memory for each request.
    taken_by: u64,
    /// How often the block was granted, or written by the caller.
    generation: AtomicU64,
}

const GRANTED: i32 = -1;
const QUARANTINED: i32 = -2;
/// Not 0, so that the pages of all entries are there before the first request touches one.
const NO_HOLD: u64 = u64::MAX;

impl Holds {
    pub(super) fn new(layout: Layout) -> Self {
        let free = |_| BlockHold { state: 0, shares: 0, taken_by: NO_HOLD, generation: AtomicU64::new(0) };
        Self { blocks: (0..layout.blocks()).map(free).collect(), layout, next: 1 }
    }

    fn get(&self, block: u32) -> Option<&BlockHold> {
        self.blocks.get(self.layout.base_block(block) as usize)
    }

    fn get_mut(&mut self, block: u32) -> Option<&mut BlockHold> {
        self.blocks.get_mut(self.layout.base_block(block) as usize)
    }

    /// The hold on a block; a block out of range counts as free.
    pub(super) fn of(&self, block: u32) -> Option<HoldKind> {
        let entry = self.get(block)?;
        match entry.state {
            0 => (entry.shares > 0).then_some(HoldKind::Shared),
            GRANTED => Some(HoldKind::Granted),
            QUARANTINED => Some(HoldKind::Quarantined),
            _ => Some(HoldKind::Leased),
        }
    }

    /// Counts a change of the block's contents, so that older verdicts on it no longer apply.
    pub(super) fn changes(&self, block: u32) {
        // Relaxed is enough because no other data is published by this counter: a thread that compares generations is
        // ordered after the change by the lock of the holds, or by its own use of the pool.
        if let Some(entry) = self.get(block) {
            entry.generation.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of the block's present contents.
    pub(super) fn generation(&self, block: u32) -> Option<u64> {
        self.get(block).map(|entry| entry.generation.load(Ordering::Relaxed))
    }

    /// Takes the blocks of `list` for a hold of `kind`, or as [shared](List::has) ones, and returns the number of the
    /// hold. After an error no block is taken.
    fn take(&mut self, kind: HoldKind, side: Side, list: &List) -> Result<u64, KvError> {
        if list.blocks().is_empty() {
            return Err(PlanError::NoBlocks.into());
        }
        let number = self.next;
        self.next += 1;
        for (at, (block, of)) in list.holds(kind).enumerate() {
            if let Err(error) = self.take_one(of, side, block, number) {
                list.holds(kind).take(at).for_each(|(block, of)| self.give_back(of, block));
                return Err(error);
            }
        }
        Ok(number)
    }

    fn take_one(&mut self, kind: HoldKind, side: Side, block: u32, number: u64) -> Result<(), KvError> {
        let (count, by) = (self.blocks.len() as u32, self.of(block));
        let Some(BlockHold { state, shares, taken_by, .. }) = self.get_mut(block) else {
            return Err(PlanError::BlockOutOfRange { side, block, blocks: count }.into());
        };
        if std::mem::replace(taken_by, number) == number {
            return Err(PlanError::BlockRepeated { side, block }.into());
        }
        let reads = |kind| matches!(kind, HoldKind::Leased | HoldKind::Shared);
        if let Some(by) = by.filter(|by| !(reads(kind) && reads(*by))) {
            return Err(KvError::Held { block, by });
        }
        match kind {
            HoldKind::Shared => *shares = shares.saturating_add(1),
            HoldKind::Leased => *state = state.saturating_add(1),
            HoldKind::Granted | HoldKind::Quarantined => *state = GRANTED,
        }
        Ok(())
    }

    /// Ends a hold of `kind` on a block, which [`take`](Self::take) has taken.
    fn give_back(&mut self, kind: HoldKind, block: u32) {
        let Some(BlockHold { state, shares, .. }) = self.get_mut(block) else { return };
        match kind {
            HoldKind::Shared => *shares = shares.saturating_sub(1),
            HoldKind::Quarantined => *state = QUARANTINED,
            HoldKind::Granted => *state = 0,
            // Another lease of the block may have quarantined it meanwhile, and that must last.
            HoldKind::Leased if *state == QUARANTINED => {}
            HoldKind::Leased => *state -= 1,
        }
    }
}

/// The contents that verdicts describe: blocks of one pool, as one transfer left them.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pool: PoolId,
    /// By position in the request.
    generations: Arc<[u64]>,
}

impl Origin {
    /// Positions in the request whose blocks no longer hold those contents.
    pub(super) fn changed(&self, pool: &Pool, blocks: &[u32]) -> Vec<usize> {
        let holds = pool.holds();
        let (still, places) = (self.still(pool, &holds), blocks.iter().enumerate());
        places.filter(|(place, block)| !still(*place, **block)).map(|(place, _)| place).collect()
    }

    /// Whether the block at a position of the request still holds those contents.
    fn still(&self, pool: &Pool, holds: &Holds) -> impl Fn(usize, u32) -> bool {
        let same = self.pool == pool.id();
        move |place, block| {
            same && self.generations.get(place).is_some_and(|of| holds.generation(block) == Some(*of))
        }
    }
}

/// A share of the hold of one transfer on its blocks. The blocks are free once every share was released or dropped,
/// unless they are quarantined.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    list: List,
    /// Number of the hold, unique in the pool.
    number: u64,
    pool: PoolId,
    /// Generations of the contents that this transfer leaves; none for leases.
    generations: Arc<OnceLock<Arc<[u64]>>>,
    /// Absent once this share was released.
    taken: Option<Arc<Taken>>,
}

/// Blocks that a hold has taken.
#[derive(Debug)]
struct Taken {
    pool: Pool,
    kind: HoldKind,
    list: List,
    quarantined: AtomicBool,
    _present: Present,
}

impl Hold {
    /// Leases `blocks` for reading. Several transfers may lease the same block, because requests with a common prefix
    /// share blocks.
    pub(super) fn lease(pool: &Pool, list: impl Into<List>) -> Result<Self, KvError> {
        Self::new(pool, HoldKind::Leased, list.into(), None)
    }

    /// Shares `blocks` with other readers.
    pub(super) fn share(pool: &Pool, list: impl Into<List>) -> Result<Self, KvError> {
        Self::new(pool, HoldKind::Shared, list.into(), None)
    }

    /// Grants `blocks` to one transfer for writing. Their contents count as unchanged until [`begin`](Self::begin),
    /// so that verdicts can still be compared with them. Blocks that decode has are shared, and not written.
    pub(super) fn grant(pool: &Pool, list: impl Into<List>) -> Result<Self, KvError> {
        Self::new(pool, HoldKind::Granted, list.into(), None)
    }

    /// Grants like [`grant`](Self::grant), but decode has only those of its blocks that are still as `origin` has them.
    pub(super) fn grant_again(pool: &Pool, list: &List, origin: &Origin) -> Result<Self, KvError> {
        Self::new(pool, HoldKind::Granted, list.clone(), Some(origin))
    }

    fn new(pool: &Pool, kind: HoldKind, list: List, origin: Option<&Origin>) -> Result<Self, KvError> {
        let side = match kind {
            HoldKind::Leased => Side::Source,
            HoldKind::Shared if pool.purpose().at_prefill().is_some() => Side::Source,
            HoldKind::Shared | HoldKind::Granted | HoldKind::Quarantined => Side::Destination,
        };
        list.check(pool.layout(), side)?;
        let mut holds = pool.holds();
        let list = match origin {
            // Under the lock of the holds, because nobody changes a block between the look and the hold then.
            Some(origin) => list.having_only(origin.still(pool, &holds)),
            None => list,
        };
        let number = holds.take(kind, side, &list)?;
        drop(holds);
        let (quarantined, _present) = (AtomicBool::new(false), metrics::kv_lease(kind == HoldKind::Leased));
        let taken = Taken { pool: pool.clone(), kind, list: list.clone(), quarantined, _present };
        let generations = Arc::default();
        Ok(Self { list, number, pool: pool.id(), generations, taken: Some(Arc::new(taken)) })
    }

    /// Starts new contents: verdicts on the blocks from before no longer apply. Only the first share to begin does so.
    pub(super) fn begin(&self) {
        let Some(taken) = &self.taken else { return };
        self.generations.get_or_init(|| {
            let holds = taken.pool.holds();
            self.list.not_had().into_iter().for_each(|block| holds.changes(block));
            self.blocks().iter().filter_map(|block| holds.generation(*block)).collect()
        });
    }

    pub(super) fn blocks(&self) -> &[u32] {
        self.list.blocks()
    }

    /// The blocks and token ranges of the request.
    pub(super) fn list(&self) -> &List {
        &self.list
    }

    /// The contents that this transfer leaves, for its verdicts.
    pub(super) fn origin(&self) -> Origin {
        let generations = self.generations.get().cloned().unwrap_or_default();
        Origin { pool: self.pool.clone(), generations }
    }

    /// The number of the hold, unique in the pool.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Releases this share. The list of blocks stays readable.
    pub(super) fn release(&mut self) {
        self.taken = None;
    }

    /// Marks the hold as permanent, because the device may still read or write the blocks.
    pub(super) fn quarantine(&mut self) {
        if let Some(taken) = &self.taken {
            // Relaxed is enough, because the last share is dropped after this one.
            if !taken.quarantined.swap(true, Ordering::Relaxed) {
                let kinds = self.list.holds(HoldKind::Quarantined);
                metrics::kv_quarantined(|| kinds.filter(|(_, kind)| *kind == HoldKind::Quarantined).count());
            }
        }
        crate::log::error!(
            blocks = self.blocks().len(),
            "blocks are quarantined, because the device did not end their lane; make a new pool, and see the device's log"
        );
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // A forked child must not take the lock of the holds, and its parent's blocks stay held.
        let kind = if *self.quarantined.get_mut() { HoldKind::Quarantined } else { self.kind };
        if self.pool.check_process().is_ok() {
            let mut holds = self.pool.holds();
            self.list.holds(kind).for_each(|(block, kind)| holds.give_back(kind, block));
        }
    }
}
