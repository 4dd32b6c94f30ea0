//! Either end of a transfer, whichever way it goes, and what it knows in the end.

use std::sync::Arc;
use std::task::Poll;

use rdma_collective::kv::KvError;
use rdma_collective::kv::{Grant, Offer, Pull, Push, Received, Revoking, Verdicts};

use crate::common::long;

pub enum Sending {
    Push(Push),
    Offer(Offer),
    Revoking(Revoking<()>),
}

pub enum Receiving {
    Grant(Grant),
    Pull(Pull),
    Revoking(Revoking<Verdicts>),
}

/// The outcome that prefill sees.
#[derive(Debug)]
pub enum Sent {
    /// Bytes, and blocks that decode found corrupt.
    Well(u64, u32),
    Badly(KvError),
    GivenUp,
}

/// The outcome that decode sees.
#[derive(Debug)]
pub enum Got {
    Well(Received),
    Badly(Verdicts, Arc<KvError>),
    GivenUp(Verdicts),
    /// The link had ended before it could begin.
    Nothing(KvError),
}

impl Sent {
    pub fn error(&self) -> Option<&KvError> {
        if let Self::Badly(error) = self { Some(error) } else { None }
    }
}

impl Got {
    pub fn error(&self) -> Option<&KvError> {
        match self {
            Self::Badly(_, error) => Some(error),
            Self::Nothing(error) => Some(error),
            Self::Well(_) | Self::GivenUp(_) => None,
        }
    }

    pub fn verdicts(&self) -> Option<&Verdicts> {
        match self {
            Self::Well(received) => Some(&received.verdicts),
            Self::Badly(verdicts, _) | Self::GivenUp(verdicts) => Some(verdicts),
            Self::Nothing(_) => None,
        }
    }
}

impl Sending {
    pub fn poll(&mut self) -> Poll<Sent> {
        let outcome = match self {
            Self::Push(push) => push.poll().map_ok(|pushed| (pushed.bytes, pushed.corrupt)),
            Self::Offer(offer) => offer.poll().map_ok(|pulled| (pulled.bytes, pulled.corrupt)),
            Self::Revoking(revoking) => {
                return revoking.poll().map(|end| end.map(|()| Sent::GivenUp).unwrap());
            }
        };
        outcome.map(|outcome| match outcome {
            Ok((bytes, corrupt)) => Sent::Well(bytes, corrupt),
            Err(error) => Sent::Badly(error),
        })
    }

    pub fn give_up(self) -> Sent {
        match self {
            Self::Push(push) => push.cancel(long()).unwrap(),
            Self::Offer(offer) => offer.revoke(long()).unwrap(),
            Self::Revoking(revoking) => revoking.wait().unwrap(),
        }
        Sent::GivenUp
    }

    /// Begins to give up; the end is polled for.
    pub fn start_to_give_up(self) -> Self {
        Self::Revoking(match self {
            Self::Push(push) => push.start_cancel(long()),
            Self::Offer(offer) => offer.start_revoke(long()),
            Self::Revoking(revoking) => revoking,
        })
    }
}

impl Receiving {
    pub fn poll(&mut self) -> Poll<Got> {
        let outcome = match self {
            Self::Grant(grant) => grant.poll(),
            Self::Pull(pull) => pull.poll(),
            Self::Revoking(revoking) => return revoking.poll().map(|end| end.map(Got::GivenUp).unwrap()),
        };
        outcome.map(|outcome| match outcome {
            Ok(received) => Got::Well(received),
            Err(error) => Got::Badly(error.verdicts, error.cause),
        })
    }

    pub fn give_up(self) -> Got {
        Got::GivenUp(match self {
            Self::Grant(grant) => grant.revoke(long()).unwrap(),
            Self::Pull(pull) => pull.cancel(long()).unwrap(),
            Self::Revoking(revoking) => revoking.wait().unwrap(),
        })
    }

    /// Begins to give up; the end is polled for.
    pub fn start_to_give_up(self) -> Self {
        Self::Revoking(match self {
            Self::Grant(grant) => grant.start_revoke(long()),
            Self::Pull(pull) => pull.start_cancel(long()),
            Self::Revoking(revoking) => revoking,
        })
    }
}
