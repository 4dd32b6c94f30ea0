//! The agreement of a collective's ranks: whether all of them have called the same operation.
//!
//! Around the ring each rank hears the rank before it, and so of all others. In rounds a rank hears those that send to
//! it: `strand` compares the headers in front of the messages that its steps use, and this file those of messages that
//! no step uses, and of ranks that report a long wait. A rank that only sends may end before it hears of a mistake, and
//! finds it in a later operation or when it leaves.

use super::LinkExec;
use crate::collective::call::is_of_two;
use crate::collective::communicator::{HostGroup, Links};
use crate::collective::execute::stop::Stop;
use crate::collective::operation::{Header, OPERATION};
use crate::engine::EngineState;

impl LinkExec {
    /// Compares the headers that the previous rank of the ring has sent in control messages. Those of later operations
    /// stay queued: the previous rank may be ahead when it only sends.
    pub(super) fn hear_previous(&mut self, links: &mut Links) -> Result<(), Stop> {
        // The headers are those of collectives.
        if is_of_two(&self.strand.header) {
            return Ok(());
        }
        while let Some(theirs) = links.ahead.front().copied()
            && theirs.sequence <= self.strand.header.sequence
        {
            links.ahead.pop_front();
            if !self.strand.header.agrees(&theirs) {
                return Err(Stop::Mismatch { ours: self.strand.header, theirs });
            }
            self.agreed = true;
        }
        links.beyond.map_or(Ok(()), |theirs| Err(Stop::Mismatch { ours: self.strand.header, theirs }))
    }

    /// Sends the header to the next rank in a control message; `false` if there is no room for it now.
    pub(super) fn send_header(&self, links: &Links, core: &mut EngineState) -> Result<bool, Stop> {
        let Some(next) = links.table.link(links.next) else { return Ok(false) };
        let sent = next.control(core, OPERATION, |body| self.strand.header.write(body));
        sent.map_err(|_| {
            let what = "control messages too short for a header";
            Stop::Lost(links.violation_of(core, links.next, what))
        })
    }

    /// Whether the previous rank of the ring is in the same operation, as far as its header tells: in a control message
    /// or, in an operation around the ring, in front of its first message. Of rounds that join all ranks, the messages
    /// tell.
    pub(super) fn is_agreed_with_previous(
        &mut self,
        links: &mut Links,
        core: &mut EngineState,
    ) -> Result<bool, Stop> {
        if self.strand.steps.joins_all() {
            self.agreed = true;
        }
        if !self.agreed
            && !self.strand.steps.is_in_rounds()
            && let Some(previous) = links.table.link_mut(links.previous)
        {
            self.agreed = self.strand.is_agreed(previous, core)?;
        }
        Ok(self.agreed)
    }

    /// Fails if a rank whose message no step reads, or that has reported a long wait, has called something else.
    ///
    /// A rank with another operation may wait for this one, and this one for a third, so that nobody else would find
    /// the mismatch.
    pub(super) fn check_first_messages(&self, links: &Links) -> Result<(), Stop> {
        let header = &self.strand.header;
        // A send or receive is of no concern to the other ranks.
        let present = Some(header).filter(|header| !is_of_two(header));
        if let Some([ours, theirs]) = links.waits_elsewhere(present) {
            return Err(Stop::Mismatch { ours, theirs });
        }
        if present.is_none() {
            return Ok(());
        }
        for link in links.table.links().filter(|link| !link.agreed) {
            // A damaged header is found by the step that reads the message.
            let Some(Ok(theirs)) = link.first_unread() else { continue };
            // Without the count, because parts may be uneven, and a rank that has made its links sends its parts while
            // this one still makes links. The step that reads the message compares the count.
            let agrees = header.agrees(&Header { count: header.count, ..theirs });
            // The message of a send waits for its receive, which comes after this operation.
            if theirs.sequence <= header.sequence && !agrees && !is_of_two(&theirs) {
                return Err(Stop::Mismatch { ours: *header, theirs });
            }
        }
        Ok(())
    }
}

/// Looks for headers of ranks on this host that are not in the operation of `ours`.
///
/// # Errors
///
/// A rank that has called another operation than `ours`, or than this rank called at that sequence number.
pub(super) fn check_strays(host: Option<&HostGroup>, ours: &Header) -> Result<(), Stop> {
    Ok(host.map_or(Ok(()), |host| host.check_strays(ours))?)
}
