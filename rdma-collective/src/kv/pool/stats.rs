//! Counts of a pool's blocks by their hold.

use super::Pool;
use crate::kv::lease::HoldKind;

/// Counts of a pool's blocks by their hold, at one moment.
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
/// assert_eq!((pool.stats().free, pool.stats().quarantined), (8, 0));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct PoolStats {
    /// Blocks that nobody holds.
    pub free: u32,
    /// Blocks that transfers read. Some of them may be shared, too.
    pub leased: u32,
    /// Blocks that transfers write.
    pub granted: u32,
    /// Blocks that readers of this process [share](Pool::share), and no transfer leases.
    pub shared: u32,
    /// Blocks that are lost until the pool is closed, because a device did not let go of them. More than 0 is worth
    /// an alarm.
    pub quarantined: u32,
}

impl Pool {
    /// Counts the blocks by their hold, those of groups that share memory once. Visits every block, a few nanoseconds
    /// each.
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let mut stats = PoolStats::default();
        let Ok(holds) = self.looked_up() else { return stats };
        let layout = self.layout();
        for block in (0..layout.blocks()).filter(|block| layout.base_block(*block) == *block) {
            *match holds.of(block) {
                None => &mut stats.free,
                Some(HoldKind::Leased) => &mut stats.leased,
                Some(HoldKind::Granted) => &mut stats.granted,
                Some(HoldKind::Shared) => &mut stats.shared,
                Some(HoldKind::Quarantined) => &mut stats.quarantined,
            } += 1;
        }
        stats
    }
}
