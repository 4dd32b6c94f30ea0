//! A peer of a node: how far the two have met, and the slots of their links.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::kv::gauge::Gauge;
use crate::kv::node::blob::NodeBlob;
use crate::kv::node::jobs::{Job, LinkName};
use crate::kv::node::link_slot::{End, LinkSlot, Way};
use crate::metrics::{self, Present};

/// A peer of the node.
pub(in crate::kv::node) struct Peer {
    pub(in crate::kv::node) blob: Arc<NodeBlob>,
    pub(super) meeting: Meeting,
    /// The link out of this node, and the link into it; and the number of the last one of each that was begun.
    out: (LinkSlot, u32),
    into: (LinkSlot, u32),
    /// Gauges of transfers out of this node, and into it; transfers of links that have ended count, too.
    pub(super) gauges: [Arc<Gauge>; 2],
    /// The bytes of a note that has not arrived in full.
    pub(super) said: Vec<u8>,
    /// Wishes of the peer that are being granted.
    pub(super) granting: u32,
    _present: Present,
}

/// How far two nodes have met.
pub(super) enum Meeting {
    Dialing(Dialing),
    /// Either has introduced itself. The connection ends when the peer leaves, or its process ends. This node has
    /// `dialed` the peer at that address, or the peer this node.
    Met {
        stream: Arc<TcpStream>,
        dialed: Option<SocketAddr>,
    },
}

/// This node introduces itself, again and again.
pub(super) struct Dialing {
    pub(super) until: Deadline,
    /// Whether an introduction was said that has no answer yet.
    pub(super) asks: bool,
}

impl Dialing {
    pub(super) fn until(until: Deadline) -> Self {
        Self { until, asks: false }
    }
}

impl Peer {
    pub(super) fn new(blob: Arc<NodeBlob>, meeting: Meeting) -> Self {
        let unmade = || (LinkSlot::default(), 0);
        let (out, into, gauges) = (unmade(), unmade(), Default::default());
        Self { blob, meeting, out, into, gauges, said: Vec::new(), granting: 0, _present: metrics::kv_peer() }
    }

    /// The connection over which the two have met.
    pub(super) fn stream(&self) -> Option<&Arc<TcpStream>> {
        match &self.meeting {
            Meeting::Met { stream, .. } => Some(stream),
            Meeting::Dialing(_) => None,
        }
    }

    pub(super) fn dialing(&self) -> Option<&Dialing> {
        match &self.meeting {
            Meeting::Dialing(dialing) => Some(dialing),
            Meeting::Met { .. } => None,
        }
    }

    pub(super) fn dialing_mut(&mut self) -> Option<&mut Dialing> {
        match &mut self.meeting {
            Meeting::Dialing(dialing) => Some(dialing),
            Meeting::Met { .. } => None,
        }
    }

    /// Has the peer dialed until that deadline, if it is later than the present one.
    pub(super) fn dial_until(&mut self, deadline: Deadline) {
        if let Some(dialing) = self.dialing_mut() {
            dialing.until = Deadline::at(dialing.until.instant().max(deadline.instant()));
        }
    }

    /// Whether the links of the two are this node's to make.
    pub(super) fn makes_links(&self) -> bool {
        matches!(self.meeting, Meeting::Met { dialed: Some(_), .. })
    }

    /// Whether the peer is met, and neither has left nor ended since.
    pub(super) fn is_alive(&self) -> bool {
        // A peer that is not met yet is not known to live: whoever comes under the name goes first.
        self.stream().is_some_and(|stream| is_open(stream) && !self.blob.process.ends_within(Duration::ZERO))
    }

    /// The slot of a direction, and the number of its last link.
    pub(super) fn slot(&mut self, way: Way) -> (&mut LinkSlot, &mut u32) {
        let (slot, number) = match way {
            Way::Out => &mut self.out,
            Way::In => &mut self.into,
        };
        (slot, number)
    }

    /// The gauge of a direction.
    pub(super) fn gauge(&self, way: Way) -> &Arc<Gauge> {
        let [out, into] = &self.gauges;
        match way {
            Way::Out => out,
            Way::In => into,
        }
    }

    /// Begins to make the next link of a direction, after so many tries on other rails.
    pub(super) fn make(&mut self, way: Way, until: Instant, tries: u32) -> Job {
        let peer = Arc::clone(&self.blob);
        let (slot, last) = self.slot(way);
        *last = last.wrapping_add(1);
        *slot = LinkSlot::Making { number: *last, until };
        Job::Make { peer, link: LinkName { way, number: *last }, deadline: Deadline::at(until), tries }
    }

    /// Ends the meeting, and returns the ends of its links.
    pub(super) fn end(&mut self) -> impl Iterator<Item = End> + use<> {
        if let Some(stream) = self.stream() {
            // The node's thread has it, too, so dropping it would not close it at once.
            _ = stream.shutdown(Shutdown::Both);
        }
        self.out.0.take().into_iter().chain(self.into.0.take())
    }
}

/// Whether the peer has not closed a connection.
pub(in crate::kv::node) fn is_open(stream: &TcpStream) -> bool {
    match recv(stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((peeked, _)) => peeked > 0,
        Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
    }
}
