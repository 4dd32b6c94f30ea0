//! The end of one lane of a link while the link goes on: which messages are sent again, and when.
//!
//! A late write of a dead lane must not land in a slot that was given out anew. So nothing is sent again before the
//! receiver has fenced its end. Each end then tells the other, over a lane that lives, how many messages of the dead
//! lane have arrived. A lane delivers in order, so the last ones have not; the sender sends exactly these again.
//! Meanwhile the link sends nothing else, so that control messages stay in order.
//!
//! This file has no I/O: [`Wires`] does what it decides.

use std::collections::VecDeque;

/// The life of a lane within its link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    /// The lane carries messages.
    Open,
    /// The lane has failed here, and this end has to be fenced.
    Failed,
    /// This end is fenced.
    Fenced,
    /// The peer's end is fenced and had taken so many messages; this end has to be fenced.
    PeerFenced { taken: u64 },
    /// Both ends are fenced. The messages behind the first `taken` ones have to be sent again.
    BothFenced { taken: u64 },
    /// All that had not arrived was handed to other lanes.
    Over,
}

/// An event in the life of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// The lane has failed at this end.
    Failed,
    /// This end is fenced.
    Fenced,
    /// The peer tells that its end is fenced, and how many messages it had taken.
    PeerFenced(u64),
    /// All that had not arrived was handed to other lanes.
    Repeated,
}

impl Life {
    /// The life after an event; `None` if the event cannot be.
    pub(super) fn after(self, event: Event) -> Option<Self> {
        Some(match (self, event) {
            (Self::Open, Event::Failed) => Self::Failed,
            (Self::Open | Self::Failed, Event::PeerFenced(taken)) => Self::PeerFenced { taken },
            (Self::Failed, Event::Fenced) => Self::Fenced,
            (Self::Fenced, Event::PeerFenced(taken)) | (Self::PeerFenced { taken }, Event::Fenced) => {
                Self::BothFenced { taken }
            }
            (Self::BothFenced { .. }, Event::Repeated) => Self::Over,
            // The peer tells again what it told over a lane that has died since.
            (Self::PeerFenced { taken } | Self::BothFenced { taken }, Event::PeerFenced(again))
                if taken == again =>
            {
                self
            }
            (Self::Over, Event::PeerFenced(_)) => self,
            _ => return None,
        })
    }
}

/// A lane of the link, by what this end knows.
#[derive(Debug, Clone, Copy)]
struct LaneEnd {
    life: Life,
    /// The lane by which the peer was told that this end is fenced.
    told_by: Option<usize>,
    /// Messages that this end had taken when it was fenced.
    taken: u64,
}

/// The lanes of one end of a link, by number, and what has to be sent again.
#[derive(Debug)]
pub(super) struct Failover<T> {
    lanes: Vec<LaneEnd>,
    /// Messages of dead lanes that wait for room, in order.
    backlog: VecDeque<T>,
}

/// The lanes of one end of a link, by number, as its failover uses them.
pub(super) trait Wires {
    /// A message.
    type Item;
    type Error;

    /// Fences this end of a lane. All that has arrived on the lane can be taken afterwards.
    fn fence(&mut self, lane: usize) -> Result<(), Self::Error>;

    /// The number of messages that were taken from a fenced lane.
    fn taken(&mut self, lane: usize) -> u64;

    /// Tells the peer over `carrier` that this end of `lane` is fenced; `false` if there is no room now.
    fn tell(&mut self, carrier: usize, lane: usize, taken: u64) -> bool;

    /// The number of messages that were sent over a fenced lane, and those that are not known to have arrived, in
    /// order. The lane is dropped.
    fn unsent(&mut self, lane: usize) -> (u64, Vec<Self::Item>);

    /// Frees a message that has arrived.
    fn free(&mut self, item: Self::Item);

    /// Sends a message again over `carrier`; gives it back if there is no room now.
    fn repeat(&mut self, carrier: usize, item: Self::Item) -> Result<(), Self::Item>;
}

/// The error of a peer that tells of more or fewer messages than can have arrived.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WrongCount;

impl<T> Failover<T> {
    pub(super) fn new(lanes: usize) -> Self {
        let open = LaneEnd { life: Life::Open, told_by: None, taken: 0 };
        Self { lanes: vec![open; lanes], backlog: VecDeque::new() }
    }

    /// The lanes that carry messages, by number.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lanes.len()).filter(|lane| self.lanes[*lane].life == Life::Open)
    }

    /// Whether nothing is to be done, so that the link may send.
    pub(super) fn is_settled(&self) -> bool {
        let settled = |end: &LaneEnd| match end.life {
            Life::Open => true,
            life => life == Life::Over && end.told_by.is_some(),
        };
        self.backlog.is_empty() && self.lanes.iter().all(settled)
    }

    /// Whether a lane has to be fenced.
    pub(super) fn has_to_fence(&self) -> bool {
        self.lanes.iter().any(|end| matches!(end.life, Life::Failed | Life::PeerFenced { .. }))
    }

    /// Takes an event of a lane; `false` if it cannot be.
    pub(super) fn take(&mut self, lane: usize, event: Event) -> bool {
        let Some(end) = self.lanes.get_mut(lane) else { return false };
        let Some(life) = end.life.after(event) else { return false };
        let dies = end.life == Life::Open;
        end.life = life;
        if dies {
            // News that went over this lane may not have arrived.
            let told = self.lanes.iter_mut().filter(|end| end.told_by == Some(lane));
            told.for_each(|end| end.told_by = None);
        }
        true
    }

    /// Fences the ends that have to be. Must be followed by taking all that has arrived on these lanes, and then by
    /// [`mend`](Self::mend).
    pub(super) fn fence<W: Wires<Item = T>>(&mut self, wires: &mut W) -> Result<(), W::Error> {
        for lane in 0..self.lanes.len() {
            if matches!(self.lanes[lane].life, Life::Failed | Life::PeerFenced { .. }) {
                wires.fence(lane)?;
                self.take(lane, Event::Fenced);
            }
        }
        Ok(())
    }

    /// Tells the peer of fenced ends, and sends again what has not arrived, as far as there is room.
    pub(super) fn mend<W: Wires<Item = T>>(&mut self, wires: &mut W) -> Result<(), WrongCount> {
        // Without an open lane the link ends.
        let Some(carrier) = self.open().next() else { return Ok(()) };
        for lane in 0..self.lanes.len() {
            let end = &mut self.lanes[lane];
            if !matches!(end.life, Life::Fenced | Life::BothFenced { .. } | Life::Over) {
                continue;
            }
            if end.life != Life::Over {
                end.taken = wires.taken(lane);
            }
            if end.told_by.is_none() && wires.tell(carrier, lane, end.taken) {
                end.told_by = Some(carrier);
            }
            if let Life::BothFenced { taken } = end.life {
                self.hand_over(wires, lane, taken)?;
            }
        }
        // A lane that is not over yet may have carried what is older than the backlog.
        if self.lanes.iter().any(|end| !matches!(end.life, Life::Open | Life::Over)) {
            return Ok(());
        }
        while let Some(item) = self.backlog.pop_front() {
            if let Err(item) = wires.repeat(carrier, item) {
                self.backlog.push_front(item);
                break;
            }
        }
        Ok(())
    }

    /// Hands over the messages of a lane of which the peer has taken the first `taken` ones.
    fn hand_over<W: Wires<Item = T>>(
        &mut self,
        wires: &mut W,
        lane: usize,
        taken: u64,
    ) -> Result<(), WrongCount> {
        let (sent, mut unsent) = wires.unsent(lane);
        self.take(lane, Event::Repeated);
        let lost = sent.checked_sub(taken).ok_or(WrongCount)?;
        let arrived = (unsent.len() as u64).checked_sub(lost).ok_or(WrongCount)?;
        // The cast keeps the value: it is at most the length of a vector.
        let lost = unsent.split_off(arrived as usize);
        unsent.into_iter().for_each(|item| wires.free(item));
        // In front: what a lane has carried is older than what has waited for room on it.
        for item in lost.into_iter().rev() {
            self.backlog.push_front(item);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
