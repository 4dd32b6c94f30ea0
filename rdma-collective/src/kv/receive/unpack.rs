//! Packed writes: prefill has written pieces into a slot of this side's staging memory, and they are copied from there
//! to their places in the pool when the write has arrived, so that the slot can be used again.

use std::collections::VecDeque;

use super::Receives;
use super::state::State;
use crate::engine::EngineState;
use crate::kv::message::{self, StagingAt, Unpacked};
use crate::kv::plan::{End, Run, Stream};
use crate::kv::pool::Pool;
use crate::kv::staging::{Slots, Staging};

/// The packed writes of one grant.
#[derive(Debug)]
pub(super) struct Unpack {
    pub(super) slots: Slots,
    stream: Stream,
    /// Writes that the stream has given so far, and packed ones among them.
    seen: u32,
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
    pub(super) fn new(slots: Slots, stream: Stream) -> Self {
        Self { slots, stream, seen: 0, numbered: 0, waiting: VecDeque::new(), told: 0 }
    }

    /// Unpacks write `index` of `bytes`, which has arrived, if it is a packed one.
    pub(super) fn arrived(
        &mut self,
        (index, bytes): (u32, u32),
        staging: &Staging,
        pool: &Pool,
    ) -> Result<(), &'static str> {
        while self.seen <= index {
            let write = self.stream.next().ok_or("a write that was not announced")?;
            if write.destination == End::Staging {
                // Prefill waits for a slot before it posts more.
                if self.waiting.len() >= self.slots.count() as usize {
                    return Err("a packed write before its slot was free");
                }
                let (index, number, len) = (self.seen, self.numbered, write.len);
                let runs = self.stream.parts().to_vec();
                self.waiting.push_back(PackedWrite { index, number, len, runs });
                self.numbered += 1;
            }
            self.seen += 1;
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
