//! Pools: the registered memory of a KV cache, laid out in blocks, with the holds of transfers on them.
//!
//! This file owns reads and writes by the caller. `memory` owns registration and attachment, `keys` what peers reach
//! the memory by, `tensors` pools whose
//! tensors are registered one by one, `layout` offsets, `lease` the holds; `push` and `receive` move blocks.

mod keys;
mod memory;
mod pieces;
mod share;
mod stats;
mod tensors;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use rdma_core::Region;
use rdma_core::error::{Forked, RangeError, RegisterError};
use rdma_core::memory::OwnProcess;

use self::memory::Attachments;
use super::layout::{Extent, Layout};
use super::lease::{HoldKind, Holds};
use crate::kv::PoolError;
use crate::log::Held;

pub(super) use keys::PeerKeys;
pub(super) use memory::AttachedPool;
pub(super) use pieces::Pieces;
pub use share::BlockShare;
pub use stats::PoolStats;

/// The use of a pool, which decides the access rights of peers.
///
/// The argument of [`Pool::allocate`](crate::kv::Pool::allocate).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolUse {
    /// Peers may do nothing: blocks are pushed from this pool.
    Source,
    /// Peers may read: blocks are pushed from this pool, and pulled by the peers that they are offered to.
    SourceToPull,
    /// Peers may write: blocks are pushed into this pool, or pulled into it by this side.
    Destination,
    /// [`Source`](Self::Source) and [`Destination`](Self::Destination) in one: the KV cache of a process that both
    /// prefills and decodes. A block is leased or granted at a time, never both. On a NIC all peers have the key of the
    /// region: one that may write the pool at all may write blocks that another reads.
    Both,
    /// [`SourceToPull`](Self::SourceToPull) and [`Destination`](Self::Destination) in one. On a NIC every peer of such
    /// a pool may read and write all of it; take two pools where peers do not trust each other.
    BothToPull,
}

/// A pool: the blocks of one KV cache, in memory of the library or of the caller. A clone is another handle to the
/// same pool.
///
/// Any number of links can use one pool, which is attached to the engine's worker once for all of them.
///
/// A transfer *holds* its blocks. A held block can be read, but not [written](Self::write) or held for another
/// purpose until the transfer has ended, so that no server gets the wrong tokens. The restriction of a peer to single
/// blocks is an agreement among processes that use this library, unless the link is
/// [strict](super::LinkOptions::strict). The device itself restricts a peer to the pool and to the life of its link,
/// where each link has [keys of its own](super::Decode::has_own_keys); `docs/trust.md` has the whole picture.
///
/// ```
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_collective::kv::layout::{Layout, Model, Order};
/// use rdma_collective::kv::{Pool, PoolUse};
/// use rdma_core::{Device, SoftOptions};
///
/// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
/// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
/// let pool = Pool::allocate(&engine, &layout, PoolUse::Source)?;
/// pool.write(60, 7, 0, b"the first bytes of the last block")?;
/// let mut bytes = [0; 9];
/// pool.read(60, 7, 4, &mut bytes)?;
/// assert_eq!(&bytes, b"first byt");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// The identity of a pool, which stays unique after the pool is gone.
#[derive(Clone)]
pub(super) struct PoolId(Weak<Inner>);

struct Inner {
    /// Regions, and the offset there at which the piece begins.
    memory: Pieces<(Region, usize)>,
    attachments: Mutex<Attachments>,
    layout: Layout,
    purpose: PoolUse,
    /// Holds. The caller's writes take the read lock for their whole copy, so that no transfer takes hold of the
    /// block meanwhile.
    holds: OwnProcess<RwLock<Holds>>,
}

impl Pool {
    /// The layout of the blocks.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// The use that the pool was made for.
    #[must_use]
    pub fn purpose(&self) -> PoolUse {
        self.inner.purpose
    }

    /// Copies `bytes` into `block` of `layer`, from byte `offset` of the block on.
    ///
    /// # Errors
    ///
    /// [`PoolError::Held`] while a transfer or a reader holds the block; [`PoolError::Layout`] and [`PoolError::Range`]
    /// for a block or bytes out of range. Nothing is written then.
    pub fn write(&self, layer: u32, block: u32, offset: u64, bytes: &[u8]) -> Result<(), PoolError> {
        let holds = self.looked_up().map_err(RegisterError::from)?;
        self.check(layer, block, offset, bytes.len())?;
        if let Some(by) = holds.of(block) {
            return Err(PoolError::Held { block, by });
        }
        holds.changes(block);
        let mut done = 0;
        self.pieces(layer, block, offset, bytes.len(), |region, at, len| {
            let piece = bytes.get(done..done + len).unwrap_or_default();
            done += len;
            region.copy_in(at, piece)
        })
    }

    /// Copies bytes of `block` of `layer`, from byte `offset` of the block on, into `bytes`.
    ///
    /// Bytes of a granted block may change while they are read: wait for the transfer first.
    ///
    /// # Errors
    ///
    /// [`PoolError::Layout`] and [`PoolError::Range`] for a block or bytes out of range.
    pub fn read(&self, layer: u32, block: u32, offset: u64, bytes: &mut [u8]) -> Result<(), PoolError> {
        self.check(layer, block, offset, bytes.len())?;
        let mut done = 0;
        self.pieces(layer, block, offset, bytes.len(), |region, at, len| {
            let piece = bytes.get_mut(done..done + len).unwrap_or_default();
            done += len;
            region.copy_out(at, piece)
        })
    }

    /// Copies bytes of the pool, from byte `offset` on, into `bytes`.
    pub(super) fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), PoolError> {
        let (region, at) = self.inner.place(offset)?;
        Ok(region.copy_out(at, bytes)?)
    }

    /// The region that has the byte at an offset of the pool, and the offset there.
    pub(super) fn place(&self, offset: u64) -> Result<(&Region, usize), RangeError> {
        self.inner.place(offset)
    }

    /// The hold of transfers and readers on a block; `None` when it is free.
    #[must_use]
    pub fn held(&self, block: u32) -> Option<HoldKind> {
        self.looked_up().ok()?.of(block)
    }

    /// The holds for changing, which waits until no caller writes a block.
    pub(super) fn holds(&self) -> Held<RwLockWriteGuard<'_, Holds>> {
        // A poisoned lock is safe to use: each count changes in one statement.
        Held::lock(|| self.inner.holds.unasked().write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn id(&self) -> PoolId {
        PoolId(Arc::downgrade(&self.inner))
    }

    /// Fails in a forked child, which must not take the lock of the holds.
    pub(super) fn check_process(&self) -> Result<(), Forked> {
        self.inner.holds.get().map(drop)
    }

    /// The holds for reading: many threads may look at once.
    fn looked_up(&self) -> Result<RwLockReadGuard<'_, Holds>, Forked> {
        Ok(self.inner.holds.get()?.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn check(&self, layer: u32, block: u32, offset: u64, len: usize) -> Result<(), PoolError> {
        self.inner.layout.extents(layer, block).map(drop)?;
        let bytes = self.inner.layout.bytes_in(layer, block);
        match offset.checked_add(len as u64) {
            Some(end) if end <= bytes => Ok(()),
            end => Err(PoolError::Range { offset, end: end.unwrap_or(u64::MAX), bytes }),
        }
    }

    /// Calls `copy` with region, offset and length of each part of a range of a block, which the caller has checked.
    fn pieces(
        &self,
        layer: u32,
        block: u32,
        mut offset: u64,
        len: usize,
        mut copy: impl FnMut(&Region, usize, usize) -> Result<(), RangeError>,
    ) -> Result<(), PoolError> {
        let mut left = len as u64;
        for Extent { offset: start, len } in self.inner.layout.extents(layer, block)? {
            let skipped = offset.min(len);
            let taken = left.min(len - skipped);
            if taken > 0 {
                let (region, at) = self.inner.place(start + skipped)?;
                copy(region, at, taken as usize)?;
            }
            offset -= skipped;
            left -= taken;
        }
        Ok(())
    }
}

impl Inner {
    /// The region that has the byte at an offset of the pool, and the offset there.
    fn place(&self, offset: u64) -> Result<(&Region, usize), RangeError> {
        let out = RangeError { start: offset, end: offset, len: self.layout.bytes() };
        let ((region, start), at) = self.memory.at(offset).ok_or(out)?;
        // The cast is exact: a pool has at most `isize::MAX` bytes.
        Ok((region, start + at as usize))
    }
}

impl PartialEq for PoolId {
    fn eq(&self, other: &Self) -> bool {
        // A `Weak` keeps the allocation of a pool that is gone, so no later pool gets the same address while this
        // identity exists.
        Weak::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolId").field(&self.0.as_ptr()).finish()
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("layout", &self.inner.layout)
            .field("purpose", &self.inner.purpose)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
