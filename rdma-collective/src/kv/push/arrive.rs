//! What decode says to prefill: grants, and confirmations.

use std::time::{Duration, Instant};

use super::{Granted, Pushes, Stage};
use crate::comm::Core;
use crate::comm::link::{Arrival, control};
use crate::kv::message::{self, Done, Grant, Piece};

impl Pushes {
    /// Sorts what the peer has sent.
    pub(super) fn take_arrivals(&mut self, core: &mut Core, now: Instant) -> Result<bool, &'static str> {
        let mut any = false;
        loop {
            let Some(lane) = self.link.lane(core) else { return Ok(any) };
            let Some(arrival) = lane.take() else { return Ok(any) };
            any = true;
            let Arrival::Control(received) = arrival else { return Err("an immediate to a source") };
            let epoch = self.link.name.epoch;
            let understood = match control::decode(received.bytes(), epoch) {
                Ok(told) => match told.kind {
                    message::GRANT => match Grant::read(told.body) {
                        Ok((grant, piece)) => self.granted(grant, piece, now),
                        Err(_) => Err("a grant that is malformed"),
                    },
                    message::DONE => match Done::read(told.body) {
                        Ok(done) => self.confirmed(done),
                        Err(_) => Err("a confirmation that is malformed"),
                    },
                    _ => Err("a control message that does not belong here"),
                },
                Err(_) => Err("a control message that is malformed"),
            };
            if let Some(lane) = self.link.lane(core) {
                lane.recycle(received);
            }
            understood?;
        }
    }

    fn granted(&mut self, grant: Grant, piece: Piece<'_>, now: Instant) -> Result<(), &'static str> {
        let Some(place) = self.grants.get_mut(usize::from(grant.transfer)) else {
            return Err("a transfer slot");
        };
        let blocks = self.link.theirs.shape().blocks;
        if piece.total == 0 || piece.total > blocks {
            return Err("a grant of no blocks, or of more than there are");
        }
        if piece.first == 0 && place.is_none() {
            let expires = now.checked_add(Duration::from_millis(grant.time_to_live_ms.into()));
            // Not reserved in advance: how long it will be is the peer's word.
            *place = Some(Granted { grant, blocks: Vec::new(), total: piece.total, expires });
        }
        match place {
            Some(granted)
                if granted.grant == grant
                    && granted.total == piece.total
                    && granted.blocks.len() == piece.first as usize =>
            {
                granted.blocks.extend(piece.numbers());
                Ok(())
            }
            _ => Err("a grant in a slot that is in use, or out of order"),
        }
    }

    fn confirmed(&mut self, done: Done) -> Result<(), &'static str> {
        for state in self.pushes.iter_mut().flatten() {
            let lease = state.hold.lease_id();
            if let Stage::Begun { grant, confirmed, all_posted: Some(_), .. } = &mut state.stage
                && *grant == done.grant
                && lease == done.lease
                && confirmed.is_none()
            {
                *confirmed = Some(done);
                return Ok(());
            }
        }
        Err("a confirmation of nothing")
    }
}
