//! The ends of grants: complete, late, or lost with the link.

use std::sync::Arc;
use std::time::Instant;

use super::{Receives, Stage, State};
use crate::comm::Core;
use crate::error::{KvError, LaneFailure, TransferError};
use crate::kv::layout::Layout;
use crate::kv::verdict::{BlockVerdict, Verdicts};

impl Receives {
    /// Finds the transfers of which all has arrived: as many writes as were announced, and the sums if they are wanted.
    pub(super) fn complete(&mut self, now: Instant) -> bool {
        let layers = self.pool.layout().shape().layers;
        let mut any = false;
        for state in self.grants.iter_mut().flatten() {
            if !matches!(state.stage, Stage::Filling) || !state.arrived.is_complete() {
                continue;
            }
            let blocks = state.hold.blocks();
            if !self.checksums {
                state.confirm(Verdicts::new(layers, blocks, BlockVerdict::Valid), now);
                any = true;
            } else if state.sums.len() == layers as usize * blocks.len() {
                state.stage = Stage::Arrived;
                any = true;
            }
        }
        any
    }

    /// A grant that is late ends the link: only so is it certain that nothing of it lands any more. One that the peer
    /// was never told of ends alone.
    pub(super) fn expire(&mut self, core: &mut Core, now: Instant) {
        let layout = *self.pool.layout();
        let (peer, lane) = (self.link.peer, self.link.name);
        let mut fence = false;
        for place in &mut self.grants {
            // What has all arrived is not late, however late it is looked at; but the peer has to listen.
            let Some(state) = place.as_mut().filter(|state| state.due().is_some_and(|due| due <= now)) else {
                continue;
            };
            fence |= state.told > 0;
            if let Stage::Confirming(..) = state.stage {
                continue;
            }
            let cause = Arc::new(KvError::DeadlineExceeded {
                request: state.grant.request,
                peer,
                lane,
                bytes_outstanding: state.bytes_outstanding(&layout),
                waited: now.saturating_duration_since(state.granted),
            });
            let error = TransferError { cause, verdicts: state.verdicts(&layout) };
            if state.told > 0 {
                // Told now, freed when the lane is fenced.
                state.stage = Stage::Ended(Err(error));
                continue;
            }
            state.end(Err(error));
            if let Some(lane) = self.link.lane(core) {
                lane.unwatch();
            }
            if state.abandoned {
                *place = None;
            }
        }
        if fence {
            self.end(core, LaneFailure::Fenced);
        }
    }

    /// Ends every grant and the link with it.
    pub(in crate::kv) fn end(&mut self, core: &mut Core, cause: LaneFailure) {
        let layout = *self.pool.layout();
        let (peer, lane) = (self.link.peer, self.link.name);
        let fenced = self.link.end(core, cause.clone());
        for place in &mut self.grants {
            let Some(state) = place else { continue };
            if !fenced {
                state.hold.quarantine();
            }
            if matches!(state.stage, Stage::Arrived) && !state.abandoned {
                // All has arrived, and whoever waits can check the sums as well without the peer.
                continue;
            }
            let outcome = match &state.stage {
                // All has arrived, and the peer alone does not know.
                Stage::Confirming(verdicts, _) => Ok(verdicts.clone()),
                _ => Err(TransferError {
                    cause: Arc::new(KvError::PeerFailed {
                        request: state.grant.request,
                        peer,
                        lane,
                        cause: cause.clone(),
                        bytes_outstanding: state.bytes_outstanding(&layout),
                    }),
                    verdicts: state.verdicts(&layout),
                }),
            };
            state.end(outcome);
            if state.abandoned {
                *place = None;
            }
        }
    }
}

impl State {
    fn bytes_outstanding(&self, layout: &Layout) -> u64 {
        (layout.block_bytes() * self.hold.blocks().len() as u64).saturating_sub(self.bytes_arrived)
    }

    /// What has arrived. Where sums are wanted nothing is vouched for: they were not checked.
    fn verdicts(&self, layout: &Layout) -> Verdicts {
        let blocks = self.hold.blocks();
        let plan = self.begin.as_ref().and_then(|begun| begun.plan.as_ref());
        match plan.filter(|_| !self.grant.checksums) {
            Some(plan) => Verdicts::arrived(blocks, plan, layout, &self.arrived),
            None => Verdicts::new(layout.shape().layers, blocks, BlockVerdict::Missing),
        }
    }
}
