//! The free blocks of a pool, as a server's block manager has them.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, ensure};
use rdma_collective::kv::Pool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The blocks of a pool. A clone is another handle to them.
#[derive(Clone)]
pub struct Blocks {
    pool: Pool,
    free: Arc<Mutex<VecDeque<u32>>>,
    room: Arc<Semaphore>,
}

/// Blocks of one request, which are free again when this is dropped.
pub struct Taken {
    list: Vec<u32>,
    of: Blocks,
    _room: OwnedSemaphorePermit,
}

impl Blocks {
    pub fn of(pool: &Pool) -> Self {
        let blocks = pool.layout().blocks();
        let (free, room) =
            (Arc::new(Mutex::new((0..blocks).collect())), Arc::new(Semaphore::new(blocks as usize)));
        Self { pool: pool.clone(), free, room }
    }

    /// Takes blocks, and waits for some if there are too few.
    pub async fn take(&self, count: usize) -> Result<Taken> {
        ensure!(count <= self.pool.layout().blocks() as usize, "{count} blocks are more than the pool has");
        let room = Arc::clone(&self.room).acquire_many_owned(count as u32).await?;
        let mut taken = Taken { list: Vec::new(), of: self.clone(), _room: room };
        while taken.list.len() < count {
            if !self.take_one(&mut taken.list) {
                // Transfers that were given up hold the rest, for as long as their peers take to stop.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Ok(taken)
    }

    /// Takes the first free block that no transfer holds any more.
    fn take_one(&self, list: &mut Vec<u32>) -> bool {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let at = free.iter().position(|block| self.pool.held(*block).is_none());
        let taken = at.and_then(|at| free.remove(at));
        list.extend(taken);
        taken.is_some()
    }
}

impl Deref for Taken {
    type Target = Vec<u32>;

    fn deref(&self) -> &Vec<u32> {
        &self.list
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.free.lock().unwrap_or_else(PoisonError::into_inner).extend(self.list.drain(..));
    }
}
