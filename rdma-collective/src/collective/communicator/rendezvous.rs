//! Where the ranks of a communicator that is being made tell each other what each needs of the others: a store, or a communicator
//! that all of them are in.

use std::net::SocketAddr;

use rdma_core::Deadline;

use crate::bootstrap::{JobToken, StoreClient};
use crate::collective::CommunicatorError;

/// See the module. All ranks come to the same gatherings in the same order.
pub(crate) trait Rendezvous {
    /// This rank, in the communicator that is made.
    fn rank(&self) -> u32;

    fn world(&self) -> u32;

    fn token(&self) -> JobToken;

    /// By which address this machine is likely reached.
    fn local_address(&self) -> Option<SocketAddr>;

    /// The communicator that the ranks are in already.
    fn parent(&self) -> Option<&Parent>;

    /// Sets `key` for whoever asks after the next gathering.
    ///
    /// # Errors
    ///
    /// It could not be told.
    fn set(&mut self, key: &str, value: &[u8], deadline: Deadline) -> Result<(), CommunicatorError>;

    /// What another rank has set before the last gathering.
    ///
    /// # Errors
    ///
    /// It could not be heard.
    fn get(&mut self, key: &str, deadline: Deadline) -> Result<Vec<u8>, CommunicatorError>;

    /// What all ranks come with to `name`, by rank.
    ///
    /// # Errors
    ///
    /// Not all of them came.
    fn all_gather(
        &mut self,
        name: &str,
        value: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, CommunicatorError>;
}

/// What a communicator was split from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    /// Its name.
    pub(crate) name: String,
    /// The ranks there, by the ranks here.
    pub(crate) ranks: Vec<u32>,
    pub(crate) color: u32,
    /// This rank's.
    pub(crate) key: i32,
}

impl Parent {
    /// Which rank there `rank` is.
    pub(super) fn rank_of(&self, rank: u32) -> Option<u32> {
        self.ranks.get(rank as usize).copied()
    }
}

/// By what the ranks of a communicator came together.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) token: JobToken,
    /// By which address this machine is likely reached.
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
        Self::local_address(self).ok()
    }

    fn parent(&self) -> Option<&Parent> {
        None
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
