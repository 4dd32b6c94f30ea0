//! The memory of a KV cache: registered, laid out in blocks, and which of them are in use by transfers.
//!
//! Where blocks lie is `layout`'s; who moves them is `push` and `receive`.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rdma_core::{Access, Region};

use super::layout::{Extent, Layout};
use super::lease::{HoldKind, Holds};
use crate::comm::Engine;
use crate::error::PoolError;

/// What peers may do with a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolUse {
    /// Nothing: its blocks are pushed from here.
    Source,
    /// Write it: blocks are pushed into it, those that are granted by those they are granted to.
    Destination,
}

/// The blocks of one KV cache, in memory that the library owns. Cloning it clones the handle.
///
/// A block that takes part in a transfer is *held*: it can be read, and is not [written](Self::write) or held in another
/// way until the transfer has ended, so that nobody is handed the wrong tokens. The rights of peers follow the
/// registration; which blocks they use is an agreement among processes of this library.
///
/// ```
/// use rdma_collective::comm::{Engine, EngineOptions};
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

struct Inner {
    region: Region,
    layout: Layout,
    purpose: PoolUse,
    /// Read while a block is written by the caller, so that nobody takes hold of it meanwhile.
    holds: RwLock<Holds>,
}

impl Pool {
    /// Registers zeroed memory for `layout` on the engine's device.
    ///
    /// # Errors
    ///
    /// [`PoolError::Register`]: the memory is not to be had, or a limit on pinned memory refuses, which it names.
    pub fn allocate(engine: &Engine, layout: Layout, purpose: PoolUse) -> Result<Self, PoolError> {
        let access = match purpose {
            PoolUse::Source => Access::LOCAL_WRITE,
            PoolUse::Destination => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        };
        // A layout has no more bytes than can be addressed.
        let region = engine.lock().pd().alloc_region(layout.bytes() as usize, access)?;
        let holds = RwLock::new(Holds::new(layout.shape().blocks));
        Ok(Self { inner: Arc::new(Inner { region, layout, purpose, holds }) })
    }

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
        let mut done = 0;
        self.pieces(layer, block, offset, bytes.len(), |at, len| {
            let piece = bytes.get(done..done + len).unwrap_or_default();
            done += len;
            self.inner.region.copy_in(at, piece)
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
            self.inner.region.copy_out(at, piece)
        })
    }

    /// How a block is held by a transfer; `None` when it is free.
    #[must_use]
    pub fn held(&self, block: u32) -> Option<HoldKind> {
        self.looked_up().of(block)
    }

    pub(crate) fn region(&self) -> &Region {
        &self.inner.region
    }

    pub(super) fn holds(&self) -> RwLockWriteGuard<'_, Holds> {
        // A panic elsewhere leaves the counts in order: each changes in one statement.
        self.inner.holds.write().unwrap_or_else(PoisonError::into_inner)
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
