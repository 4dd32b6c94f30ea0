//! The lanes of one link: queue pairs side by side, over which the messages of the link are striped.
//!
//! All lanes of a link write into one mailbox. A slot and its turn name a message, so the order of arrival between
//! lanes does not matter. Whatever must stay in order (control messages, and the counts of slots given back) goes over
//! the first lane alone.

use std::time::Instant;

use rdma_core::{Deadline, PeerAccess};

use super::links::FENCE_WITHIN;
use crate::collective::CommunicatorError;
use crate::engine::{Engine, EngineState, LaneId, SetupError};
use crate::link::{Blob, ConnectOverrides, LaneName, LaneOptions};

/// Lanes that a link can have, at most.
pub(super) const LANES_MAX: u8 = 8;

/// The lanes of one link, connected.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// The lane of control messages: the first of `all`.
    pub(crate) first: LaneId,
    /// The name of `first`.
    pub(crate) name: LaneName,
    /// All lanes, in the same order at both ends.
    pub(crate) all: Vec<LaneId>,
}

impl Lanes {
    /// Opens `count` lanes. If one cannot be opened, the others are fenced.
    pub(super) fn open(engine: &Engine, count: u8, options: &LaneOptions) -> Result<Vec<LaneId>, SetupError> {
        let mut opened = Vec::with_capacity(count.into());
        for _ in 0..count {
            match engine.open_lane(options.clone()) {
                Ok(lane) => opened.push(lane),
                Err(error) => {
                    fence_unused(&mut engine.lock(), &opened, Deadline::after(FENCE_WITHIN));
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Connects opened lanes to those that `peers` describe, in the same order. The second value is how this process
    /// reaches the peer's memory.
    pub(super) fn connect(
        core: &mut EngineState,
        all: Vec<LaneId>,
        (rank, peers): (u32, &[Blob]),
        overrides: ConnectOverrides,
    ) -> Result<(Self, PeerAccess), CommunicatorError> {
        let (Some(&first), true) = (all.first(), all.len() == peers.len()) else {
            return Err(CommunicatorError::Introduction { rank });
        };
        for (lane, peer) in all.iter().zip(peers) {
            core.connect_lane_as(*lane, peer, Instant::now(), overrides)?;
        }
        let access = core.peer_access(first)?;
        let name = core.lane(first).ok_or(SetupError::LaneGone)?.name();
        Ok((Self { first, name, all }, access))
    }

    /// The lane of message `number`.
    pub(super) fn of(&self, number: u64) -> LaneId {
        match &self.all[..] {
            [_] => self.first,
            all => all[(number % all.len() as u64) as usize],
        }
    }

    /// Whether there are several lanes.
    pub(super) fn are_many(&self) -> bool {
        self.all.len() > 1
    }
}

/// Ends lanes that nothing uses.
pub(super) fn fence_unused(core: &mut EngineState, lanes: &[LaneId], deadline: Deadline) {
    for lane in lanes {
        if let Err(error) = core.fence_lane(*lane, deadline) {
            crate::log::warn!(
                %error,
                "an unused lane could not be closed; its memory stays until the engine is dropped"
            );
        }
    }
}
