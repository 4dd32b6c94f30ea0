//! Packed writes: prefill has written pieces into a slot of this side's staging memory, and they are copied from there
//! to their places in the pool when the write has arrived, so that the slot can be used again.
//!
//! Both ends number packed writes in the order in which prefill posts them, because the number tells the slot. A push
//! that goes layer by layer posts whole layers in an order that decode does not know before they come. So the first
//! write of a layer says which layer is next, because a lane, which is a reliable connection, completes receives in
//! posting order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::Receives;
use super::state::State;
use crate::engine::EngineState;
use crate::kv::message::{self, StagingAt, Unpacked};
use crate::kv::plan::{End, Plan, Run, Stream};
use crate::kv::pool::Pool;
use crate::kv::staging::{Slots, Staging};

/// The packed writes of one grant.
#[derive(Debug)]
pub(super) struct Unpack {
    pub(super) slots: Slots,
    plan: Arc<Plan>,
    /// The layers whose first writes have arrived, if they come layer by layer.
    begun: Vec<usize>,
    /// Writes of the layer that came last, or of all if they do not come layer by layer.
    stream: Stream,
    /// Indices of the writes that the stream has not given.
    ahead: Range<u32>,
    /// Packed writes that were given.
    numbered: u32,
    /// Packed writes that were given and have not arrived, by number.
    waiting: VecDeque<PackedWrite>,
    /// Packed writes that prefill knows to be unpacked.
    told: u32,
}

#[derive(Debug)]
struct PackedWrite {
    index: u32,
    number: u32,
    len: u64,
    runs: Vec<Run>,
}

impl Unpack {
    /// Packed writes of a plan that has `writes` in all, of none yet if they come layer by layer.
    pub(super) fn new(slots: Slots, plan: &Arc<Plan>, writes: u32, by_layer: bool) -> Self {
        let ahead = if by_layer { 0..0 } else { 0..writes };
        let (plan, stream) = (Arc::clone(plan), plan.stream());
        Self { slots, plan, begun: Vec::new(), stream, ahead, numbered: 0, waiting: VecDeque::new(), told: 0 }
    }

    /// Goes to a layer with these writes, a write of which has arrived.
    pub(super) fn enter(&mut self, layer: usize, writes: Range<u32>) -> Result<(), &'static str> {
        if self.begun.contains(&layer) {
            return Ok(());
        }
        // Prefill posts whole layers. Otherwise this side would not know the numbers of its packed writes.
        if !self.ahead.is_empty() {
            return Err("a write of another layer before the last write of a layer");
        }
        self.begun.push(layer);
        self.stream = self.plan.stream_layer(layer as u32);
        self.ahead = writes;
        Ok(())
    }

    /// Unpacks write `index` of `bytes`, which has arrived, if it is a packed one.
    pub(super) fn arrived(
        &mut self,
        (index, bytes): (u32, u32),
        staging: &Staging,
        pool: &Pool,
    ) -> Result<(), &'static str> {
        while self.ahead.contains(&index) {
            let write = self.stream.next().ok_or("a write that was not announced")?;
            if write.destination == End::Staging {
                // Prefill waits for a slot before it posts more.
                if self.waiting.len() >= self.slots.count() as usize {
                    return Err("a packed write before its slot was free");
                }
                let (index, number, len) = (self.ahead.start, self.numbered, write.len);
                let runs = self.stream.parts().to_vec();
                self.waiting.push_back(PackedWrite { index, number, len, runs });
                self.numbered += 1;
            }
            self.ahead.start += 1;
        }
        let at = self.waiting.iter().position(|packed| packed.index == index);
        let Some(packed) = at.and_then(|at| self.waiting.remove(at)) else { return Ok(()) };
        if packed.len != u64::from(bytes) {
            return Err("a packed write of another length than was planned");
        }
        let slot = self.slots.of(packed.number).ok_or("a packed write without a slot")?;
        staging.unpack(pool, slot, &packed.runs).map_err(|_| "a packed write outside the pool")
    }

    /// Number of packed writes, from the first on, that were unpacked.
    fn unpacked(&self) -> u32 {
        self.waiting.front().map_or(self.numbered, |packed| packed.number)
    }
}

impl State {
    /// The slots that may be used again, which prefill was not told of yet. The rest is told when no more comes.
    pub(super) fn to_tell(&self, all: bool) -> Option<Unpacked> {
        let unpack = self.begin.as_ref()?.unpack.as_ref()?;
        let writes = unpack.unpacked();
        let enough = if all { 1 } else { unpack.slots.count().div_ceil(2) };
        (writes - unpack.told >= enough).then_some(Unpacked { grant: self.grant.grant, writes })
    }
}

impl Receives {
    /// Tells prefill where the slots are. Returns whether that is done, or there are none.
    pub(super) fn send_staging(&mut self, core: &mut EngineState) -> bool {
        let Some(staging) = self.link.staging.as_ref().filter(|_| !self.told_staging) else { return true };
        let remote = staging.remote();
        let at = StagingAt { addr: remote.addr, rkey: remote.rkey.0 };
        self.told_staging = self.link.send(core, message::STAGING, |body| at.write(body));
        self.told_staging
    }

    /// Tells prefill which slots may be used again.
    pub(super) fn send_unpacked(&mut self, core: &mut EngineState) {
        while let Some(unpacked) = self.unpacked.front() {
            if !self.link.send(core, message::UNPACKED, |body| unpacked.write(body)) {
                return;
            }
            self.unpacked.pop_front();
        }
        for state in self.grants.iter_mut().flatten().filter(|state| state.is_open()) {
            let Some(unpacked) = state.to_tell(false) else { continue };
            if !self.link.send(core, message::UNPACKED, |body| unpacked.write(body)) {
                return;
            }
            if let Some(unpack) = state.begin.as_mut().and_then(|begun| begun.unpack.as_mut()) {
                unpack.told = unpacked.writes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::LinkOptions;
    use crate::kv::plan::{Count, PlanOptions, writes_of};
    use crate::kv::tests::{SHAPE, pair_of};

    /// The packed writes of a push that goes layer by layer, two in each of two layers; with their lengths, and the
    /// indices of each layer.
    fn unpack(plan: &Arc<Plan>) -> (Unpack, Vec<u32>, [Range<u32>; 2]) {
        let Count { writes, ends, unpacked } = plan.count(99);
        let lengths: Vec<u32> = plan.stream().map(|write| write.len as u32).collect();
        assert!(lengths.len() == 4 && unpacked == 4, "{lengths:?}");
        (Unpack::new(Slots(0b11), plan, writes, true), lengths, [0, 1].map(|layer| writes_of(&ends, layer)))
    }

    #[test]
    fn layers_come_in_any_order_and_each_of_them_whole() {
        let (_prefill, decode) = pair_of(SHAPE, LinkOptions::default());
        let shared = decode.shared().lock();
        let (staging, pool) = (shared.link.staging.as_ref().unwrap(), &shared.pool);
        let options = PlanOptions { write_bytes_max: 64, by_layer: true, ..PlanOptions::default() };
        let plan = Plan::new(&shared.link.route, [&[0, 1, 2, 3], &[2, 0, 3, 1]], &options).unwrap();

        let (mut whole, lengths, of) = unpack(&plan);
        for layer in [1, 0] {
            for index in of[layer].clone() {
                whole.enter(layer, of[layer].clone()).unwrap();
                whole.arrived((index, lengths[index as usize]), staging, pool).unwrap();
            }
        }
        assert_eq!(whole.unpacked(), 4);

        // The second write of the layer has not come, so the number of the next one is not known.
        let (mut part, ..) = unpack(&plan);
        part.enter(1, of[1].clone()).unwrap();
        part.arrived((of[1].start, lengths[of[1].start as usize]), staging, pool).unwrap();
        let breach = part.enter(0, of[0].clone()).unwrap_err();
        assert!(breach.contains("before the last write of a layer"), "{breach}");

        // Both slots are in use: the first write of the one layer has not come, and neither has that of the other.
        let (mut early, ..) = unpack(&plan);
        let last = of[0].end - 1;
        early.enter(0, of[0].clone()).unwrap();
        early.arrived((last, lengths[last as usize]), staging, pool).unwrap();
        early.enter(1, of[1].clone()).unwrap();
        let last = of[1].end - 1;
        let breach = early.arrived((last, lengths[last as usize]), staging, pool).unwrap_err();
        assert!(breach.contains("before its slot was free"), "{breach}");
    }
}
