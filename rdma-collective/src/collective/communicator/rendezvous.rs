//! Rendezvous: how the ranks of a new communicator exchange values before they are connected.
//!
//! The values go through a store, or, for a split, through the communicator that all of them are in already.

use std::net::SocketAddr;

use rdma_core::Deadline;

use crate::bootstrap::{JobToken, StoreClient};
use crate::collective::CommunicatorError;

/// An exchange of values among the ranks of a new communicator.
///
/// All ranks must call the same gatherings in the same order: a rank that skips one leaves the others waiting.
pub(crate) trait Rendezvous {
    /// This rank's number in the new communicator.
    fn rank(&self) -> u32;

    /// The number of ranks of the new communicator.
    fn world(&self) -> u32;

    /// The token of the job. Blobs of another job are refused.
    fn token(&self) -> JobToken;

    /// The address by which other machines are likely to reach this one.
    fn local_address(&self) -> Option<SocketAddr>;

    /// The communicator that is split; `None` for a store.
    fn parent(&self) -> Option<&Parent>;

    /// The rank whose end explains why a gathering failed, as far as it is known.
    fn culprit(&self, error: &CommunicatorError) -> Option<u32>;

    /// Sets `key`. Other ranks may read it after the next gathering.
    ///
    /// # Errors
    ///
    /// The value could not be sent before the deadline.
    fn set(&mut self, key: &str, value: &[u8], deadline: Deadline) -> Result<(), CommunicatorError>;

    /// Reads a key that another rank has set before the last gathering.
    ///
    /// # Errors
    ///
    /// The value could not be read before the deadline.
    fn get(&mut self, key: &str, deadline: Deadline) -> Result<Vec<u8>, CommunicatorError>;

    /// Gathers the values that all ranks give under `name`, by rank.
    ///
    /// # Errors
    ///
    /// Not all ranks gave a value before the deadline.
    fn all_gather(
        &mut self,
        name: &str,
        value: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, CommunicatorError>;
}

/// The communicator that another one was split from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    /// The parent's name.
    pub(crate) name: String,
    /// The ranks in the parent, by rank of the split communicator.
    pub(crate) ranks: Vec<u32>,
    /// The color that all ranks of the split communicator gave.
    pub(crate) color: u32,
    /// The key that this rank gave.
    pub(crate) key: i32,
}

impl Parent {
    /// The number of `rank` in the parent.
    pub(super) fn rank_of(&self, rank: u32) -> Option<u32> {
        self.ranks.get(rank as usize).copied()
    }
}

/// The rendezvous of a communicator, as far as later splits and links need it.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) token: JobToken,
    /// The address by which other machines are likely to reach this one.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) parent: Option<Parent>,
}

impl Rendezvous for StoreClient {
    fn rank(&self) -> u32 {
        Self::rank(self)
    }

    fn world(&self) -> u32 {
        Self::world(self)
    }

    fn token(&self) -> JobToken {
        Self::token(self)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        // Without an address only the liveness sockets and a log line are missing.
        Self::local_address(self).ok()
    }

    fn parent(&self) -> Option<&Parent> {
        None
    }

    fn culprit(&self, error: &CommunicatorError) -> Option<u32> {
        match error {
            CommunicatorError::Bootstrap(error) => Self::culprit(self, error),
            _ => None,
        }
    }

    fn set(&mut self, key: &str, value: &[u8], deadline: Deadline) -> Result<(), CommunicatorError> {
        Ok(Self::set(self, key, value, deadline)?)
    }

    fn get(&mut self, key: &str, deadline: Deadline) -> Result<Vec<u8>, CommunicatorError> {
        Ok(Self::get(self, key, deadline)?)
    }

    fn all_gather(
        &mut self,
        name: &str,
        value: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, CommunicatorError> {
        Ok(Self::all_gather(self, name, value, deadline)?)
    }
}
