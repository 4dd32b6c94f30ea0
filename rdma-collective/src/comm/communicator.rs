//! Ranks that run the same operations: who they are, and the two links of a ring that this one has.
//!
//! How the links come to be is `connect`'s; the operations are in `collective`, on top of this.

mod connect;
mod info;
mod options;

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_core::{Deadline, PeerAccess};

use super::link::mailbox::{Inbox, Outbox};
use super::operation::{Abort, Header};
use super::{Engine, LaneId};
use crate::error::{CollectiveError, LaneName};

pub use info::RankInfo;
pub use options::CommunicatorOptions;

/// Bytes that are read out of a slot at a time: few enough to be in the processor's cache still when they are reduced.
const SCRATCH_BYTES: usize = 16 * 1024;

/// A group of ranks, seen from one of them.
///
/// All ranks make it at the same time, by the store where they meet, and call the same operations in the same order.
/// Only neighbours in the ring of ranks are connected. An operation that fails ends the communicator on all ranks:
/// each later one returns [`CollectiveError::Ended`].
///
/// Dropping it waits for what this rank has sent to arrive, at most
/// [`linger`](CommunicatorOptions::linger); [`close`](Self::close) does so with an error. A process that exits without
/// either may take its last messages with it.
#[derive(Debug)]
pub struct Communicator {
    engine: Engine,
    rank: u32,
    options: CommunicatorOptions,
    ranks: Vec<RankInfo>,
    /// Absent when the rank is alone.
    ring: Option<Ring>,
    sequence: u64,
    scratch: Box<[u8]>,
    ended: Option<Arc<CollectiveError>>,
    closed: bool,
}

/// The two neighbours of a ring.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Where this rank sends to, and gets slots back from.
    pub(crate) next: Neighbour<Outbox>,
    /// Where this rank receives from, and gives slots back to.
    pub(crate) previous: Neighbour<Inbox>,
    /// What the rank before has said of operations that this rank has not begun. It can be some ahead when there is
    /// nothing to reduce, fewer than there are ranks: each completes when the one before it has begun.
    pub(crate) ahead: VecDeque<Header>,
    /// A rank that is ahead has failed in an operation that this rank has not begun; the present one may complete.
    pub(crate) abort: Option<Abort>,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Neighbour<B> {
    pub(crate) rank: u32,
    pub(crate) lane: LaneId,
    pub(crate) name: LaneName,
    pub(crate) mailbox: B,
    access: PeerAccess,
}

/// What an operation works with.
pub(crate) struct Parts<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) ring: Option<&'a mut Ring>,
    pub(crate) scratch: &'a mut [u8],
    pub(crate) rank: u32,
    /// Of this operation.
    pub(crate) sequence: u64,
}

impl Communicator {
    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        // A store serves fewer than 2^32 ranks.
        self.ranks.len() as u32
    }

    /// What all ranks have said of themselves, by rank.
    #[must_use]
    pub fn ranks(&self) -> &[RankInfo] {
        &self.ranks
    }

    /// How it was made.
    #[must_use]
    pub fn options(&self) -> &CommunicatorOptions {
        &self.options
    }

    /// The engine that it is on.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The neighbours that this rank is connected to, and how their memory is reached; none when it is alone.
    pub fn neighbours(&self) -> impl Iterator<Item = (u32, PeerAccess)> + '_ {
        let ring = self.ring.iter();
        ring.flat_map(|ring| [(ring.previous.rank, ring.previous.access), (ring.next.rank, ring.next.access)])
    }

    /// Waits until all that this rank has sent has arrived, tells its neighbours that it leaves, and ends.
    ///
    /// The other ranks need not close at the same time: an operation of theirs that needs this rank no more completes.
    ///
    /// # Errors
    ///
    /// [`CollectiveError::Ended`] when it had failed before; [`CollectiveError::Engine`] when the device refuses to end
    /// a lane. At the deadline it ends all the same, with [`CollectiveError::Unsent`].
    pub fn close(mut self, deadline: Deadline) -> Result<(), CollectiveError> {
        let outcome = self.leave(deadline);
        match &self.ended {
            Some(first) => Err(CollectiveError::Ended { first: Arc::clone(first) }),
            None => outcome,
        }
    }

    /// Begins an operation: what it works with, or why there is none any more.
    pub(crate) fn begin(&mut self) -> Result<Parts<'_>, CollectiveError> {
        if let Some(first) = &self.ended {
            return Err(CollectiveError::Ended { first: Arc::clone(first) });
        }
        let sequence = self.sequence;
        self.sequence += 1;
        Ok(Parts {
            engine: &self.engine,
            ring: self.ring.as_mut(),
            scratch: &mut self.scratch,
            rank: self.rank,
            sequence,
        })
    }

    /// An operation failed: there are no more.
    pub(crate) fn end(&mut self, error: &CollectiveError) {
        self.ended.get_or_insert_with(|| Arc::new(error.clone()));
    }

    fn leave(&mut self, deadline: Deadline) -> Result<(), CollectiveError> {
        self.closed = true;
        let Some(ring) = self.ring.take() else { return Ok(()) };
        let lanes = [ring.next.lane, ring.previous.lane];
        let drained = self.engine.say_goodbye(&lanes, deadline);
        let mut core = self.engine.lock();
        // One that cannot be ended does not keep the other from it.
        let fenced = lanes.map(|lane| core.fence_lane(lane, deadline));
        fenced.into_iter().collect::<Result<(), _>>()?;
        if drained { Ok(()) } else { Err(CollectiveError::Unsent) }
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        if !self.closed
            && let Err(error) = self.leave(Deadline::after(self.options.linger))
        {
            tracing::warn!(rank = self.rank, %error, "a communicator was dropped before all it sent had arrived");
        }
    }
}
