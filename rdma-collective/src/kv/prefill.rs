//! Prefill as callers see it: it has the blocks of requests, and pushes them to where decode has granted room.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, PeerAccess};

use super::link::{LinkOptions, Opening};
use super::pool::{Pool, PoolUse};
use super::push::Pushes;
use crate::comm::bootstrap::JobToken;
use crate::comm::link::handshake::Meet;
use crate::comm::{Engine, Service};
use crate::error::{KvError, LaneFailure, SetupError};

/// The longest message of any device. What a port reports is no bound to go by.
const MESSAGE_BYTES_MAX: u32 = 1 << 31;

/// The end of a KV link that has blocks and writes them.
///
/// Pushes of one link are carried out in the order in which their grants meet them, and go on whoever drives the engine.
/// A push that misses its deadline after it began ends the link, since its writes may still be under way: all others
/// on it end with an error too, and the next ones need a new link.
pub struct Prefill {
    shared: Arc<Shared>,
    access: PeerAccess,
    linger: Duration,
}

/// What the end and the pushes on it have in common.
pub(super) struct Shared {
    pub(super) engine: Engine,
    state: Arc<Mutex<Pushes>>,
    peer: SocketAddr,
}

/// A push under way. Dropping it lets it go on unseen.
#[must_use = "a push is done when it was waited for"]
pub struct Push {
    shared: Arc<Shared>,
    id: u64,
    deadline: Deadline,
    told: bool,
}

/// A push that decode has confirmed: its blocks may be used for something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pushed {
    /// Bytes moved.
    pub bytes: u64,
    /// Writes that moved them.
    pub writes: u32,
    /// Blocks, over all layers, that decode found corrupt.
    pub corrupt: u32,
    /// From the grant to the confirmation.
    pub elapsed: Duration,
}

impl Prefill {
    /// Meets a decode of the same job and connects its pool to `pool`.
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
        let opening = Opening { engine, pool, purpose: PoolUse::Source, token, options, deadline };
        let link = opening.open(meet)?;
        let (peer, access) = (link.peer, link.access);
        let mut core = engine.lock();
        let source = core.attach(pool.region());
        let write_bytes_max = options.write_bytes_max.min(MESSAGE_BYTES_MAX);
        let pushes = Pushes::new(link, pool.clone(), source, write_bytes_max);
        let state = Arc::new(Mutex::new(pushes));
        let service: Arc<Mutex<dyn Service>> = Arc::clone(&state) as _;
        core.register(Arc::downgrade(&service));
        drop(core);
        let shared = Arc::new(Shared { engine: engine.clone(), state, peer });
        Ok(Self { shared, access, linger: options.linger })
    }

    /// Pushes `blocks` of all layers to the blocks that decode grants to `request`, in that order.
    ///
    /// It returns at once; the blocks are leased until decode has confirmed them. The grant may have come before, or come
    /// until `deadline`.
    ///
    /// # Errors
    ///
    /// [`KvError::Plan`] for no blocks, one that is not there or one that is given twice, [`KvError::Held`],
    /// [`KvError::RequestRepeated`], [`KvError::TooManyTransfers`], or [`KvError::LinkEnded`]; nothing is lost then.
    pub fn push(&self, request: u64, blocks: &[u32], deadline: Deadline) -> Result<Push, KvError> {
        let now = Instant::now();
        let shared = &self.shared;
        let id = shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            let id = state.add(core, request, blocks, deadline, now)?;
            state.advance(core, now);
            Ok::<_, KvError>(id)
        })?;
        Ok(Push { shared: Arc::clone(shared), id, deadline, told: false })
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Shared {
        &self.shared
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
    pub(super) fn lock(&self) -> MutexGuard<'_, Pushes> {
        // A panic elsewhere leaves the state in order: advancing does not panic, the rest changes in one statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Push {
    /// Waits until decode has confirmed all blocks.
    ///
    /// # Errors
    ///
    /// [`KvError`]: the deadline, a peer that is lost, a grant that does not fit. The blocks are free again, and nothing
    /// reads them any more.
    pub fn wait(mut self) -> Result<Pushed, KvError> {
        let shared = &self.shared;
        let outcome = shared.engine.wait_for(self.deadline, |_, _| match shared.lock().outcome(self.id) {
            Some(outcome) => Poll::Ready(outcome),
            None => Poll::Pending,
        });
        let told = outcome.is_some();
        // The service has ended it at the deadline, unless the engine could not.
        let late = || Err(KvError::LinkEnded { peer: shared.peer, cause: LaneFailure::Fenced });
        let outcome = outcome.unwrap_or_else(late);
        self.told = told;
        outcome
    }

    /// Bytes that are known to have arrived, and all of them, as of the engine's last drive.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        self.shared.lock().progress(self.id).unwrap_or((0, 0))
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if !self.told {
            self.shared.lock().abandon(self.id);
        }
    }
}

impl Drop for Prefill {
    fn drop(&mut self) {
        let shared = &self.shared;
        let lane = shared.lock().link.lane;
        shared.engine.say_goodbye(&[lane], Deadline::after(self.linger));
        shared.engine.lock_with(|core| {
            let mut state = shared.lock();
            state.end(core, LaneFailure::Fenced, Instant::now());
            core.detach(state.source());
        });
    }
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Push").field("id", &self.id).finish_non_exhaustive()
    }
}

impl fmt::Debug for Prefill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefill")
            .field("peer", &self.peer())
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}
