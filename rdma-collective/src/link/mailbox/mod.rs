//! The mailbox: a bounded row of slots, into which one peer writes messages for the other, in order.
//!
//! The receiver exports the slots. The sender writes message `n` into slot `n % slots`, and the immediate of that same
//! write announces it. The sender writes a slot again only after the receiver has given it back; otherwise it would
//! overwrite a message that is still being read.
//!
//! Each slot begins with room for a header, which some messages carry. The contents of the header, and the choice of
//! the lane for the messages, belong to the users of the mailbox.

use rdma_core::error::RangeError;
use rdma_core::memory::CacheHint;
use rdma_core::{Access, LocalBuf, Memory, Region, RemoteMemory};

use super::imm::{self, Imm, SLOTS_MAX};
use super::lane::Lane;
use super::rails::RangeOnRails;
use crate::engine::{Engine, SetupError};

/// Bytes of the header in front of each slot.
pub(crate) const HEADER_BYTES: usize = 64;

/// Bytes of the longest message whose slot is given back together with others: to tell the sender of each would cost as
/// much as the message.
pub(crate) const SHORT_BYTES_MAX: usize = 4 << 10;

/// The size of a mailbox. Both ends must use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) slots: u16,
    /// Bytes of a slot, header not counted.
    pub(crate) slot_bytes: usize,
}

impl Geometry {
    /// The distance between two slots, in bytes.
    fn stride(&self) -> usize {
        HEADER_BYTES + self.slot_bytes
    }

    /// The size of all slots with their headers, in bytes; `None` if the geometry is not allowed.
    pub(crate) fn bytes(&self) -> Option<usize> {
        let stride = self.slot_bytes.checked_add(HEADER_BYTES)?;
        (1..=SLOTS_MAX).contains(&self.slots).then(|| stride.checked_mul(self.slots.into()))?
    }

    /// The slot of message `number`.
    fn slot(&self, number: u64) -> u16 {
        (number % u64::from(self.slots)) as u16
    }

    /// The turn of message `number`: how often its slot was used before, modulo 2^16. It tells a message from an old
    /// one in the same slot.
    fn turn(&self, number: u64) -> u16 {
        (number / u64::from(self.slots)) as u16
    }
}

/// Opens this side's ends of a link: the end that sends, and the end that receives.
pub(crate) fn open(engine: &Engine, geometry: Geometry) -> Result<(Outbox, Inbox), SetupError> {
    let Geometry { slots, slot_bytes } = geometry;
    let bytes = geometry.bytes().ok_or(SetupError::Mailbox { slots, slot_bytes })?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let region = engine.register(Memory::allocate(bytes)?, rights).map_err(|refused| refused.error)?;
    Ok((Outbox::new(geometry, engine.alloc_local(bytes)?)?, Inbox::new(geometry, region)))
}

/// How a message was put.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// Copied into a buffer; the write began so many bytes behind the beginning of the slot.
    Copied { start: usize },
    /// Read by the device in registered memory, so many bytes.
    Range(RangeOnRails, usize),
}

/// The sender's end of a mailbox.
#[derive(Debug)]
pub(crate) struct Outbox {
    geometry: Geometry,
    /// Buffers that no write is using.
    buffers: Vec<LocalBuf>,
    /// The next message, if it was made before it could be put.
    staged: Option<LocalBuf>,
    /// Messages sent since the lane began.
    sent: u64,
    /// Messages that the receiver has given back.
    freed: u64,
    /// How the last message of each slot was put, in case its lane fails.
    kept: Box<[Kept]>,
    /// The number of messages from one that is signalled to the next one.
    signal_every: u64,
}

impl Outbox {
    /// Makes an end whose buffers, as many as there are slots, are parts of `rest`. Each lane knows
    /// [where](Lane::lead_to) the receiver's slots are.
    fn new(geometry: Geometry, mut rest: LocalBuf) -> Result<Self, SetupError> {
        let mut buffers = Vec::with_capacity(geometry.slots.into());
        for _ in 1..geometry.slots {
            let (buffer, tail) = rest.split_at(geometry.stride())?;
            buffers.push(buffer);
            rest = tail;
        }
        buffers.push(rest);
        let kept = vec![Kept::Copied { start: 0 }; geometry.slots.into()].into();
        // Buffers come back only with a completion, so half of them are always on the way.
        let signal_every = u64::from(geometry.slots / 2).max(1);
        Ok(Self { geometry, buffers, staged: None, sent: 0, freed: 0, kept, signal_every })
    }

    /// Checks that the receiver's slots have the size of this end's geometry.
    ///
    /// # Errors
    ///
    /// [`SetupError::Mailbox`] if they have not.
    pub(crate) fn check(&self, slots: RemoteMemory) -> Result<(), SetupError> {
        let Geometry { slots: count, slot_bytes } = self.geometry;
        let fits = self.geometry.bytes().is_some_and(|bytes| bytes as u64 == slots.len);
        if fits { Ok(()) } else { Err(SetupError::Mailbox { slots: count, slot_bytes }) }
    }

    /// The number of messages sent so far, which is the number of the next one.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Has every message signalled. Messages over several lanes need it, because the completion on one lane tells
    /// nothing of the others.
    pub(crate) fn signal_all(&mut self) {
        self.signal_every = 1;
    }

    /// Whether a message can be put on that lane now.
    pub(crate) fn is_ready(&self, lane: &Lane) -> bool {
        let has_buffer = self.staged.is_some() || !self.buffers.is_empty();
        self.sent - self.freed < self.geometry.slots.into() && has_buffer && lane.room() > 0
    }

    /// Takes back the buffers of completed writes.
    pub(crate) fn take_returned(&mut self, lane: &mut Lane) {
        while let Some(buffer) = lane.take_returned() {
            self.buffers.push(buffer);
        }
    }

    /// Takes the buffer in which the next message, of `len` bytes behind the header, can be made before it can be put;
    /// `None` while no buffer is free. Give it back with [`stage`](Self::stage).
    pub(crate) fn begin_stage(&mut self, len: usize) -> Option<LocalBuf> {
        let end = HEADER_BYTES + len;
        if end > self.geometry.stride() || self.staged.is_some() {
            return None;
        }
        let mut buffer = self.buffers.pop()?;
        buffer.reset_view();
        // The stride is the buffer's length, so that the view fits.
        buffer.set_view(0..end).ok().map(|()| buffer)
    }

    /// Makes a buffer of [`begin_stage`](Self::begin_stage) the next message.
    pub(crate) fn stage(&mut self, buffer: LocalBuf) {
        self.staged = Some(buffer);
    }

    /// Puts the message that was [staged](Self::stage). The caller must have checked [`is_ready`](Self::is_ready).
    pub(crate) fn put_staged(&mut self, lane: &mut Lane, header: Option<&[u8; HEADER_BYTES]>) -> bool {
        let Some(mut buffer) = self.staged.take() else { return false };
        if let Some(header) = header {
            buffer[..HEADER_BYTES].copy_from_slice(header);
        }
        let (first, end) = (if header.is_some() { 0 } else { HEADER_BYTES }, buffer.len());
        let at = self.geometry.stride() as u64 * u64::from(self.geometry.slot(self.sent));
        let Ok(to) = lane.slots().slice(at + first as u64..at + end as u64) else { return false };
        if buffer.set_view(first..end).is_err() {
            return false;
        }
        let (imm, signalled) = self.announce(Kept::Copied { start: first });
        lane.write_owned(buffer, to, imm, signalled);
        true
    }

    /// Puts one message of `len` bytes that `fill` writes. The caller must have checked [`is_ready`](Self::is_ready).
    ///
    /// Returns `false`, and puts nothing, if the message is longer than a slot.
    pub(crate) fn put_with(
        &mut self,
        lane: &mut Lane,
        header: Option<&[u8; HEADER_BYTES]>,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> bool {
        let Some(mut buffer) = self.begin_stage(len) else { return false };
        fill(&mut buffer[HEADER_BYTES..]);
        self.stage(buffer);
        self.put_staged(lane, header)
    }

    /// Puts `len` bytes of a registered range, without a header and without a copy; otherwise like
    /// [`put_with`](Self::put_with).
    ///
    /// The range must stay unchanged until the message has arrived, and registered until the write has completed. The
    /// write is signalled if it is the `last` of several, so that its completion tells of all.
    pub(crate) fn put_range(&mut self, lane: &mut Lane, range: RangeOnRails, len: usize, last: bool) -> bool {
        if len > self.geometry.slot_bytes {
            return false;
        }
        let at =
            self.geometry.stride() as u64 * u64::from(self.geometry.slot(self.sent)) + HEADER_BYTES as u64;
        let Ok(to) = lane.slots().slice(at..at + len as u64) else { return false };
        let (imm, signalled) = self.announce(Kept::Range(range, len));
        lane.write_range(range.on(lane.rail()), to, imm, CacheHint::Cached, signalled || last);
        true
    }

    /// Counts the next message, and returns the immediate that announces it and whether its write must be signalled.
    fn announce(&mut self, kept: Kept) -> (Imm, bool) {
        let slot = self.geometry.slot(self.sent);
        let imm = Imm::Message { slot, turn: self.geometry.turn(self.sent) };
        self.kept[usize::from(slot)] = kept;
        self.sent += 1;
        (imm, self.sent.is_multiple_of(self.signal_every))
    }

    /// Puts a message again that did not arrive: the lane that carried it has failed. A copied message comes with its
    /// `buffer`. Check [`room`](Lane::room) first.
    pub(crate) fn put_again(&mut self, lane: &mut Lane, imm: Imm, buffer: Option<LocalBuf>) {
        let Imm::Message { slot, .. } = imm else { return };
        // The slot was not given back, so this is still its last message.
        let Some(kept) = self.kept.get(usize::from(slot)) else { return };
        let place = self.geometry.stride() as u64 * u64::from(slot);
        let slots = lane.slots();
        let to = |start: usize, len: usize| {
            let at = place + start as u64;
            slots.slice(at..at + len as u64)
        };
        match (*kept, buffer) {
            (Kept::Copied { start }, Some(buffer)) => {
                if let Ok(to) = to(start, buffer.len()) {
                    lane.write_owned(buffer, to, imm, true);
                }
            }
            (Kept::Range(range, len), _) => {
                if let Ok(to) = to(HEADER_BYTES, len) {
                    lane.write_range(range.on(lane.rail()), to, imm, CacheHint::Cached, true);
                }
            }
            (Kept::Copied { .. }, None) => debug_assert!(false, "a copied message without its buffer"),
        }
    }

    /// Takes back the buffer of a message that has arrived.
    pub(crate) fn take_back(&mut self, buffer: LocalBuf) {
        self.buffers.push(buffer);
    }

    /// Notes that the receiver has given slots back; `false` if it gives back more than was sent.
    pub(crate) fn freed(&mut self, count: u32) -> bool {
        let ahead = imm::advanced(self.freed, count, self.sent - self.freed);
        self.freed += ahead.unwrap_or(0);
        ahead.is_some()
    }
}

/// The receiver's end of a mailbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    geometry: Geometry,
    region: Region,
    /// For each slot, the length in bytes of the message that has arrived and was not given back.
    arrived: Box<[Option<u32>]>,
    /// Messages given back since the lane began.
    given_back: u64,
    /// Messages of which the sender was told that they are given back.
    told: u64,
    /// Messages that have arrived and were not given back.
    held: u64,
}

impl Inbox {
    /// Makes an end whose slots are `region`.
    pub(crate) fn new(geometry: Geometry, region: Region) -> Self {
        Self {
            geometry,
            region,
            arrived: vec![None; geometry.slots.into()].into(),
            given_back: 0,
            told: 0,
            held: 0,
        }
    }

    /// The slots.
    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// The number of messages given back so far. Between operations that is the number of the next message.
    pub(crate) fn given_back(&self) -> u64 {
        self.given_back
    }

    /// Notes a message that an immediate has announced; `false` if no message can have come in that slot and turn.
    pub(crate) fn announce(&mut self, slot: u16, turn: u16, bytes: u32) -> bool {
        let Some(place) = self.arrived.get_mut(usize::from(slot)) else { return false };
        let slots = u64::from(self.geometry.slots);
        // At most `slots` messages are under way, so exactly one of them belongs in this slot.
        let ahead = (u64::from(slot) + slots - self.given_back % slots) % slots;
        let expected = self.geometry.turn(self.given_back + ahead);
        let first = place.is_none() && expected == turn;
        if first {
            *place = Some(bytes);
            self.held += 1;
        }
        first
    }

    /// The length of message `number` in bytes, once it has arrived.
    pub(crate) fn arrived(&self, number: u64) -> Option<usize> {
        let slot = self.geometry.slot(number);
        self.arrived.get(usize::from(slot)).copied().flatten().map(|bytes| bytes as usize)
    }

    /// Copies the header out of message `number`.
    pub(crate) fn header(&self, number: u64) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        self.copy(number, 0, &mut header);
        header
    }

    /// Copies data out of message `number`, beginning at `offset` behind the header.
    pub(crate) fn read(&self, number: u64, offset: usize, out: &mut [u8]) {
        self.copy(number, HEADER_BYTES + offset, out);
    }

    /// Copies `len` bytes out of message `number`, beginning at `offset` behind the header, to `start` of `target`.
    ///
    /// # Errors
    ///
    /// [`RangeError`] if one of the two ranges lies outside its memory.
    pub(crate) fn read_into(
        &self,
        number: u64,
        offset: usize,
        len: usize,
        (target, start): (&Region, usize),
    ) -> Result<(), RangeError> {
        self.region.copy_to(self.place(number) + HEADER_BYTES + offset, len, target, start)
    }

    /// The place of the data of message `number`, beginning at `offset` behind the header: a region, and the offset
    /// there.
    pub(crate) fn data(&self, number: u64, offset: usize) -> (&Region, usize) {
        (&self.region, self.place(number) + HEADER_BYTES + offset)
    }

    fn copy(&self, number: u64, at: usize, out: &mut [u8]) {
        let copied = self.region.copy_out(self.place(number) + at, out);
        debug_assert!(copied.is_ok(), "a read beyond the slots");
    }

    /// The offset of message `number`'s slot.
    fn place(&self, number: u64) -> usize {
        usize::from(self.geometry.slot(number)) * self.geometry.stride()
    }

    /// Whether the sender has to be told once all messages below `number` are given back.
    ///
    /// After [short messages](SHORT_BYTES_MAX), or if the news `may_wait`, it is told of many at a time; but at once
    /// when it has no slot left, because it may wait for one while this rank waits for others.
    pub(crate) fn has_to_tell(&self, number: u64, may_wait: bool) -> bool {
        let (slots, untold) = (u64::from(self.geometry.slots), number.saturating_sub(self.told));
        let is_out = self.given_back - self.told + self.held >= slots;
        let mut given_back = self.given_back..number;
        let mut any_long = || {
            given_back
                .any(|number| self.arrived(number).is_some_and(|len| len > HEADER_BYTES + SHORT_BYTES_MAX))
        };
        untold > 0 && (untold >= slots - slots / 4 || is_out || !may_wait && any_long())
    }

    /// Whether so many messages are given back untold that the next message to the sender should tell of them: beside
    /// another message the news cost little.
    pub(crate) fn should_tell(&self) -> bool {
        let untold = self.given_back - self.told;
        untold > 0 && untold >= u64::from(self.geometry.slots / 2)
    }

    /// Gives back all messages below `number`.
    pub(crate) fn give_back(&mut self, number: u64) {
        while self.given_back < number {
            let slot = usize::from(self.geometry.slot(self.given_back));
            self.arrived[slot] = None;
            self.given_back += 1;
            self.held = self.held.saturating_sub(1);
        }
    }

    /// The immediate that reports to the sender how many messages were given back.
    pub(crate) fn freed(&mut self) -> Imm {
        self.told = self.given_back;
        Imm::Freed { count: self.given_back as u32 & imm::COUNT_MASK }
    }
}

#[cfg(test)]
mod tests;
