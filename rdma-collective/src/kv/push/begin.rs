//! Matching of pushes with grants. This file owns `Waiting` → `Writing` when there is a plan, and `Waiting` → `Ended`
//! when the grant is refused.

use std::sync::Arc;
use std::time::Instant;

use super::post::Posting;
use super::{IncomingGrant, PushKey, Pushes, Stage, State, Writing};
use crate::engine::EngineState;
use crate::kv::KvError;
use crate::kv::blocks::tokens_of;
use crate::kv::link::Link;
use crate::kv::message::{self, Begin, Refusal, Refuse};
use crate::kv::plan::{Count, Plan, PlanError, PlanOptions, Wanted, parts_of};
use crate::kv::staging::SLOT_BYTES;
use crate::link::imm::{TRANSFERS_MAX, WRITES_MAX};

impl Pushes {
    /// Matches pushes that wait with grants that are complete.
    pub(super) fn begin(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let mut any = false;
        for slot in &mut self.grants {
            let Some(granted) = slot.as_ref().filter(|granted| granted.is_whole()) else { continue };
            // Refusals are bounded by the number of slots; further grants wait until the peer has received these.
            if self.refusals.len() >= TRANSFERS_MAX {
                break;
            }
            let mut waiting = (0..).zip(&mut self.pushes).filter_map(|(at, push)| Some((at, push.as_mut()?)));
            let waiting = waiting.find(|(_, state)| {
                let waits = matches!(state.stage, Stage::Waiting) && !state.deadline.expired_at(now);
                waits && state.request == granted.grant.request
            });
            // The grant leaves its slot whatever the plan comes to, so that decode can use the slot again.
            if let Some((place, state)) = waiting
                && let Some(mut granted) = slot.take()
            {
                any = true;
                state.note_in = granted.note.take();
                let since = Instant::now();
                let options = PlanOptions {
                    write_bytes_max: self.write_bytes_max,
                    pack_bytes: self.pack_bytes,
                    stage_bytes: SLOT_BYTES,
                    by_layer: state.layers.is_some(),
                    unpacks: self.packing.unpacks(),
                    ..PlanOptions::default()
                };
                let planned = plan(&self.link, state, &granted, &options, now);
                self.journal.prepared(since);
                match planned {
                    Ok(planned) => {
                        let begin = state.begin(&planned, &options, &granted, now);
                        let key = PushKey { place, id: begin.lease };
                        let of = (granted.grant, granted.memory(&self.link));
                        self.posting.push_back(Posting::new((key, state.bytes), begin, of, planned));
                    }
                    Err((refusal, error)) => {
                        let (grant, blocks) = (granted.grant.grant, state.hold.blocks().len() as u32);
                        self.refusals.push_back(Refuse { grant, blocks, refusal });
                        state.end(Err(error));
                        self.link.unwatch(core);
                    }
                }
            }
        }
        any
    }

    /// Sends the refusals of grants that cannot be used; their pushes have ended already.
    pub(super) fn refuse(&mut self, core: &mut EngineState) {
        while let Some(refuse) = self.refusals.front() {
            if !self.link.send(core, message::REFUSE, |body| refuse.write(body)) {
                return;
            }
            self.refusals.pop_front();
        }
    }
}

impl State {
    /// `Waiting` → `Writing`. Returns the message for the peer.
    fn begin(
        &mut self,
        planned: &Planned,
        options: &PlanOptions,
        granted: &IncomingGrant,
        now: Instant,
    ) -> Begin {
        let (grant, writes) = (granted.grant.grant, planned.count.writes);
        let (all_posted, confirmed) = (None, None);
        self.stage = Stage::Writing(Writing { grant, at: now, all_posted, confirmed });
        self.writes = writes;
        self.bytes = planned.plan.bytes();
        self.skipped = planned.plan.skipped(self.hold.blocks());
        if let Some(layers) = &mut self.layers {
            layers.begin(&planned.count.ends, granted.grant.checksums);
        }
        Begin {
            grant,
            lease: self.id(),
            writes,
            write_bytes_max: options.write_bytes_max,
            pack_bytes: options.pack_bytes,
            // Slots are taken when the blocks are sent.
            slots: 0,
            by_layer: options.by_layer,
            tokens: self.hold.list().has_tokens(),
            note: !self.note.is_empty(),
        }
    }
}

/// The plan of a push, and how many writes it has.
pub(super) struct Planned {
    pub(super) plan: Arc<Plan>,
    pub(super) count: Count,
    pub(super) wanted: Option<Wanted>,
    /// Blocks to move, summed over all layers.
    pub(super) parts: u64,
}

/// Makes the plan of a push and its grant. An error has the reason for the peer, and the error for the push.
fn plan(
    link: &Link,
    state: &State,
    granted: &IncomingGrant,
    options: &PlanOptions,
    now: Instant,
) -> Result<Planned, (Refusal, KvError)> {
    let (request, route) = (state.request, &link.route);
    let peer = || link.peer.clone();
    if granted.expires.is_some_and(|expires| now >= expires) {
        return Err((Refusal::Expired, KvError::GrantExpired { request, peer: peer() }));
    }
    let (source, destination) = (state.hold.blocks(), granted.blocks());
    let layers = route.destination().layers();
    let counts = || {
        let (source_blocks, granted) = (source.len() as u32, granted.grant.blocks);
        (Refusal::Blocks, KvError::BlockCounts { request, peer: peer(), source_blocks, granted })
    };
    // Empty because this side did not keep a list of more blocks than any push could meet.
    if destination.is_empty() {
        return Err(counts());
    }
    let wanted = granted.wanted(layers);
    let tokens = tokens_of(&state.hold.list().tokens(), &granted.tokens(layers, link.keys_of_a_grant()));
    let tokens = tokens.ok_or((Refusal::Tokens, KvError::TokenRanges { request, peer: peer() }))?;
    let options = PlanOptions { tokens, ..options.clone() };
    let plan = match Plan::of_parts(route, [source, destination], &options, wanted.clone()) {
        Err(PlanError::TokenCounts { .. }) => return Err(counts()),
        plan => plan.map_err(|error| (Refusal::Plan, error.into()))?,
    };
    let count = plan.count(WRITES_MAX);
    let Some(parts) = parts_of(layers, destination.len()).filter(|_| count.writes <= WRITES_MAX) else {
        return Err((Refusal::Plan, KvError::TooManyWrites { request, max: WRITES_MAX }));
    };
    let parts = wanted.as_ref().map_or(parts.into(), Wanted::count);
    Ok(Planned { plan, count, wanted, parts })
}
