//! Taking a step of an operation over links: whether that can be done now, and what it does.
//!
//! A step that has to wait has changed nothing, and is taken again later.

use super::ExecContext;
use super::memory::StepMemory;
use super::strand::Strand;
use crate::collective::communicator::{Link, Links};
use crate::collective::execute::buffers::Buffers;
use crate::collective::execute::stop::Stop;
use crate::collective::schedule::{Buffer, Extent, Step};
use crate::engine::EngineState;
use crate::link::mailbox::HEADER_BYTES;

impl Strand {
    /// Takes one step; `false` if the step has to wait.
    pub(super) fn take<B: Buffers>(
        &mut self,
        with: &mut ExecContext<'_, B>,
        scratch: &mut [u8],
        step: Step,
    ) -> Result<bool, Stop> {
        let ExecContext { links, core, scratch: pieces, buffers, more, .. } = with;
        let buffers = buffers_at(self.buffer, &mut **buffers, more);
        let mut memory = StepMemory { buffers, scratch, pieces };
        if let Step::Copy { source, target } = step {
            memory.copy(source, target);
            return Ok(true);
        }
        let Some(link) = step.peer().and_then(|peer| links.table.link_mut(peer)) else { return Ok(false) };
        match step {
            Step::Put { to, message, source, copied } => {
                let header = (message == 0).then(|| self.header_on(to, |share| share.sent).in_slot());
                Ok(self.put(link, core, &mut memory, header.as_ref(), (source, copied)))
            }
            Step::WaitCount { message, .. } => {
                let number = link.received_before + message;
                // The headers are compared before the first byte is used. A message of another operation may have the
                // same length, and would be reduced into the output unnoticed.
                Ok(self.is_agreed(link, core)? && link.inbox.arrived(number).is_some())
            }
            Step::ReduceFrom { message, target, .. } | Step::CopyFrom { message, target, .. } => {
                let number = link.received_before + message;
                check_length(link, core, (number, message == 0), target.len())?;
                match target.buffer() {
                    Buffer::Outgoing(to) => self.make_outgoing(links, core, &mut memory, (to, number), step),
                    _ => self.use_message(link, &mut memory, number, step).map(|()| true),
                }
            }
            Step::WaitPut { message, .. } => Ok(link.has_put(message)),
            Step::Signal { consumed, may_wait, .. } => {
                let number = link.received_before + consumed;
                Ok(link.give_back(core, number, may_wait))
            }
            Step::Copy { .. } => Ok(true),
        }
    }

    /// Puts a message; `false` if the link has no room for it now.
    fn put<B: Buffers>(
        &self,
        link: &mut Link,
        core: &mut EngineState,
        memory: &mut StepMemory<'_, B>,
        header: Option<&[u8; HEADER_BYTES]>,
        (source, copied): (Extent, bool),
    ) -> bool {
        let is_long = link.sends_without_copy(source.len());
        let Some(room) = link.room(core) else { return false };
        if let Buffer::Outgoing(_) = source.buffer() {
            return room.put_staged(header);
        }
        // The device may read a range long after the put. The schedule sets `copied` if a later step may write to the
        // source meanwhile. An input apart from the output is never written.
        let holds_still = !copied || (source.buffer() == Buffer::Input && !memory.buffers.is_in_place());
        // The header goes in front of the bytes, in one write. Only a copy can have both.
        if header.is_none()
            && holds_still
            && is_long
            && let Some(range) = memory.range(source)
        {
            // Around the ring only the last write asks the device for a completion, which tells of all earlier ones. If
            // the schedule does not know its last `Put`, `ask_for_ranges` asks with a write of its own.
            let asks = self.steps.is_in_rounds() || self.steps.has_put_all();
            return room.put_range(range, source.len(), asks);
        }
        room.put_with(header, source.len(), |slot| memory.read(source, slot))
    }

    /// Reduces or copies a message that has arrived into the memory of the operation.
    fn use_message<B: Buffers>(
        &self,
        link: &Link,
        memory: &mut StepMemory<'_, B>,
        number: u64,
        step: Step,
    ) -> Result<(), Stop> {
        match step {
            Step::ReduceFrom { operand, target, last, .. } => {
                let reduced = memory.reduce(&link.inbox, number, [operand, target], self.arithmetic, last);
                reduced.map_err(Stop::Reduce)
            }
            Step::CopyFrom { target, .. } => {
                memory.copy_from(&link.inbox, number, target);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Makes the next message to rank `to` from message `number` of the step's peer: the bytes are only passed on, and
    /// have no room in the output. `false` while no send buffer is free.
    fn make_outgoing<B: Buffers>(
        &self,
        links: &mut Links,
        core: &mut EngineState,
        memory: &mut StepMemory<'_, B>,
        (to, number): (u32, u64),
        step: Step,
    ) -> Result<bool, Stop> {
        let Some(out) = links.table.link_mut(to) else { return Ok(false) };
        let Some(mut buffer) = out.begin_stage(core, step.used()) else { return Ok(false) };
        // The buffer is out of its mailbox meanwhile, because both links may be one.
        let message = &mut buffer[HEADER_BYTES..];
        let made = match (step.peer().and_then(|from| links.table.link(from)), step) {
            (Some(from), Step::ReduceFrom { operand, last, .. }) => {
                memory.reduce_to(&from.inbox, number, operand, self.arithmetic, last, message)
            }
            (Some(from), _) => {
                from.inbox.read(number, 0, message);
                Ok(())
            }
            (None, _) => Ok(()),
        };
        if let Some(out) = links.table.link_mut(to) {
            out.stage(buffer);
        }
        made.map(|()| true).map_err(Stop::Reduce)
    }
}

/// The buffers of the transfer at `index` of its group. Of an operation without `more`, the first ones are those of all
/// transfers.
pub(in crate::collective::execute) fn buffers_at<'a, B>(
    index: usize,
    first: &'a mut B,
    more: &'a mut [B],
) -> &'a mut B {
    index.checked_sub(1).and_then(|behind| more.get_mut(behind)).unwrap_or(first)
}

/// Fails if a message has not the length that both ranks compute from the schedule. A `first` one has a header in
/// front. Reading on would use bytes that the peer did not write for this message.
fn check_length(
    link: &Link,
    core: &mut EngineState,
    (number, first): (u64, bool),
    len: usize,
) -> Result<(), Stop> {
    let expected = len + if first { HEADER_BYTES } else { 0 };
    if link.inbox.arrived(number) == Some(expected) {
        return Ok(());
    }
    Err(Stop::Lost(link.violation(core, "a message of another length")))
}
