//! Posting what lanes have queued, and keeping books on the lanes that were used since.
//!
//! Whoever gets a lane to change *touches* it ([`EngineState::lane`] does). The next flush looks at the touched lanes
//! alone: it posts, notes the lanes that have ended, and moves their next sign of life. So lanes at rest cost nothing.

use std::time::Instant;

use super::EngineState;
use super::alive::Alive;
use super::deadlines::Deadlines;
use super::state::LaneSlot;
use crate::link::Lane;

impl EngineState {
    /// Has the next flush look at a lane.
    pub(super) fn touch(&mut self, index: usize) {
        if let Some(entry) = self.lanes.get_mut(index) {
            entry.touch(index, &mut self.touched);
        }
    }

    /// Posts all requests that the lanes have queued, with one doorbell for each lane.
    pub(crate) fn flush(&mut self) {
        while self.flush_slice() {}
    }

    /// Posts requests that the lanes have queued, and returns whether some are left. The software device copies as it
    /// posts: then only so many bytes are posted at a time, and the caller releases the lock before it posts the rest.
    pub(crate) fn flush_slice(&mut self) -> bool {
        let Self { rails, lanes, touched, alive, slice, services, signs, news, .. } = self;
        let mut budget = *slice;
        touched.retain(|&index| {
            let Some(entry) = lanes.get_mut(index) else { return false };
            entry.is_touched = false;
            if let LaneSlot::Open(lane) = &mut entry.slot {
                let rail = rails.get_mut(lane.rail());
                entry.is_touched =
                    rail.is_some_and(|rail| lane.flush(&mut rail.worker, alive.driven, &mut budget));
                if lane.settle() {
                    news.note();
                    entry.service.into_iter().for_each(|service| services.call(service));
                }
                alive.expect(signs, index, lane, alive.driven);
            }
            entry.is_touched
        });
        // Lanes take turns, so that a busy one does not keep the others waiting.
        if !touched.is_empty() {
            touched.rotate_left(1);
        }
        !touched.is_empty()
    }

    /// Whether posting what is queued takes no longer than a call may.
    pub(crate) fn flushes_at_once(&self) -> bool {
        let queued = |index: &usize| match self.lanes.get(*index).map(|entry| &entry.slot) {
            Some(LaneSlot::Open(lane)) => lane.queued_bytes(),
            _ => 0,
        };
        self.touched.iter().map(queued).sum::<u64>() <= self.slice / 4
    }
}

impl Alive {
    /// Notes when a lane has to be looked at for its next sign of life. A later time than the known one is noted only
    /// when that has passed, because messages put it off all the time.
    pub(super) fn expect(&self, signs: &mut Deadlines, index: usize, lane: &Lane, now: Instant) {
        let next = lane.next_sign(self.heartbeat, self.patience);
        let known = signs.get(index);
        if known.is_none_or(|known| known <= now || next.is_none_or(|next| next < known)) {
            signs.set(index, next);
        }
    }
}
