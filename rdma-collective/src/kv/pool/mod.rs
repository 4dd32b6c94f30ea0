//! The memory of a KV cache: registered, laid out in blocks, and which of them are in use by transfers.
//!
//! Where blocks lie is `layout`'s; who moves them is `push` and `receive`; how the memory comes and goes is `memory`'s.

mod memory;
mod stats;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use rdma_core::{Region, RemoteMemory};

use self::memory::Attachments;
use super::layout::{Extent, Layout};
use super::lease::{HoldKind, Holds};
use crate::kv::PoolError;

pub(super) use memory::Source;
pub use stats::PoolStats;

/// What peers may do with a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolUse {
    /// Nothing: its blocks are pushed from here.
    Source,
    /// Read it: its blocks are pushed from here, and pulled by those that they are offered to.
    SourceToPull,
    /// Write it: blocks are pushed into it, those that are granted by those they are granted to.
    Destination,
}

/// The blocks of one KV cache, in memory of the library's or of the caller's. Cloning it clones the handle.
///
/// Any number of links use one pool, and it is attached to the engine's worker once for all of them.
///
/// A block that takes part in a transfer is *held*: it can be read, and is not [written](Self::write) or held in another
/// way until the transfer has ended, so that nobody is handed the wrong tokens. The rights of peers follow the
/// registration; which blocks they use is an agreement among processes of this library.
///
/// ```
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_collective::kv::layout::{Layout, Model, Order};
/// use rdma_collective::kv::{Pool, PoolUse};
/// use rdma_core::{Device, SoftOptions};
///
/// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
/// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
/// let pool = Pool::allocate(&engine, layout, PoolUse::Source)?;
/// pool.write(60, 7, 0, b"the first bytes of the last block")?;
/// let mut bytes = [0; 9];
/// pool.read(60, 7, 4, &mut bytes)?;
/// assert_eq!(&bytes, b"first byt");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

/// Tells pools apart, those that are gone too.
#[derive(Clone)]
pub(super) struct PoolId(Weak<Inner>);

struct Inner {
    region: Region,
    /// Where it begins in the region, which is long enough for the layout from there on.
    offset: usize,
    attachments: Mutex<Attachments>,
    layout: Layout,
    purpose: PoolUse,
    /// Read while a block is written by the caller, so that nobody takes hold of it meanwhile.
    holds: RwLock<Holds>,
}

impl Pool {
    /// Where its blocks lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.inner.layout
    }

    /// What peers may do with it.
    #[must_use]
    pub fn purpose(&self) -> PoolUse {
        self.inner.purpose
    }

    /// Copies `bytes` into `block` of `layer`, from byte `offset` of it on.
    ///
    /// # Errors
    ///
    /// [`PoolError::Held`] while a transfer holds the block; [`PoolError::Layout`] and [`PoolError::Range`] for a block or
    /// bytes that are not there. Nothing is written then.
    pub fn write(&self, layer: u32, block: u32, offset: u64, bytes: &[u8]) -> Result<(), PoolError> {
        let holds = self.looked_up();
        self.check(layer, block, offset, bytes.len())?;
        if let Some(by) = holds.of(block) {
            return Err(PoolError::Held { block, by });
        }
        holds.changes(block);
        let mut done = 0;
        self.pieces(layer, block, offset, bytes.len(), |at, len| {
            let piece = bytes.get(done..done + len).unwrap_or_default();
            done += len;
            self.inner.region.copy_in(self.inner.offset + at, piece)
        })
    }

    /// Copies bytes of `block` of `layer`, from byte `offset` of it on, into `bytes`.
    ///
    /// Those of a block that is granted may change while they are read; wait for the transfer first.
    ///
    /// # Errors
    ///
    /// [`PoolError::Layout`] and [`PoolError::Range`] for a block or bytes that are not there.
    pub fn read(&self, layer: u32, block: u32, offset: u64, bytes: &mut [u8]) -> Result<(), PoolError> {
        self.check(layer, block, offset, bytes.len())?;
        let mut done = 0;
        self.pieces(layer, block, offset, bytes.len(), |at, len| {
            let piece = bytes.get_mut(done..done + len).unwrap_or_default();
            done += len;
            self.inner.region.copy_out(self.inner.offset + at, piece)
        })
    }

    /// How a block is held by a transfer; `None` when it is free.
    #[must_use]
    pub fn held(&self, block: u32) -> Option<HoldKind> {
        self.looked_up().of(block)
    }

    /// What a peer is told so that it can write blocks, and nothing else of the region.
    pub(super) fn remote(&self) -> RemoteMemory {
        let (region, start) = (self.inner.region.remote(), self.inner.offset as u64);
        RemoteMemory { addr: region.addr + start, len: self.inner.layout.bytes(), ..region }
    }

    pub(super) fn holds(&self) -> RwLockWriteGuard<'_, Holds> {
        // A panic elsewhere leaves the counts in order: each changes in one statement.
        self.inner.holds.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self) -> PoolId {
        PoolId(Arc::downgrade(&self.inner))
    }

    fn looked_up(&self) -> RwLockReadGuard<'_, Holds> {
        self.inner.holds.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, layer: u32, block: u32, offset: u64, len: usize) -> Result<(), PoolError> {
        self.inner.layout.extents(layer, block).map(drop)?;
        let bytes = self.inner.layout.layer_block_bytes();
        match offset.checked_add(len as u64) {
            Some(end) if end <= bytes => Ok(()),
            end => Err(PoolError::Range { offset, end: end.unwrap_or(u64::MAX), bytes }),
        }
    }

    /// Calls `copy` with place and length of each part of a range of a block, which was checked.
    fn pieces(
        &self,
        layer: u32,
        block: u32,
        mut offset: u64,
        len: usize,
        mut copy: impl FnMut(usize, usize) -> Result<(), rdma_core::error::RangeError>,
    ) -> Result<(), PoolError> {
        let mut left = len as u64;
        for Extent { offset: start, len } in self.inner.layout.extents(layer, block)? {
            let skipped = offset.min(len);
            let taken = left.min(len - skipped);
            if taken > 0 {
                copy((start + skipped) as usize, taken as usize)?;
            }
            offset -= skipped;
            left -= taken;
        }
        Ok(())
    }
}

impl PartialEq for PoolId {
    fn eq(&self, other: &Self) -> bool {
        // The memory of one that is gone stays its own as long as something refers to it.
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
