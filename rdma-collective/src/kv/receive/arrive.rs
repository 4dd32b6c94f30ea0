//! Arrivals from prefill: its messages, and the immediates of its writes.
//!
//! This file owns no stage but `Filling` → `Ended` for a refused grant; it counts writes for the others to decide on.
//! A message that cannot be is a violation, which ends the link.

use std::sync::Arc;
use std::time::Instant;

use super::Receives;
use super::state::{Announced, State};
use super::unpack::Unpack;
use crate::engine::EngineState;
use crate::kv::KvError;
use crate::kv::blocks::{numbers_of_ranges, ranges as ranges_of, tokens_of};
use crate::kv::layout::{Layout, Side};
use crate::kv::message::{self, Begin, Extend, NotePiece, Offer, Piece, Quiesced, Recall, Refusal, Refuse};
use crate::kv::note::Incoming;
use crate::kv::plan::{Count, Plan, PlanOptions, Route, writes_of};
use crate::kv::pool::Pool;
use crate::kv::staging::{SLOT_BYTES, Slots, Staging};
use crate::link::imm::{Imm, WRITES_MAX};
use crate::link::{Arrival, Lane, control};

impl Receives {
    /// Reads all messages and immediates that have arrived. An error names the breach of the protocol.
    pub(super) fn take_arrivals(
        &mut self,
        core: &mut EngineState,
        now: Instant,
    ) -> Result<bool, &'static str> {
        let mut any = false;
        while let Some(arrival) = self.link.lane(core).and_then(Lane::take) {
            any = true;
            match arrival {
                Arrival::Imm(Imm::Block { transfer, index }, bytes) => {
                    self.landed(transfer, index, bytes, now)?
                }
                Arrival::Imm(..) => return Err("an immediate that does not belong here"),
                Arrival::Control(received) => {
                    let understood = match received.message() {
                        Ok(parsed) => self.handle_control(core, parsed, now),
                        Err(_) => Err("a control message that is malformed"),
                    };
                    if let Some(lane) = self.link.lane(core) {
                        lane.recycle(received);
                    }
                    understood?;
                }
            }
        }
        Ok(any)
    }

    /// Counts a write by its immediate: the slot names the transfer, the index the write. The immediate may overtake
    /// the announcement (BEGIN), so an index is valid until the number of writes is known.
    fn landed(&mut self, transfer: u8, index: u32, bytes: u32, now: Instant) -> Result<(), &'static str> {
        let state = self.grants.get_mut(usize::from(transfer)).and_then(Option::as_mut);
        let Some(state) = state.filter(|state| state.is_open() && !state.pulls()) else {
            return Err("a block for a transfer slot that is not open");
        };
        if !state.arrived.note(index) {
            return Err("a block that has arrived before, or was not announced");
        }
        if let Some(begun) = &mut state.begin {
            begun.unpack((index, bytes), self.link.staging.as_ref(), &self.pool)?;
            begun.note(index);
        }
        state.bytes_arrived += u64::from(bytes);
        self.landed = (self.landed.0 + 1, self.landed.1 + u64::from(bytes));
        state.latest = now;
        Ok(())
    }

    /// Handles one control message of prefill.
    fn handle_control(
        &mut self,
        core: &mut EngineState,
        parsed: control::Control<'_>,
        now: Instant,
    ) -> Result<(), &'static str> {
        match parsed.kind {
            message::BEGIN => {
                let (begin, piece) = Begin::read(parsed.body).map_err(|_| "a beginning that is malformed")?;
                let (route, unpacks) = (Arc::clone(&self.link.route), self.link.staging.is_some());
                let since = Instant::now();
                let begun = self.open(begin.grant)?.begins(begin, piece, (&route, unpacks), now);
                self.journal.prepared(since);
                begun
            }
            message::CHECKSUMS => {
                let read = message::read_checksums(parsed.body);
                let (grant, piece) = read.map_err(|_| "checksums that are malformed")?;
                let (wanted, layers) = (self.checksums, self.pool.layout().layers());
                let state = self.open(grant)?;
                let total = state.sums_total(layers);
                state.sums(piece, total, wanted)
            }
            message::NOTE => {
                let piece = NotePiece::read(parsed.body).map_err(|_| "a note that is malformed")?;
                self.open(piece.id)?.note_in.add(&piece)
            }
            message::LEASE_NOTE => {
                let piece = NotePiece::read(parsed.body).map_err(|_| "a note that is malformed")?;
                self.note_of_offer(&piece)
            }
            message::REFUSE => {
                let refuse = Refuse::read(parsed.body).map_err(|_| "a refusal that is malformed")?;
                let layout = self.pool.layout().clone();
                self.open(refuse.grant)?.refused(refuse, &layout)?;
                self.link.unwatch(core);
                Ok(())
            }
            message::OFFER => {
                let (offer, piece) = Offer::read(parsed.body).map_err(|_| "an offer that is malformed")?;
                self.offered(offer, piece, now)
            }
            message::RECALL => {
                let read = Recall::read(parsed.body);
                self.recalled(core, read.map_err(|_| "a recall that is malformed")?, now)
            }
            message::EXTEND => {
                let extend = Extend::read(parsed.body).map_err(|_| "an extension that is malformed")?;
                self.extended(extend, now)
            }
            message::LEASE_CHECKSUMS => {
                let read = message::read_checksums(parsed.body);
                let (lease, piece) = read.map_err(|_| "checksums that are malformed")?;
                let (wanted, layers) = (self.checksums, self.pool.layout().layers());
                let reads = |state: &&mut State| state.is_open() && state.lease() == Some(lease);
                match self.grants.iter_mut().flatten().find(reads) {
                    Some(state) => state.sums(piece, state.sums_total(layers), wanted),
                    // The pull was given up meanwhile, and its checksums were under way.
                    None if self.pulls.knows(lease) => Ok(()),
                    None => Err("checksums of a lease that was not offered"),
                }
            }
            message::QUIESCED => {
                let read = Quiesced::read(parsed.body);
                self.quiesced(read.map_err(|_| "an answer to a revocation that is malformed")?, now)
            }
            _ => Err("a control message that does not belong here"),
        }
    }

    /// The grant with this number, if writes may still arrive for it.
    fn open(&mut self, grant: u64) -> Result<&mut State, &'static str> {
        let state = self.slot(grant).and_then(Option::as_mut);
        state
            .filter(|state| state.is_open() && !state.pulls())
            .ok_or("a message about a grant that is not open")
    }
}

impl State {
    /// Collects the source blocks, piece by piece. After the last piece both sides have the same plan, so the
    /// expected number of writes is known and checked against the announced one.
    fn begins(
        &mut self,
        begin: Begin,
        piece: Piece<'_>,
        (route, unpacks): (&Arc<Route>, bool),
        now: Instant,
    ) -> Result<(), &'static str> {
        let blocks = self.hold.blocks();
        let blocks_told = piece.total.saturating_sub(numbers_of_ranges(begin.tokens, route.source()));
        if blocks_told == 0 || blocks_told > route.blocks_max(Side::Source) || self.told < self.list.len() {
            return Err("a beginning with no blocks, or more than can fill those that were granted");
        }
        if self.begin.is_none() {
            self.note_in = Incoming::promised(begin.note);
        }
        let begun = self.begin.get_or_insert_with(|| Announced::new(begin, piece.total, now));
        if begun.begin != begin || begun.total != piece.total || begun.sources.len() != piece.first as usize {
            return Err("a beginning out of order");
        }
        if begun.plan.is_some() {
            return Err("a beginning that has come before");
        }
        begun.sources.extend(piece.numbers());
        if begun.sources.len() < begun.total as usize {
            return Ok(());
        }
        let Begin { write_bytes_max, pack_bytes, by_layer, .. } = begin;
        let theirs = ranges_of(&begun.sources.split_off(blocks_told as usize));
        let tokens = tokens_of(&theirs, &self.hold.list().tokens());
        let tokens = tokens.ok_or("a beginning with another number of tokens than were granted")?;
        let (stage_bytes, pulls) = (SLOT_BYTES, false);
        let options =
            PlanOptions { write_bytes_max, pack_bytes, stage_bytes, by_layer, pulls, unpacks, tokens };
        let plan = Plan::of_parts(route, [&begun.sources, blocks], &options, self.wanted.clone());
        let plan = plan.map_err(|_| "source blocks of which no plan can be made")?;
        self.bytes = plan.bytes();
        let Count { writes, unpacked, ends } = plan.count(WRITES_MAX);
        let slots = Slots(begin.slots);
        if (unpacked > 0) != (slots.count() > 0) || !Slots::ALL.has(slots) {
            return Err("a beginning with other slots than its packed writes need");
        }
        if unpacked > 0 {
            if self.arrived.count() > 0 {
                return Err("a write before its beginning");
            }
            begun.unpack = Some(Unpack::new(slots, &plan, writes, by_layer));
        }
        if writes != begin.writes || writes > WRITES_MAX || !self.arrived.announce(writes) {
            return Err("another number of writes than the blocks take");
        }
        begun.planned(plan, ends);
        Ok(())
    }

    /// Appends checksums, which come in order, for the blocks of the transfer.
    fn sums(&mut self, piece: Piece<'_>, total: u64, wanted: bool) -> Result<(), &'static str> {
        if !wanted || u64::from(piece.total) != total || self.sums.len() != piece.first as usize {
            return Err("checksums that do not belong here");
        }
        self.sums.extend(piece.numbers());
        Ok(())
    }

    /// Handles REFUSE: prefill cannot use the grant, and has written nothing.
    fn refused(&mut self, refuse: Refuse, layout: &Layout) -> Result<(), &'static str> {
        if self.begin.is_some() || self.arrived.count() > 0 {
            return Err("a refusal of a grant that had begun");
        }
        let (request, granted) = (self.grant.request, self.hold.blocks().len() as u32);
        let peer = self.peer.0.clone();
        let cause = match refuse.refusal {
            Refusal::Blocks => KvError::BlockCounts { request, peer, source_blocks: refuse.blocks, granted },
            Refusal::Expired => KvError::GrantExpired { request, peer },
            Refusal::Plan => KvError::GrantRefused { request, peer },
            Refusal::Tokens => KvError::TokenRanges { request, peer },
        };
        self.fail(Arc::new(cause), layout);
        Ok(())
    }
}

impl Announced {
    pub(super) fn new(begin: Begin, total: u32, at: Instant) -> Self {
        let (sources, ends, layers_left) = (Vec::new(), Vec::new(), Vec::new());
        Self { begin, total, sources, at, plan: None, unpack: None, ends, layers_left }
    }

    /// Keeps the plan, and the writes up to the end of each layer if it goes layer by layer.
    pub(super) fn planned(&mut self, plan: Arc<Plan>, ends: Vec<u32>) {
        self.layers_left = (0..ends.len()).map(|layer| writes_of(&ends, layer).len() as u32).collect();
        (self.plan, self.ends) = (Some(plan), ends);
    }

    /// Position of the layer of a write, if they come layer by layer.
    fn layer_of(&self, index: u32) -> usize {
        self.ends.partition_point(|end| *end <= index)
    }

    /// Unpacks a write that has arrived, if it is a packed one.
    fn unpack(
        &mut self,
        write: (u32, u32),
        staging: Option<&Staging>,
        pool: &Pool,
    ) -> Result<(), &'static str> {
        let layer = self.layer_of(write.0);
        let (Some(unpack), Some(staging)) = (&mut self.unpack, staging) else { return Ok(()) };
        if self.begin.by_layer {
            unpack.enter(layer, writes_of(&self.ends, layer))?;
        }
        unpack.arrived(write, staging, pool)
    }

    /// Counts a write, or a read of a pull, that has arrived.
    pub(super) fn note(&mut self, index: u32) {
        let layer = self.layer_of(index);
        if let Some(left) = self.layers_left.get_mut(layer) {
            *left = left.saturating_sub(1);
        }
    }
}
