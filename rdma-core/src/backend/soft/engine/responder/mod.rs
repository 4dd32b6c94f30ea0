//! The receiving half of a queue pair: its receives, and the peer's requests in order.
//!
//! [`check`] decides what becomes of a request, [`place`] what follows once its payload is in place.

mod check;
mod place;

use std::collections::VecDeque;

use super::message::{Reply, Request};
use super::sequence;
use crate::backend::interface::{RawCompletion, RawRecv};
use crate::backend::soft::fault::Planted;
use crate::{Access, CompletionStatus, EventKind};

/// Where a responder stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Before RTR: requests are not answered.
    Unready,
    /// The next request is expected.
    Expecting,
    /// It was asked for again, or told to wait: what comes in between is not answered.
    Awaiting,
    /// Requests are not answered, receives are flushed.
    Error,
}

/// What INIT to RTR set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Of the queue pair.
    pub(crate) access: Access,
    /// Code that a peer without a receive is told.
    pub(crate) rnr_timer: u8,
}

/// What to do about a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Verdict {
    /// Nothing; its payload is dropped.
    Silence,
    /// Say so; its payload is dropped.
    Answer(Reply),
    /// Put the payload there, then ask [`Responder::placed`].
    Place { addr: u64, len: u32, serial: u64 },
    /// Answer with the bytes there, for as long as the registration is in place.
    Serve { reply: Reply, addr: u64, key: u32, serial: u64 },
    /// It is carried out.
    Done(Outcome),
    /// It cannot be carried out: this end moves to ERR.
    Refuse { outcome: Outcome, event: Option<EventKind> },
}

/// A reply, and what became of the receive that the request took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    pub(crate) reply: Reply,
    pub(crate) receive: Option<RawCompletion>,
}

/// A request whose payload is on its way.
#[derive(Debug, Clone, Copy)]
struct Placing {
    serial: u64,
    request: Request,
    /// Key and serial of the registration written; `None` for a receive.
    registration: Option<(u32, u64)>,
}

/// What it takes to carry out the requests of a peer.
#[derive(Debug)]
pub(crate) struct LentResponder {
    pub(crate) receives: VecDeque<RawRecv>,
    pub(crate) depth: usize,
    pub(crate) expected: u32,
    pub(crate) rules: Rules,
    pub(crate) posted: u64,
    pub(crate) planted: Option<Planted>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Responder {
    state: State,
    receives: VecDeque<RawRecv>,
    depth: usize,
    expected: u32,
    placing: Option<Placing>,
    serials: u64,
    rules: Rules,
    /// Receives ever posted; counted for the planted fault alone.
    posted: u64,
    planted: Option<Planted>,
}

impl Responder {
    pub(crate) fn new(depth: usize, planted: Option<Planted>) -> Self {
        Self {
            state: State::Unready,
            receives: VecDeque::with_capacity(depth),
            depth,
            expected: 0,
            placing: None,
            serials: 0,
            rules: Rules { access: Access::empty(), rnr_timer: 0 },
            posted: 0,
            planted,
        }
    }

    /// INIT to RTR: the peer's first request carries `psn`.
    pub(crate) fn start(&mut self, psn: u32, rules: Rules) {
        if self.state == State::Unready {
            self.state = State::Expecting;
            self.expected = psn;
            self.rules = rules;
        }
    }

    /// Posts a receive; gives it back when the queue is full.
    pub(crate) fn post(&mut self, recv: RawRecv) -> Result<(), RawRecv> {
        if self.receives.len() >= self.depth {
            return Err(recv);
        }
        if self.planted == Some(Planted::LostCredit) {
            self.posted += 1;
            if self.posted == 2 {
                return Ok(());
            }
        }
        self.receives.push_back(recv);
        Ok(())
    }

    /// Gives away what the peer's requests need: from now on they are carried out elsewhere.
    pub(crate) fn lend(&mut self) -> LentResponder {
        // What is being placed would come twice: the peer sends it again, to be carried out there.
        self.placing = None;
        let receives = std::mem::take(&mut self.receives);
        let Self { depth, expected, rules, posted, planted, .. } = *self;
        LentResponder { receives, depth, expected, rules, posted, planted }
    }

    /// Takes back what is left of that: the receives that were not used, and the number of the next request.
    pub(crate) fn take_back(&mut self, receives: VecDeque<RawRecv>, expected: u32) {
        self.receives = receives;
        self.expected = sequence::add(expected, 0);
    }

    /// Moves to ERR: what is being placed is not, and receives are flushed.
    pub(crate) fn fail(&mut self) {
        self.state = State::Error;
        self.placing = None;
    }

    /// The oldest receive, flushed; only in ERR.
    pub(crate) fn next_flushed(&mut self) -> Option<RawCompletion> {
        if self.state != State::Error {
            return None;
        }
        let recv = self.receives.pop_front()?;
        let status = CompletionStatus::WR_FLUSH_ERR.0;
        Some(RawCompletion { wr_id: recv.wr_id, status, ..RawCompletion::default() })
    }

    #[cfg(test)]
    pub(super) fn state(&self) -> State {
        self.state
    }
}
