//! Shares of blocks: readers of this process, for whom the blocks keep their bytes.

use super::Pool;
use crate::engine::EngineError;
use crate::kv::KvError;
use crate::kv::lease::Hold;

/// Blocks that readers of this process share: nobody is granted them, and [`Pool::write`] refuses them, until the last
/// share of a block is dropped. A clone is another handle to the same share.
///
/// Returned by [`Pool::share`].
#[derive(Debug, Clone)]
#[must_use = "blocks are shared as long as a handle lives"]
pub struct BlockShare {
    hold: Hold,
}

impl BlockShare {
    /// The blocks, in the order in which they were given.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        self.hold.blocks()
    }
}

impl Pool {
    /// Shares blocks with other readers, so that they keep their bytes. Any number of shares may have a block, on
    /// either side, and leases of transfers go together with them.
    ///
    /// A server has one for each running request, so that a block of its prefix cache is neither granted nor written
    /// while a request reads it. Memory of the caller that somebody writes without [`Pool::write`] is not guarded.
    ///
    /// # Errors
    ///
    /// [`KvError::Held`] for a block that is granted or quarantined; [`KvError::Plan`] for an empty list, and for a
    /// block out of range or given twice; [`KvError::Engine`] in a forked child. No block is shared then.
    ///
    /// ```
    /// use rdma_collective::engine::{Engine, EngineOptions};
    /// use rdma_collective::kv::layout::{Layout, Model, Order};
    /// use rdma_collective::kv::{HoldKind, Pool, PoolUse};
    /// use rdma_core::{Device, SoftOptions};
    ///
    /// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 8, Order::LayerBlockPart))?;
    /// let pool = Pool::allocate(&engine, &layout, PoolUse::Destination)?;
    /// // Two requests begin with the same two blocks.
    /// let (first, second) = (pool.share(&[0, 1])?, pool.share(&[0, 1])?);
    /// drop(first);
    /// assert_eq!(pool.held(1), Some(HoldKind::Shared));
    /// assert!(pool.write(0, 1, 0, b"other tokens").is_err());
    /// drop(second);
    /// assert_eq!(pool.held(1), None);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn share(&self, blocks: &[u32]) -> Result<BlockShare, KvError> {
        self.check_process().map_err(EngineError::from)?;
        Ok(BlockShare { hold: Hold::share(self, blocks)? })
    }
}
