//! Either end of a transfer, whichever way it goes, and what it knows in the end.

use std::sync::Arc;
use std::task::Poll;

use rdma_collective::kv::{self, KvError, Received, Revoking, Transfer, Verdicts};

use crate::common::long;

pub enum Sending {
    UnderWay(Transfer<kv::Sending>),
    Revoking(Revoking<kv::Sending>),
}

pub enum Receiving {
    UnderWay(Transfer<kv::Receiving>),
    Revoking(Revoking<kv::Receiving>),
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
        match self {
            Self::UnderWay(transfer) => transfer.poll().map(|outcome| match outcome {
                Ok(sent) => Sent::Well(sent.bytes, sent.corrupt),
                Err(error) => Sent::Badly(error),
            }),
            Self::Revoking(revoking) => revoking.poll().map(|end| end.map(|()| Sent::GivenUp).unwrap()),
        }
    }

    pub fn give_up(self) -> Sent {
        match self {
            Self::UnderWay(transfer) => transfer.revoke(long()).unwrap(),
            Self::Revoking(revoking) => revoking.wait().unwrap(),
        }
        Sent::GivenUp
    }

    /// Begins to give up; the end is polled for.
    pub fn start_to_give_up(self) -> Self {
        Self::Revoking(match self {
            Self::UnderWay(transfer) => transfer.start_revoke(long()),
            Self::Revoking(revoking) => revoking,
        })
    }
}

impl Receiving {
    pub fn poll(&mut self) -> Poll<Got> {
        match self {
            Self::UnderWay(transfer) => transfer.poll().map(|outcome| match outcome {
                Ok(received) => Got::Well(received),
                Err(error) => Got::Badly(error.verdicts, error.cause),
            }),
            Self::Revoking(revoking) => revoking.poll().map(|end| end.map(Got::GivenUp).unwrap()),
        }
    }

    pub fn give_up(self) -> Got {
        Got::GivenUp(match self {
            Self::UnderWay(transfer) => transfer.revoke(long()).unwrap(),
            Self::Revoking(revoking) => revoking.wait().unwrap(),
        })
    }

    /// Begins to give up; the end is polled for.
    pub fn start_to_give_up(self) -> Self {
        Self::Revoking(match self {
            Self::UnderWay(transfer) => transfer.start_revoke(long()),
            Self::Revoking(revoking) => revoking,
        })
    }
}
