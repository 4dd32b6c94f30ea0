//! [`OpenLink`]: this rank's end of a link, before the peer knows of it.
//!
//! Links are made in two ways: the ring's when the communicator is made, by the store (`connect`), and all others when
//! an operation first needs them, by the ring (`link_table`). Both open an end, tell its blobs, and connect it.

use rdma_core::{Deadline, Region};

use super::lanes::{Lanes, fence_unused};
use super::link::Link;
use super::links::FENCE_WITHIN;
use crate::collective::CommunicatorError;
use crate::engine::{Engine, EngineState, LaneId};
use crate::link::mailbox::{self, Geometry, Inbox, Outbox};
use crate::link::{Blob, BlobError, ConnectOverrides, LaneOptions, LinkKind};

/// The shape of a link, alike at both ends.
#[derive(Debug, Clone)]
pub(super) struct LinkShape {
    pub(super) kind: LinkKind,
    /// The fingerprint of the job's token.
    pub(super) job: u32,
    /// Lanes of the link.
    pub(super) lanes: u8,
    pub(super) lane: LaneOptions,
    pub(super) geometry: Geometry,
}

/// This rank's end of a link that the peer does not know yet.
#[derive(Debug)]
pub(super) struct OpenLink {
    pub(super) rank: u32,
    pub(super) lanes: Vec<LaneId>,
    outbox: Outbox,
    inbox: Inbox,
    /// The encoded blobs by which the peer connects to this end, one for each lane.
    pub(super) blobs: Vec<u8>,
}

impl OpenLink {
    /// Opens an end for `rank`: registers its mailbox, opens its lanes, and encodes their blobs, of which the first has
    /// the `payload`.
    ///
    /// # Errors
    ///
    /// The device refuses; no lane is left open then.
    pub(super) fn open(
        engine: &Engine,
        rank: u32,
        shape: &LinkShape,
        payload: Vec<u8>,
    ) -> Result<Self, CommunicatorError> {
        let (outbox, inbox) = mailbox::open(engine, shape.geometry)?;
        let lanes = Lanes::open(engine, shape.lanes, &shape.lane)?;
        let opened = Self { rank, lanes, outbox, inbox, blobs: Vec::new() };
        match opened.encode(engine, shape, payload) {
            Ok(blobs) => Ok(Self { blobs, ..opened }),
            Err(error) => {
                fence_unused(&mut engine.lock(), &opened.lanes, Deadline::after(FENCE_WITHIN));
                Err(error)
            }
        }
    }

    fn encode(
        &self,
        engine: &Engine,
        shape: &LinkShape,
        mut payload: Vec<u8>,
    ) -> Result<Vec<u8>, CommunicatorError> {
        let mut blobs = Vec::new();
        for lane in &self.lanes {
            let blob = engine.blob(*lane, shape.kind, shape.job)?;
            let regions = vec![engine.remote(*lane, self.inbox.region())?];
            blobs.extend(Blob { regions, payload: std::mem::take(&mut payload), ..blob }.encode()?);
        }
        Ok(blobs)
    }

    /// The memory into which the peer writes its messages.
    pub(super) fn mailbox(&self) -> &Region {
        self.inbox.region()
    }

    /// Connects the lanes to those that the peer's blobs describe, in the same order.
    pub(super) fn connect(
        self,
        core: &mut EngineState,
        peer: &[Blob],
        overrides: ConnectOverrides,
    ) -> Result<Link, CommunicatorError> {
        let Self { rank, lanes, outbox, inbox, .. } = self;
        let (lanes, access) = Lanes::connect(core, (lanes, &outbox), (rank, peer), overrides)?;
        Ok(Link::new((rank, access), lanes, outbox, inbox))
    }
}

/// Reads the blobs of so many lanes at the front of `bytes`, and returns what follows them.
pub(super) fn read_blobs(
    bytes: &[u8],
    (kind, job): (LinkKind, u32),
    lanes: u8,
) -> Result<(Vec<Blob>, &[u8]), BlobError> {
    let (mut blobs, mut rest) = (Vec::with_capacity(lanes.into()), bytes);
    for _ in 0..lanes {
        let (blob, behind) = Blob::decode(rest, kind, job)?;
        blobs.push(blob);
        rest = behind;
    }
    Ok((blobs, rest))
}
