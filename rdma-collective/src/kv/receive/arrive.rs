//! What prefill says to decode: what it writes, each write that landed, and sums.

use std::sync::Arc;
use std::time::Instant;

use super::{Begun, Receives, Stage, State};
use crate::comm::Core;
use crate::comm::link::imm::{Imm, WRITES_MAX};
use crate::comm::link::{Arrival, control};
use crate::error::{KvError, TransferError};
use crate::kv::layout::Layout;
use crate::kv::message::{self, Begin, Piece, Refuse};
use crate::kv::plan::{BlockPair, BlockPlan};
use crate::kv::verdict::{BlockVerdict, Verdicts};

impl Receives {
    pub(super) fn take_arrivals(&mut self, core: &mut Core, now: Instant) -> Result<bool, &'static str> {
        let mut any = false;
        loop {
            let Some(lane) = self.link.lane(core) else { return Ok(any) };
            let Some(arrival) = lane.take() else { return Ok(any) };
            any = true;
            match arrival {
                Arrival::Imm(Imm::Block { transfer, index }, bytes) => {
                    self.landed(transfer, index, bytes, now)?
                }
                Arrival::Imm(..) => return Err("an immediate that does not belong here"),
                Arrival::Control(received) => {
                    let epoch = self.link.name.epoch;
                    let understood = match control::decode(received.bytes(), epoch) {
                        Ok(told) => self.told(core, told, now),
                        Err(_) => Err("a control message that is malformed"),
                    };
                    if let Some(lane) = self.link.lane(core) {
                        lane.recycle(received);
                    }
                    understood?;
                }
            }
        }
    }

    fn landed(&mut self, transfer: u8, index: u32, bytes: u32, now: Instant) -> Result<(), &'static str> {
        let state = self.grants.get_mut(usize::from(transfer)).and_then(Option::as_mut);
        let Some(state) = state.filter(|state| matches!(state.stage, Stage::Filling)) else {
            return Err("a block of no transfer");
        };
        if !state.arrived.note(index) {
            return Err("a block that has arrived before, or was not announced");
        }
        state.bytes_arrived += u64::from(bytes);
        state.latest = now;
        Ok(())
    }

    fn told(
        &mut self,
        core: &mut Core,
        told: control::Control<'_>,
        now: Instant,
    ) -> Result<(), &'static str> {
        match told.kind {
            message::BEGIN => {
                let (begin, piece) = Begin::read(told.body).map_err(|_| "a beginning that is malformed")?;
                let layouts = (self.link.theirs, *self.pool.layout());
                self.filling(begin.grant)?.begins(begin, piece, layouts, now)
            }
            message::CHECKSUMS => {
                let read = message::read_checksums(told.body);
                let (grant, piece) = read.map_err(|_| "checksums that are malformed")?;
                let layers = self.pool.layout().shape().layers;
                let wanted = self.checksums;
                self.filling(grant)?.sums(piece, layers, wanted)
            }
            message::REFUSE => {
                let refuse = Refuse::read(told.body).map_err(|_| "a refusal that is malformed")?;
                let layers = self.pool.layout().shape().layers;
                self.filling(refuse.grant)?.refused(refuse, layers)?;
                if let Some(lane) = self.link.lane(core) {
                    lane.unwatch();
                }
                self.grants.iter_mut().for_each(|place| {
                    place.take_if(|state| state.abandoned && matches!(state.stage, Stage::Ended(_)));
                });
                Ok(())
            }
            _ => Err("a control message that does not belong here"),
        }
    }

    fn filling(&mut self, grant: u64) -> Result<&mut State, &'static str> {
        let state = self.place(grant).and_then(Option::as_mut);
        state.filter(|state| matches!(state.stage, Stage::Filling)).ok_or("a message about no grant")
    }
}

impl State {
    /// What the peer writes from, piece by piece; from the last one on the writes that are to come are known.
    fn begins(
        &mut self,
        begin: Begin,
        piece: Piece<'_>,
        (theirs, ours): (Layout, Layout),
        now: Instant,
    ) -> Result<(), &'static str> {
        let blocks = self.hold.blocks();
        if piece.total as usize != blocks.len() || self.told < blocks.len() {
            return Err("a beginning with another number of blocks than were granted");
        }
        let begun =
            self.begin.get_or_insert_with(|| Begun { begin, sources: Vec::new(), at: now, plan: None });
        if begun.begin != begin || begun.sources.len() != piece.first as usize {
            return Err("a beginning out of order");
        }
        begun.sources.extend(piece.numbers());
        if begun.sources.len() < blocks.len() {
            return Ok(());
        }
        let pairs = begun.sources.iter().zip(blocks);
        let pairs: Vec<_> = pairs.map(|(&source, &destination)| BlockPair { source, destination }).collect();
        let plan = BlockPlan::new(theirs, ours, &pairs, begin.write_bytes_max);
        let plan = Arc::new(plan.map_err(|_| "source blocks that cannot be")?);
        let writes = Arc::clone(&plan).into_descriptors().take(WRITES_MAX as usize + 1).count() as u32;
        if writes != begin.writes || writes > WRITES_MAX || !self.arrived.announce(writes) {
            return Err("another number of writes than the blocks take");
        }
        begun.plan = Some(plan);
        Ok(())
    }

    fn sums(&mut self, piece: Piece<'_>, layers: u32, wanted: bool) -> Result<(), &'static str> {
        let total = u64::from(layers) * self.hold.blocks().len() as u64;
        if !wanted || u64::from(piece.total) != total || self.sums.len() != piece.first as usize {
            return Err("checksums that do not belong here");
        }
        self.sums.extend(piece.numbers());
        Ok(())
    }

    fn refused(&mut self, refuse: Refuse, layers: u32) -> Result<(), &'static str> {
        if self.begin.is_some() || self.arrived.count() > 0 {
            return Err("a refusal of what had begun");
        }
        let (request, granted) = (self.grant.request, self.hold.blocks().len() as u32);
        let cause = if refuse.blocks == granted {
            KvError::GrantRefused { request }
        } else {
            KvError::BlockCounts { request, source_blocks: refuse.blocks, granted }
        };
        let verdicts = Verdicts::new(layers, self.hold.blocks(), BlockVerdict::Missing);
        self.end(Err(TransferError { cause: Arc::new(cause), verdicts }));
        Ok(())
    }
}
