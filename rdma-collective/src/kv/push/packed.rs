//! Packed writes: short pieces go into a slot of this side's staging memory, and from there in one write; pieces that
//! are scattered at decode go into a slot there, which decode unpacks.
//!
//! This file owns the slots: those of this side are used in turn, and a push has some of decode's until decode has
//! unpacked all that it has posted.

use rdma_core::{AttachedRange, RemoteMemory};

use super::Pushes;
use super::post::Posting;
use crate::kv::message::{Begin, StagingAt, Unpacked};
use crate::kv::plan::{End, Write};
use crate::kv::staging::{SLOT_BYTES, SLOTS, Slots};

/// The slots that pushes use.
#[derive(Debug)]
pub(super) struct Packing {
    /// Staging memory of decode, once decode has said where it is.
    there: Option<RemoteMemory>,
    /// Slots of decode that no push has.
    free: Slots,
    /// By push: its slots of decode.
    taken: Vec<Taken>,
    /// Slots of this side that were used so far, and those of them that may be used again.
    packed: u64,
    sent: u64,
}

/// The slots of decode that one push has.
#[derive(Debug)]
struct Taken {
    grant: u64,
    slots: Slots,
    /// Packed writes that were posted, and those of them that decode has unpacked.
    posted: u32,
    unpacked: u32,
    /// Whether more may be posted.
    open: bool,
}

impl Taken {
    /// Whether decode has emptied one of the slots.
    fn has_room(&self) -> bool {
        self.posted - self.unpacked < self.slots.count()
    }
}

/// Both ends of a write, or the reason why it is not posted now.
pub(super) enum Place {
    At(AttachedRange, RemoteMemory),
    /// A slot has to be free first.
    Later,
    /// The plan does not fit the pools, which cannot be.
    Nowhere,
}

impl Packing {
    pub(super) fn new() -> Self {
        Self { there: None, free: Slots::ALL, taken: Vec::new(), packed: 0, sent: 0 }
    }

    /// Whether decode unpacks.
    pub(super) fn unpacks(&self) -> bool {
        self.there.is_some()
    }

    /// Takes slots of decode for a push; `None` when others have all of them. A push that goes layer by layer has few,
    /// because it keeps them while it waits for its layers.
    pub(super) fn take(&mut self, begin: &Begin) -> Option<Slots> {
        let (grant, (most, share)) = (begin.grant, if begin.by_layer { (2, 8) } else { (8, 2) });
        let slots = self.free.take(most, share)?;
        self.taken.push(Taken { grant, slots, posted: 0, unpacked: 0, open: true });
        Some(slots)
    }

    /// Notes that a packed write of this side is done, so that its slot may be used again.
    pub(super) fn sent(&mut self) {
        self.sent += 1;
    }

    /// Notes that a push posts nothing more. Its slots come back once decode has unpacked what it has posted.
    pub(super) fn close(&mut self, grant: u64) {
        self.taken.iter_mut().filter(|taken| taken.grant == grant).for_each(|taken| taken.open = false);
        self.reap();
    }

    /// Notes that decode has unpacked all writes of a push, whatever became of the push here. One that may still post
    /// ends by [`close`](Self::close).
    pub(super) fn done(&mut self, grant: u64) {
        for taken in self.taken.iter_mut().filter(|taken| taken.grant == grant && !taken.open) {
            taken.unpacked = taken.posted;
        }
        self.reap();
    }

    fn reap(&mut self) {
        let Self { free, taken, .. } = self;
        taken.retain(|taken| {
            let used = taken.open || taken.unpacked < taken.posted;
            if !used {
                free.give_back(taken.slots);
            }
            used
        });
    }

    /// The slot of decode for the next packed write of a push; `None` while all of its slots are in use.
    fn next(&mut self, grant: u64) -> Option<u32> {
        let taken = self.taken.iter_mut().find(|taken| taken.grant == grant)?;
        if !taken.has_room() {
            return None;
        }
        taken.posted += 1;
        taken.slots.of(taken.posted - 1)
    }

    /// Whether a write can have the slots that it needs now.
    fn has_room(&self, grant: u64, write: Write) -> bool {
        let here = write.source != End::Staging || self.packed - self.sent < u64::from(SLOTS);
        let of = self.taken.iter().find(|taken| taken.grant == grant);
        let there = write.destination != End::Staging || of.is_some_and(Taken::has_room);
        here && there
    }
}

impl Pushes {
    /// Both ends of the next write of a push. Pieces are packed here.
    pub(super) fn place(&mut self, posting: &Posting, write: Write) -> Place {
        let grant = posting.grant();
        if !self.packing.has_room(grant, write) {
            return Place::Later;
        }
        let to = match write.destination {
            End::Pool(offset) => {
                let pool = posting.memory().or(self.link.remote.as_ref());
                pool.and_then(|pool| pool.slice(offset, write.len).ok())
            }
            End::Staging => {
                let slot = self.packing.next(grant);
                let start = slot.map(|slot| u64::from(slot) * u64::from(SLOT_BYTES));
                let within = start.filter(|_| write.len <= SLOT_BYTES.into()).zip(self.packing.there);
                within.and_then(|(start, there)| there.slice(start..start + write.len).ok())
            }
        };
        let from = match (write.source, &self.link.staging) {
            (End::Pool(offset), _) => self.source.range(offset, write.len),
            (End::Staging, Some(staging)) if write.len <= SLOT_BYTES.into() => {
                let slot = (self.packing.packed % u64::from(SLOTS)) as u32;
                self.packing.packed += 1;
                let packed = staging.pack(&self.pool, slot, posting.parts());
                packed.ok().map(|()| staging.range(slot, write.len))
            }
            (End::Staging, _) => None,
        };
        match (from, to) {
            (Some(from), Some(to)) => Place::At(from, to),
            _ => Place::Nowhere,
        }
    }

    /// Handles STAGING: where decode has its slots.
    pub(super) fn staging_at(&mut self, at: StagingAt) -> Result<(), &'static str> {
        let len = u64::from(SLOTS * SLOT_BYTES);
        if self.packing.there.is_some() || self.grants_seen > 0 || at.addr.checked_add(len).is_none() {
            return Err("staging memory that is told twice, too late or wrongly");
        }
        let rkey = rdma_core::RemoteKey(at.rkey);
        // Without short pieces on this side nothing is packed, and decode need not unpack.
        self.packing.there = self.link.staging.as_ref().map(|_| RemoteMemory { addr: at.addr, len, rkey });
        Ok(())
    }

    /// Handles UNPACKED: decode has emptied slots.
    pub(super) fn unpacked(&mut self, unpacked: Unpacked) -> Result<(), &'static str> {
        if unpacked.grant > self.grants_seen {
            return Err("unpacked writes of a grant that was not made");
        }
        // The slots of a confirmed push have come back already.
        let Some(taken) = self.packing.taken.iter_mut().find(|taken| taken.grant == unpacked.grant) else {
            return Ok(());
        };
        if !(taken.unpacked..=taken.posted).contains(&unpacked.writes) {
            return Err("more unpacked writes than were posted");
        }
        taken.unpacked = unpacked.writes;
        self.packing.reap();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(grant: u64) -> Begin {
        let (lease, writes, write_bytes_max, pack_bytes) = (grant, 9, 1 << 20, 4096);
        Begin {
            grant,
            lease,
            writes,
            write_bytes_max,
            pack_bytes,
            slots: 0,
            by_layer: false,
            tokens: false,
            note: false,
        }
    }

    /// A push with two writes that decode has not unpacked, given up.
    fn given_up() -> Packing {
        let mut packing = Packing::new();
        let slots = packing.take(&begin(1)).unwrap();
        assert_eq!([packing.next(1), packing.next(1)], [slots.of(0), slots.of(1)]);
        packing.close(1);
        assert!(!slots.has(packing.free) && !packing.free.has(slots), "decode may still read them");
        packing
    }

    #[test]
    fn slots_of_a_push_that_was_given_up_come_back_when_decode_has_all_of_it() {
        let mut packing = given_up();
        packing.done(2);
        assert_ne!(packing.free, Slots::ALL, "another push was confirmed");
        packing.done(1);
        assert_eq!(packing.free, Slots::ALL);
    }

    #[test]
    fn slots_of_a_push_that_posts_still_are_not_given_away_by_its_confirmation() {
        let mut packing = Packing::new();
        let _ = packing.take(&begin(1));
        packing.next(1);
        packing.done(1);
        assert_ne!(packing.free, Slots::ALL);
        packing.close(1);
        packing.done(1);
        assert_eq!(packing.free, Slots::ALL);
    }

    #[test]
    fn a_push_whose_writes_were_not_posted_leaves_its_slots_at_once() {
        let mut packing = Packing::new();
        let _ = packing.take(&begin(1));
        packing.close(1);
        assert_eq!(packing.free, Slots::ALL);
    }
}
