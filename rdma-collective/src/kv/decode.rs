//! Decode as callers see it: it has room for the blocks of requests, grants it, and learns what has arrived.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess};

use super::checksum;
use super::link::{LinkOptions, Opening};
use super::pool::{Pool, PoolUse};
use super::receive::{Next, Outcome, Receives, TELL_WITHIN};
use super::verdict::{BlockVerdict, Verdicts};
use crate::comm::bootstrap::JobToken;
use crate::comm::link::handshake::Meet;
use crate::comm::{Engine, Service};
use crate::error::{KvError, LaneFailure, SetupError, TransferError};

/// The end of a KV link that has room for blocks.
///
/// A grant that misses its deadline ends the link, since its writes may still be under way: all others on it end with an
/// error too, and the next ones need a new link. When a grant has ended, well or not, nothing of it lands any more.
pub struct Decode {
    shared: Arc<Shared>,
    access: PeerAccess,
    linger: Duration,
}

/// What the end and the grants on it have in common.
pub(super) struct Shared {
    pub(super) engine: Engine,
    state: Arc<Mutex<Receives>>,
    pool: Pool,
    peer: SocketAddr,
}

/// Blocks granted to a request. Dropping it lets them fill unseen.
#[must_use = "blocks are there when their grant was waited for"]
pub struct Grant {
    shared: Arc<Shared>,
    id: u64,
    blocks: Box<[u32]>,
    deadline: Deadline,
    told: bool,
}

/// How far a transfer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes that have arrived.
    pub bytes_arrived: u64,
    /// Bytes of all blocks.
    pub bytes: u64,
    /// Writes that have arrived.
    pub writes_arrived: u32,
    /// Writes that were announced; 0 before.
    pub writes: u32,
}

/// A transfer that has ended well: every block has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// What each block holds; [`BlockVerdict::Corrupt`] can be among it when checksums were asked for.
    pub verdicts: Verdicts,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Writes that carried them.
    pub writes: u32,
    /// From the grant to the arrival of the last block.
    pub elapsed: Duration,
    /// From the announcement of the writes to the arrival of the last block.
    pub moving: Duration,
}

impl Decode {
    /// Meets a prefill of the same job and connects its pool to `pool`.
    ///
    /// # Errors
    ///
    /// [`SetupError::Handshake`] when nobody with the token comes before the deadline, [`SetupError::Layout`] with the
    /// field in which the pools differ, others for what the device refuses.
    pub fn new(
        engine: &Engine,
        pool: &Pool,
        meet: &Meet<'_>,
        token: &JobToken,
        options: &LinkOptions,
        deadline: Deadline,
    ) -> Result<Self, SetupError> {
        let opening = Opening { engine, pool, purpose: PoolUse::Destination, token, options, deadline };
        let link = opening.open(meet)?;
        let (peer, access) = (link.peer, link.access);
        let state = Arc::new(Mutex::new(Receives::new(link, pool.clone(), options.checksums)));
        let service: Arc<Mutex<dyn Service>> = Arc::clone(&state) as _;
        engine.lock().register(Arc::downgrade(&service));
        let shared = Shared { engine: engine.clone(), state, pool: pool.clone(), peer };
        Ok(Self { shared: Arc::new(shared), access, linger: options.linger })
    }

    /// Grants `blocks` of all layers to `request`, to be filled in that order until `deadline`.
    ///
    /// It returns at once. The blocks can be used when the grant was waited for.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for no blocks, one that is not there or one that is given twice, [`KvError::Held`],
    /// [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`], or [`KvError::LinkEnded`]; nothing is lost then.
    pub fn grant(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Grant, KvError> {
        let now = Instant::now();
        let shared = &self.shared;
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.add(core, request, blocks, deadline, now)?;
            state.advance(core, now);
            Ok::<_, KvError>(id)
        })?;
        Ok(Grant { shared: Arc::clone(shared), id, blocks: blocks.into(), deadline, told: false })
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The pool that it grants blocks of.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    /// Where the peer was met.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.shared.peer
    }

    /// How the peer's memory is reached.
    #[must_use]
    pub fn peer_access(&self) -> PeerAccess {
        self.access
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Receives> {
        // A panic elsewhere leaves the state in order: advancing does not panic, the rest changes in one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Layer and place of each block whose sum does not hold.
    fn check(&self, blocks: &[u32], sums: &[u32]) -> Vec<(u32, usize)> {
        let mut scratch = vec![0; checksum::SCRATCH_BYTES];
        let layers = 0..self.pool.layout().shape().layers;
        let places = layers
            .flat_map(|layer| blocks.iter().enumerate().map(move |(place, block)| (layer, place, *block)));
        let broken = places.zip(sums).filter(|((layer, _, block), sum)| {
            let found = checksum::of_block(&self.pool, *layer, *block, &mut scratch);
            !found.is_ok_and(|found| found == **sum)
        });
        broken.map(|((layer, place, _), _)| (layer, place)).collect()
    }
}

impl Grant {
    /// Waits until all blocks have arrived, and checks them when the link has checksums. The peer is told then, which may
    /// take a second beyond the deadline when it does not listen.
    ///
    /// # Errors
    ///
    /// [`TransferError`] with what is known of each block: at the deadline, when the peer is lost, or when it has another
    /// number of blocks. The blocks are free again, and nothing writes them any more.
    pub fn wait(mut self) -> Result<Received, TransferError> {
        let shared = Arc::clone(&self.shared);
        loop {
            let deadline = Deadline::after(self.deadline.remaining() + TELL_WITHIN);
            let next = shared.engine.wait_for(deadline, |_, _| match shared.lock().next(self.id) {
                Some(next) => Poll::Ready(next),
                None => Poll::Pending,
            });
            match next {
                Some(Next::Check { blocks, sums }) => {
                    let corrupt = shared.check(&blocks, &sums);
                    shared.lock().checked(self.id, &corrupt, Instant::now());
                }
                Some(Next::Take(outcome)) => {
                    self.told = true;
                    return outcome.map(|outcome| {
                        let Outcome { verdicts, bytes, writes, waited, moved } = outcome;
                        Received { verdicts, bytes, writes, elapsed: waited, moving: moved }
                    });
                }
                // The service has ended it at the deadline, unless the engine could not.
                None => {
                    let cause = KvError::LinkEnded { peer: shared.peer, cause: LaneFailure::Fenced };
                    let layers = shared.pool.layout().shape().layers;
                    let verdicts = Verdicts::new(layers, &self.blocks, BlockVerdict::Missing);
                    return Err(TransferError { cause: Arc::new(cause), verdicts });
                }
            }
        }
    }

    /// How far it has come, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.shared.lock().progress(self.id).unwrap_or_default()
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.told {
            self.shared.lock().abandon(self.id);
        }
    }
}

impl Drop for Decode {
    fn drop(&mut self) {
        let shared = &self.shared;
        let lane = shared.lock().link.lane;
        shared.engine.say_goodbye(&[lane], Deadline::after(self.linger));
        shared.engine.lock_with(|core| shared.lock().end(core, LaneFailure::Fenced));
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("id", &self.id)
            .field("blocks", &self.blocks.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decode")
            .field("peer", &self.peer())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
