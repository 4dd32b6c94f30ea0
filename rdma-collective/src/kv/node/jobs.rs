//! The work of a node that may block, in queues of their own: so links that are granted do not wait for links that are
//! made, which wait for grants of the peers, and neither waits for nodes that nobody reaches.

use std::collections::VecDeque;
use std::sync::Arc;

use rdma_core::Deadline;

use super::blob::NodeBlob;
use super::link_slot::{End, Way};
use super::message::Wish;
use crate::link::handshake::Met;

/// Work for a thread that may block.
pub(super) enum Job {
    /// Introduces this node to a peer, once; so many tries were in vain.
    Introduce { peer: Arc<NodeBlob>, tries: usize },
    /// Makes a link to a peer; so many rails were tried in vain.
    Make { peer: Arc<NodeBlob>, link: LinkName, deadline: Deadline, tries: u32 },
    /// Makes this node's end of the link that a peer has wished for.
    Grant(Box<(Met, Wish)>),
    /// Ends a link that the table has let go of.
    Retire(End),
    /// Ends a link that the peer has ended. This side may not notice for long, because it may send nothing.
    EndWithPeer(End),
    /// Drops an end that nobody has any more.
    Drop(Box<dyn Send>),
}

/// A link among those of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkName {
    pub(super) way: Way,
    pub(super) number: u32,
}

/// The queues.
pub(super) const QUEUES: usize = 4;

/// Jobs that wait for a thread.
#[derive(Default)]
pub(super) struct Jobs([VecDeque<Job>; QUEUES]);

impl Job {
    /// The queue of the job.
    fn queue(&self) -> usize {
        match self {
            Self::Introduce { .. } => 0,
            Self::Make { .. } => 1,
            Self::Grant(_) => 2,
            Self::Retire(_) | Self::EndWithPeer(_) | Self::Drop(_) => 3,
        }
    }
}

impl Jobs {
    pub(super) fn push(&mut self, job: Job) {
        self.0[job.queue()].push_back(job);
    }

    pub(super) fn pop(&mut self, queue: usize) -> Option<Job> {
        self.0.get_mut(queue)?.pop_front()
    }

    pub(super) fn len(&self, queue: usize) -> usize {
        self.0.get(queue).map_or(0, VecDeque::len)
    }

    /// Has the ends of links ended.
    pub(super) fn retire(&mut self, ends: impl IntoIterator<Item = End>) {
        ends.into_iter().for_each(|end| self.push(Job::Retire(end)));
    }

    /// Takes the jobs that somebody waits for, because no thread will do them. Ends of links stay.
    pub(super) fn take_awaited(&mut self) -> Vec<Job> {
        self.0.iter_mut().take(QUEUES - 1).flat_map(|queue| queue.drain(..)).collect()
    }
}
