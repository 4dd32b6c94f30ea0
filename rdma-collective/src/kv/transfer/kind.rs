//! Kinds of transfers: the end that has them, and the outcome that their handle gives.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::time::Duration;

use crate::kv::fence::{CONFIRM_WITHIN, END_WITHIN};
use crate::kv::machine::Machine;
use crate::kv::outcome::{Received, Sent};
use crate::kv::push::Pushes;
use crate::kv::receive::Receives;
use crate::kv::verdict::Verdicts;
use crate::kv::{KvError, TransferError};

/// A kind of [`Transfer`](super::Transfer): [`Sending`], [`Receiving`], or [`Revoked`] of one of them. No other type
/// can be one.
#[expect(private_bounds, reason = "sealed: what a kind needs of its end is the library's own")]
pub trait Kind: Look<<Self as Kind>::Outcome, <Self as Kind>::Error> {
    /// The outcome of a transfer that has ended well.
    type Outcome;
    /// The error of a transfer that has not.
    type Error;
}

/// A kind of transfer that can be [given up](super::Transfer::revoke).
pub trait Revocable: Kind {
    /// The result of giving up: at decode the [`Verdicts`] on what had arrived, at prefill nothing.
    type Left;

    #[doc(hidden)]
    fn left(ended: Result<Self::Outcome, Self::Error>) -> Result<Self::Left, KvError>;
}

/// The kind of a [`Push`](super::Push) and of an [`Offer`](super::Offer): transfers as prefill has them.
#[derive(Debug)]
pub struct Sending(Infallible);

/// The kind of a [`Grant`](super::Grant) and of a [`Pull`](super::Pull): transfers as decode has them.
#[derive(Debug)]
pub struct Receiving(Infallible);

/// The kind of a transfer `K` that is being given up; see [`Revoking`](super::Revoking).
#[derive(Debug)]
pub struct Revoked<K>(Infallible, PhantomData<K>);

/// The look of a handle at its transfer: the state machine to look at, and how the outcome there becomes that of the
/// handle.
pub(in crate::kv) trait Look<Outcome, Error> {
    type Machine: Machine;

    /// Time beyond the handle's deadline within which the machine ends the transfer.
    const ENDS_WITHIN: Duration;

    fn conclude(ended: Ended<Self::Machine>) -> Result<Outcome, Error>;
}

type Ended<M> = Result<<M as Machine>::Outcome, <M as Machine>::Error>;

impl Kind for Sending {
    type Outcome = Sent;
    type Error = KvError;
}

impl Look<Sent, KvError> for Sending {
    type Machine = Pushes;

    const ENDS_WITHIN: Duration = END_WITHIN;

    fn conclude(ended: Result<Sent, KvError>) -> Result<Sent, KvError> {
        ended
    }
}

impl Kind for Receiving {
    type Outcome = Received;
    type Error = TransferError;
}

impl Look<Received, TransferError> for Receiving {
    type Machine = Receives;

    const ENDS_WITHIN: Duration = END_WITHIN;

    fn conclude(ended: Result<Received, TransferError>) -> Result<Received, TransferError> {
        ended
    }
}

impl Revocable for Sending {
    type Left = ();

    fn left(ended: Result<Sent, KvError>) -> Result<(), KvError> {
        match ended {
            Err(error) if may_land(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

impl Revocable for Receiving {
    type Left = Verdicts;

    fn left(ended: Result<Received, TransferError>) -> Result<Verdicts, KvError> {
        match ended {
            Ok(received) => Ok(received.verdicts),
            Err(error) if may_land(&error.cause) => Err((*error.cause).clone()),
            Err(error) => Ok(error.verdicts),
        }
    }
}

impl<K: Revocable> Kind for Revoked<K> {
    type Outcome = K::Left;
    type Error = KvError;
}

impl<K: Revocable> Look<K::Left, KvError> for Revoked<K> {
    type Machine = <K as Look<K::Outcome, K::Error>>::Machine;

    const ENDS_WITHIN: Duration = CONFIRM_WITHIN.saturating_mul(2);

    fn conclude(ended: Ended<Self::Machine>) -> Result<K::Left, KvError> {
        K::left(K::conclude(ended))
    }
}

/// Whether bytes of a transfer that ended with `error` may still land, or be read: the device did not fence its lane,
/// or the engine cannot; or the outcome that says so was taken.
fn may_land(error: &KvError) -> bool {
    use KvError::{Engine, LinkEnded, OutcomeTaken, Quarantined};
    matches!(error, Quarantined { .. } | Engine(_) | LinkEnded { .. } | OutcomeTaken { .. })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rdma_core::error::PollError;
    use rdma_core::{Gid, QpNum};

    use super::*;
    use crate::engine::EngineError;
    use crate::kv::verdict::BlockVerdict;
    use crate::link::{LaneFailure, LaneName, PeerName};

    #[test]
    fn giving_up_fails_only_while_bytes_may_land() {
        let peer = PeerName::Process { pid: 1, gid: Gid([0; 16]) };
        let lane = LaneName { qp_num: QpNum(1), epoch: 0 };
        let source = Arc::new(PollError::Overrun);
        let cases = [
            (KvError::Quarantined { request: 1.into(), peer: peer.clone(), lane }, true),
            (KvError::LinkEnded { peer: peer.clone(), cause: LaneFailure::Fenced }, true),
            (KvError::Engine(EngineError::Device { source }), true),
            (KvError::Revoked { request: 1.into() }, false),
            (KvError::PeerRevoked { request: 1.into(), peer: peer.clone() }, false),
        ];
        for (error, lands) in cases {
            assert_eq!(Sending::left(Err(error.clone())).is_err(), lands, "{error}");
            let verdicts = Verdicts::new(1, [3], BlockVerdict::Missing);
            let error = TransferError { cause: Arc::new(error), verdicts: verdicts.clone() };
            match Receiving::left(Err(error)) {
                Ok(left) => assert!(!lands && left == verdicts),
                Err(error) => assert!(lands, "{error}"),
            }
        }
    }
}
