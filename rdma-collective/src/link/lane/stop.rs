//! The end of a lane whose link goes on over others: what it has not sent, and how much it has received.
//!
//! A queue pair delivers in order. So of the messages that cost a credit, those that have not arrived are the last
//! ones, and the peer's count of those that have arrived tells how many.

use rdma_core::{LocalBuf, QueuePair, ReadyToSend, Segment, Work};

use super::{Lane, Sent};
use crate::link::LaneFailure;
use crate::link::imm::Imm;

/// A message that may not have arrived, with what another lane needs to send it again.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// A message of a mailbox, and the buffer of a copied one. A write from registered memory has no buffer.
    Message(Imm, Option<LocalBuf>),
    /// A control message.
    Control(LocalBuf),
    /// An immediate without data: a count, whose present value is sent instead, or a heartbeat.
    Note,
}

impl Unsent {
    /// The message of a request; `None` for a request that costs no credit.
    pub(super) fn of(sent: Sent, buffer: Option<LocalBuf>) -> Option<Self> {
        Some(match (sent, buffer) {
            (Sent::Owned(imm), Some(buffer)) => Self::Message(imm, Some(buffer)),
            (Sent::Range(imm), _) => Self::Message(imm, None),
            (Sent::Control, Some(buffer)) => Self::Control(buffer),
            (Sent::Empty, _) => Self::Note,
            _ => return None,
        })
    }

    /// The message of a request that was not posted.
    pub(super) fn of_work(work: Work, sent: Sent) -> Option<Self> {
        let buffer = match work.into_segment() {
            Segment::Owned(buffer) => Some(buffer),
            _ => None,
        };
        Self::of(sent, buffer)
    }
}

impl Lane {
    /// Says that the lane is one of several of its link.
    pub(crate) fn set_one_of_many(&mut self) {
        self.is_one_of_many = true;
    }

    /// Takes the queue pair, to be fenced; `None` if that was done before.
    pub(crate) fn take_qp(&mut self) -> Option<QueuePair<ReadyToSend>> {
        self.qp.take()
    }

    /// Ends the lane for this side, and keeps what was not posted.
    pub(crate) fn stop(&mut self) {
        self.failure.get_or_insert(LaneFailure::Fenced);
        self.keep_queued();
    }

    /// Keeps the requests that were queued and will never be posted.
    pub(super) fn keep_queued(&mut self) {
        let queued = self.queued.drain(..).filter_map(|queued| Unsent::of_work(queued.work, queued.sent));
        self.unposted.extend(queued);
    }

    /// Keeps the requests that the device has refused, of a batch whose sends begin at number `pushed` of those posted.
    /// The refused ones are the last of the batch, and its sends stand behind its receives.
    #[cold]
    pub(super) fn keep_rejected(&mut self, pushed: usize, mut rejected: Vec<Work>) {
        let sends = rejected.len().min(self.posted.len() - pushed);
        let sends = rejected.split_off(rejected.len() - sends);
        let kinds = self.posted.split_off(self.posted.len() - sends.len());
        let unsent = sends.into_iter().zip(kinds).filter_map(|(work, (_, sent))| Unsent::of_work(work, sent));
        // In front of those that were not even pushed.
        self.unposted.splice(0..0, unsent);
    }

    /// The number of messages that were sent since the lane began, of those that cost a credit.
    pub(crate) fn sent(&self) -> u64 {
        self.credits.sent()
    }

    /// The number of messages that were received and taken since the lane began, of those that cost a credit.
    pub(crate) fn taken(&self) -> u64 {
        self.credits.taken()
    }

    /// Takes the messages of a stopped lane that are not known to have arrived, in the order of sending. All of them
    /// are there once the device has flushed the queue pair.
    pub(crate) fn take_unsent(&mut self) -> Vec<Unsent> {
        let mut unsent = std::mem::take(&mut self.failed);
        unsent.append(&mut self.unposted);
        unsent
    }

    /// Sends a control message of another lane of the link; gives it back if no buffer is free now. Check
    /// [`room`](Self::room) first.
    ///
    /// The message is copied, because the other lane's buffer may be registered with another device.
    pub(crate) fn control_again(&mut self, message: LocalBuf) -> Result<(), LocalBuf> {
        let Some(mut buffer) = self.control.pop() else { return Err(message) };
        buffer.reset_view();
        // Lanes of a link have buffers of one length.
        if buffer.set_view(0..message.len()).is_err() {
            self.control.push(buffer);
            return Err(message);
        }
        buffer.copy_from_slice(&message);
        self.queue_counted(Work::send(buffer), Sent::Control, true);
        Ok(())
    }
}
