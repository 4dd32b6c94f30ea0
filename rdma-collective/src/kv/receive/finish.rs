//! The ends of transfers that are done or lost. This file owns `Filling` → `Unchecked` or `Confirming` (complete),
//! `Confirming` → `Ended` (the peer was told), and any stage → `Ended` with the link. Grants that are taken back end
//! in `revoke`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Receives;
use super::state::{Feed, Revocation, Stage, State};
use crate::engine::EngineState;
use crate::kv::KvError;
use crate::kv::message::{self, Done, Release};
use crate::kv::verdict::{BlockVerdict, Verdicts};
use crate::link::LaneFailure;

/// Pause before a key that the device did not end is tried again.
const KEYS_AGAIN: Duration = Duration::from_millis(10);

impl Receives {
    /// Moves on the transfers that are complete: as many writes as were announced, and all checksums if they are
    /// wanted. The count decides, and never the arrival of a particular write, because writes may be reordered.
    ///
    /// # Errors
    ///
    /// The writes carried another number of bytes than the plan has.
    pub(super) fn complete(&mut self, now: Instant) -> Result<bool, &'static str> {
        let layers = self.pool.layout().layers();
        let mut any = false;
        self.keys_left = None;
        for state in self.grants.iter_mut().flatten() {
            if !matches!(state.stage, Stage::Filling) || !state.arrived.is_complete() {
                continue;
            }
            if state.bytes_arrived != state.bytes {
                return Err("writes of another length than was planned");
            }
            // Before the note and the check, so that nobody changes what was checked. A key that stays is tried again,
            // at last when the grant expires.
            if !state.end_keys() {
                self.keys_left = Some(now + KEYS_AGAIN);
                continue;
            }
            if !state.note_in.is_whole() {
                continue;
            }
            if !self.checksums {
                state.confirm(Verdicts::new(layers, state.hold.list(), BlockVerdict::Valid), now);
                any = true;
            } else if state.sums.len() as u64 == state.sums_total(layers) {
                // Checks may take long, and the slots are empty.
                self.unpacked.extend(state.to_tell(true));
                state.arrive(now);
                any = true;
            }
        }
        Ok(any)
    }

    /// Confirms to the peer (DONE, or RELEASE for a pull) and ends the transfer. A lane without room for the message
    /// keeps the transfer in `Confirming`, and the deadline of that stage bounds the wait.
    pub(super) fn confirm(&mut self, core: &mut EngineState) -> bool {
        let mut any = false;
        for state in self.grants.iter_mut().flatten() {
            let Stage::Confirming(verdicts, _) = &state.stage else { continue };
            let corrupt = verdicts.count(BlockVerdict::Corrupt) as u32;
            let told = match state.feed {
                Feed::Read { lease: Some(lease), .. } => {
                    let (reads, bytes) = (state.arrived.count(), state.bytes);
                    let release = Release { lease, done: true, reads, corrupt, bytes };
                    (state.note.is_empty() || state.note.send(&self.link, core, message::LEASE_NOTE, lease))
                        && self.link.send(core, message::RELEASE, |body| release.write(body))
                }
                // The lease was recalled meanwhile and is released already.
                Feed::Read { lease: None, .. } => true,
                Feed::Written => {
                    let missing = verdicts.count(BlockVerdict::Missing) as u32;
                    let lease = state.begin.as_ref().map_or(0, |begun| begun.begin.lease);
                    let done = Done { grant: state.grant.grant, lease, missing, corrupt };
                    self.link.send(core, message::DONE, |body| done.write(body))
                }
            };
            if told {
                any = true;
                state.end_well();
                self.link.unwatch(core);
            }
        }
        any
    }

    /// Ends checking of transfers that have all bytes and too many of them to check in time: their unchecked blocks
    /// are missing.
    pub(in crate::kv) fn give_up_unchecked(&mut self, now: Instant) -> bool {
        let link_ended = self.link.ended.is_some();
        let (peer, lane) = (self.link.peer.clone(), self.link.name);
        let layout = self.pool.layout().clone();
        let mut any = false;
        let late = |state: &&mut State| matches!(state.stage, Stage::Unchecked(by) if by <= now);
        for state in self.grants.iter_mut().flatten().filter(late) {
            any = true;
            state.unchecked = Some(Arc::new(KvError::DeadlineExceeded {
                request: state.grant.request,
                peer: peer.clone(),
                lane,
                bytes_outstanding: 0,
                last_progress: self.journal.idle(state.granted, now),
                waited: now.saturating_duration_since(state.granted),
            }));
            state.confirm(state.verdicts(&layout), now);
            if link_ended {
                state.end_well();
            }
        }
        any
    }

    /// Ends every transfer, and the link with them. The lane is fenced first: only then can no write land, and the
    /// blocks be released. If the device refuses, they are quarantined.
    pub(in crate::kv) fn end(&mut self, core: &mut EngineState, cause: LaneFailure) {
        let layout = self.pool.layout().clone();
        let (peer, lane) = (self.link.peer.clone(), self.link.name);
        if self.link.ended.is_none() {
            self.journal.down(cause.clone());
        }
        let fenced = self.link.end(core, cause.clone());
        self.pulls.clear();
        for state in self.grants.iter_mut().flatten() {
            if matches!(state.stage, Stage::Ended(_)) {
                continue;
            }
            let request = state.grant.request;
            if !fenced {
                state.hold.quarantine();
            }
            let cause = match &state.stage {
                Stage::Unchecked(_) if !state.abandoned => {
                    // All bytes have arrived, and checksums can be checked without the peer.
                    continue;
                }
                // All bytes have arrived and were checked; only the confirmation to the peer is missing.
                Stage::Confirming(..) => {
                    state.end_well();
                    None
                }
                _ if !fenced => Some(Arc::new(KvError::Quarantined { request, peer: peer.clone(), lane })),
                Stage::Revoking(Revocation { cause, .. }) => Some(Arc::clone(cause)),
                _ => Some(Arc::new(KvError::PeerFailed {
                    request,
                    peer: peer.clone(),
                    lane,
                    cause: cause.clone(),
                    bytes_outstanding: state.bytes_outstanding(),
                    last_progress: self.journal.idle(state.granted, core.now()),
                })),
            };
            if let Some(cause) = cause {
                state.fail(cause, &layout);
            }
        }
        self.wake(core);
    }
}
