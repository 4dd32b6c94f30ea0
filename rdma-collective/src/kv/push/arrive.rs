//! Messages from decode: grants, confirmations, takes, releases and revocations.
//!
//! This file owns the confirmation of a push, which stays in `Writing` or `Quiescing`. A message that cannot be is a
//! violation, which ends the link.

use std::ops::Range;
use std::time::Instant;

use rdma_core::{RemoteKey, RemoteMemory};

use super::{IncomingGrant, Pushes, Stage};
use crate::engine::EngineState;
use crate::kv::blocks::{numbers_of_ranges, ranges};
use crate::kv::layout::Side;
use crate::kv::link::Link;
use crate::kv::message::{
    self, Done, Extend, Grant, NotePiece, Piece, Release, Revoke, StagingAt, Take, Unpacked, Withdraw,
};
use crate::kv::note::Incoming;
use crate::kv::plan::{Wanted, words_of};
use crate::kv::pool::Pieces;
use crate::link::control::Control;
use crate::link::{Arrival, Lane};

impl Pushes {
    /// Reads all messages that have arrived. An error names the breach of the protocol.
    pub(super) fn take_arrivals(
        &mut self,
        core: &mut EngineState,
        now: Instant,
    ) -> Result<bool, &'static str> {
        let mut any = false;
        while let Some(arrival) = self.link.lane(core).and_then(Lane::take) {
            any = true;
            let Arrival::Control(received) = arrival else {
                return Err("an immediate, which a source never gets");
            };
            let understood = match received.message() {
                Ok(parsed) => self.handle_control(core, parsed, now),
                Err(_) => Err("a control message that is malformed"),
            };
            if let Some(lane) = self.link.lane(core) {
                lane.recycle(received);
            }
            understood?;
        }
        Ok(any)
    }

    /// Handles one control message of decode.
    fn handle_control(
        &mut self,
        core: &mut EngineState,
        Control { kind, body }: Control<'_>,
        now: Instant,
    ) -> Result<(), &'static str> {
        match kind {
            message::GRANT => {
                let (grant, piece) = Grant::read(body).map_err(|_| "a grant that is malformed")?;
                self.granted(grant, piece, now)
            }
            message::NOTE => self.noted(&NotePiece::read(body).map_err(|_| "a note that is malformed")?),
            message::LEASE_NOTE => {
                self.noted_release(&NotePiece::read(body).map_err(|_| "a note that is malformed")?)
            }
            message::DONE => {
                self.confirmed(Done::read(body).map_err(|_| "a confirmation that is malformed")?)
            }
            message::TAKE => self.taken(Take::read(body).map_err(|_| "a take that is malformed")?),
            message::RELEASE => {
                self.released(core, Release::read(body).map_err(|_| "a release that is malformed")?, now)
            }
            message::STAGING => {
                self.staging_at(StagingAt::read(body).map_err(|_| "staging memory that is malformed")?)
            }
            message::UNPACKED => {
                self.unpacked(Unpacked::read(body).map_err(|_| "unpacked writes that are malformed")?)
            }
            message::EXTEND => {
                self.extended(Extend::read(body).map_err(|_| "an extension that is malformed")?, now)
            }
            message::WITHDRAW => {
                let read = Withdraw::read(body);
                let Withdraw { request, reason } = read.map_err(|_| "a withdrawal that is malformed")?;
                self.grant_gone(core, request, reason, now);
                Ok(())
            }
            message::REVOKE => {
                self.revoked(core, Revoke::read(body).map_err(|_| "a revocation that is malformed")?, now)
            }
            _ => Err("a control message that does not belong here"),
        }
    }

    /// Handles one piece of a grant. The list may be split over several messages, which come in order.
    fn granted(&mut self, grant: Grant, piece: Piece<'_>, now: Instant) -> Result<(), &'static str> {
        let Some(place) = self.grants.get_mut(usize::from(grant.transfer)) else {
            return Err("a grant for a transfer slot that does not exist");
        };
        let theirs = self.link.route.destination();
        let (layers, blocks) = (theirs.layers(), theirs.blocks());
        let most = self.link.route.blocks_max(Side::Destination);
        if grant.blocks == 0 || grant.blocks > blocks {
            return Err("a grant of no blocks, or of more than there are");
        }
        let words = if grant.partial { words_of(layers, grant.blocks) } else { Some(0) };
        let ranges = numbers_of_ranges(grant.tokens, theirs);
        let keys = self.link.keys_of_a_grant() as u32;
        let all = words.and_then(|words| words.checked_add(grant.blocks)?.checked_add(ranges + keys));
        if all != Some(piece.total) {
            return Err("a grant of another length than its blocks take");
        }
        if piece.first == 0 && place.is_none() {
            let expires = message::expires(grant.time_to_live_ms, now);
            self.grants_seen = self.grants_seen.max(grant.grant);
            self.taken_back.forget(grant.request);
            // The list grows as pieces arrive and is not reserved in advance, because `total` is the peer's word: a
            // bad peer could make this side allocate without bound.
            let (list, total, arrived) = (Vec::new(), piece.total, 0);
            let note = Incoming::promised(grant.note);
            *place = Some(IncomingGrant { grant, list, total, arrived, note, expires });
        }
        match place {
            Some(granted)
                if granted.grant == grant
                    && granted.total == piece.total
                    && granted.arrived == piece.first =>
            {
                let numbers = piece.numbers();
                // A piece never goes beyond the whole list.
                granted.arrived += numbers.len() as u32;
                let kept = grant.blocks <= most;
                if kept {
                    granted.list.extend(numbers);
                }
                let odd = kept && granted.is_told() && grant.partial && granted.wanted(layers).is_none();
                if odd { Err("a partial grant with a wrong bit set") } else { Ok(()) }
            }
            _ => Err("a grant in a slot that is in use, or out of order"),
        }
    }

    /// Handles a piece of the note of a grant. No push has met the grant, because that waits for the note.
    fn noted(&mut self, piece: &NotePiece<'_>) -> Result<(), &'static str> {
        let of_grant = |granted: &&mut IncomingGrant| granted.grant.grant == piece.id && granted.is_told();
        let granted = self.grants.iter_mut().flatten().find(of_grant);
        granted.ok_or("a note of a grant that was not made")?.note.add(piece)
    }

    /// Handles EXTEND: a grant lives longer.
    fn extended(&mut self, extend: Extend, now: Instant) -> Result<(), &'static str> {
        if extend.id > self.grants_seen {
            return Err("an extension of a grant that was not made");
        }
        // A grant that a push has met lives as long as the push.
        let of_grant = |granted: &&mut IncomingGrant| granted.grant.grant == extend.id;
        if let Some(granted) = self.grants.iter_mut().flatten().find(of_grant) {
            granted.expires = message::expires(extend.time_to_live_ms, now);
        }
        Ok(())
    }

    /// Handles DONE: decode has all blocks. The push ends in `finish`, once its own writes are done too.
    pub(super) fn confirmed(&mut self, done: Done) -> Result<(), &'static str> {
        self.packing.done(done.grant);
        for state in self.pushes.iter_mut().flatten() {
            let lease = state.id();
            // A push that was given up here meanwhile takes the confirmation too: all its writes have arrived.
            if let Stage::Writing(of) | Stage::Quiescing { of, .. } = &mut state.stage
                && of.grant == done.grant
                && lease == done.lease
                && of.all_posted.is_some()
                && !state.note.is_due()
                && of.confirmed.is_none()
            {
                of.confirmed = Some(done);
                return Ok(());
            }
        }
        // A push that has ended here meanwhile gets its confirmation late; any other number is a breach.
        if done.grant <= self.grants_seen {
            Ok(())
        } else {
            Err("a confirmation of a grant that was not made")
        }
    }
}

impl IncomingGrant {
    /// Whether all pieces of the list have arrived.
    fn is_told(&self) -> bool {
        self.arrived == self.total
    }

    /// Whether the list and the note have arrived.
    pub(super) fn is_whole(&self) -> bool {
        self.is_told() && self.note.is_whole()
    }

    /// The destination blocks, once the list is complete; none if they are more than this side's pool has.
    pub(super) fn blocks(&self) -> &[u32] {
        self.list.get(..self.grant.blocks as usize).unwrap_or_default()
    }

    /// The wanted blocks of a partial grant; `None` when all are wanted.
    pub(super) fn wanted(&self, layers: u32) -> Option<Wanted> {
        let words = words_of(layers, self.grant.blocks).filter(|_| self.grant.partial)? as usize;
        let first = self.grant.blocks as usize;
        Wanted::from_words(layers, self.grant.blocks, self.list.get(first..first + words)?)
    }

    /// The token ranges of the grant, which has `keys` keys behind them; none when it has all tokens.
    pub(super) fn tokens(&self, layers: u32, keys: usize) -> Vec<Range<u32>> {
        let words = if self.grant.partial { words_of(layers, self.grant.blocks).unwrap_or(0) } else { 0 };
        let first = (self.grant.blocks + words) as usize;
        ranges(self.list.get(first..self.list.len().saturating_sub(keys)).unwrap_or_default())
    }

    /// The memory of the peer's pool, with the keys of the grant; `None` when the grant has none of its own.
    pub(super) fn memory(&self, link: &Link) -> Option<Pieces<RemoteMemory>> {
        let keys = self.list.len().checked_sub(link.keys_of_a_grant()).filter(|_| link.strict)?;
        let (pool, keys) = (link.remote.as_ref()?, self.list.get(keys..)?);
        let pieces = pool.iter().zip(keys);
        Some(pool.with(pieces.map(|(piece, key)| RemoteMemory { rkey: RemoteKey(*key), ..*piece })))
    }
}
