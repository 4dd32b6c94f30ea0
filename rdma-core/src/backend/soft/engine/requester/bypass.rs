//! Past the queue: a wire that has the peer's answer before a post returns asks first, and enters only what is not done.

use super::super::keys::{Domain, KeyTable};
use super::super::message::Request;
use super::send::request;
use super::{Requester, State, done};
use crate::backend::interface::{RawCompletion, RawSend};

impl Requester {
    /// What `send` would be as a message, if it were posted and handed out now; `None` when something is in the queue
    /// before it, or when this side can tell that it is wrong.
    #[inline]
    pub(crate) fn bypass_request(&self, send: &RawSend, keys: &KeyTable, domain: Domain) -> Option<Request> {
        let is_idle = self.state == State::Sending && self.queue.is_empty() && !self.rewound;
        if !is_idle || self.check(send, keys, domain).is_err() {
            return None;
        }
        Some(request(send, self.first_psn))
    }

    /// The peer has carried out what [`ahead`](Self::ahead) said of `send`: as if it had been posted, handed out,
    /// acknowledged and retired. Its completion, if it is to have one.
    #[inline]
    pub(crate) fn complete_bypassed(&mut self, send: &RawSend) -> Option<RawCompletion> {
        self.first_psn = super::super::sequence::add(self.first_psn, 1);
        self.first_serial += 1;
        // Whoever has an empty queue has all of them: the last acknowledgement gave them back.
        debug_assert!(self.has_all_retries());
        done(send)
    }
}
