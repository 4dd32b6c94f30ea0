//! What is in front of the first message between two ranks, and whether they mean the same.

use super::super::run::Stop;
use super::{Mesh, odd};
use crate::collective::communicator::{Boxes, Link};
use crate::collective::operation::{DAMAGED, Header};
use crate::collective::schedule::{Share, Span};
use crate::engine::Core;

impl Mesh {
    /// Whether the rank at the other end is in the same operation: its first message says so.
    pub(super) fn is_agreed(&self, link: &mut Link, core: &mut Core) -> Result<bool, Stop> {
        let Boxes { inbox, received_before, agreed, .. } = &mut link.mailbox;
        if !*agreed && inbox.arrived(*received_before).is_some() {
            let expected = self.header_on(link.rank, |share| share.received);
            match Header::read(&inbox.header(*received_before)) {
                Ok(theirs) if expected.agrees(&theirs) => *agreed = true,
                Ok(theirs) if self.is_of_another_length(&theirs) => {
                    return Err(Stop::Counts { theirs, expected: expected.count });
                }
                Ok(theirs) => return Err(Stop::Mismatch { ours: self.header, theirs }),
                Err(_) => return Err(odd(link, core, DAMAGED)),
            }
        }
        Ok(link.mailbox.agreed)
    }

    /// What is in front of the first message to a rank, or from it: where parts are of any length, the elements that go there.
    pub(super) fn header_on(&self, peer: u32, part: impl Fn(Share) -> Option<Span>) -> Header {
        let span = self.steps.share(peer).and_then(part);
        let element = self.arithmetic.data_type.size();
        let count = span.map_or(self.header.count, |span| (span.len / element) as u64);
        Header { count, ..self.header }
    }

    /// Whether a rank is in the same operation, and sends another count.
    fn is_of_another_length(&self, theirs: &Header) -> bool {
        self.steps.share(theirs.rank).is_some()
            && self.header.agrees(&Header { count: self.header.count, ..*theirs })
    }
}
