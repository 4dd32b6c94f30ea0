//! The ways of one request from prefill to decode: pushed whole, pushed layer by layer, or pulled.

use crate::args::Args;
use rdma_collective::kv::{Decode, Grant, Prefill, Progress, Pull, Received, Verdicts};
use rdma_collective::kv::{KvError, TransferError};
use rdma_core::Deadline;
use std::time::Duration;

/// Facts that prefill knows of a request that decode has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Bytes moved.
    pub bytes: u64,
    /// Writes or reads that moved them.
    pub operations: u32,
    /// Blocks that decode found corrupt.
    pub corrupt: u32,
    /// Until decode had confirmed them.
    pub elapsed: Duration,
}

/// Lets decode have the blocks of a request, and waits until it has them.
///
/// # Errors
///
/// The reason why decode does not have the blocks.
pub fn send(args: &Args, prefill: &Prefill, request: u64, ids: &[u32]) -> Result<Sent, KvError> {
    let deadline = Deadline::after(args.timeout());
    if args.pull {
        let pulled = prefill.offer(request, ids, deadline)?.wait()?;
        let (bytes, operations) = (pulled.bytes, pulled.reads);
        return Ok(Sent { bytes, operations, corrupt: pulled.corrupt, elapsed: pulled.elapsed });
    }
    let push = if args.stream {
        let push = prefill.push_layers(request, ids, deadline)?;
        // An error is dropped here, because waiting for a push that has ended gives the reason.
        let _ = (0..args.model.layers).try_for_each(|layer| push.layer_ready(layer));
        push
    } else {
        prefill.push(request, ids, deadline)?
    };
    let pushed = push.wait()?;
    let (bytes, operations) = (pushed.bytes, pushed.writes);
    Ok(Sent { bytes, operations, corrupt: pushed.corrupt, elapsed: pushed.elapsed })
}

/// A request that comes.
pub enum Incoming {
    /// Prefill writes it.
    Grant(Grant),
    /// Decode reads it.
    Pull(Pull),
}

impl Incoming {
    /// Gives a request room, and reads it if it is to be pulled.
    ///
    /// # Errors
    ///
    /// As [`Decode::grant`] and [`Decode::pull`].
    pub fn new(args: &Args, decode: &Decode, request: u64, ids: &[u32]) -> Result<Self, KvError> {
        let deadline = Deadline::after(args.timeout());
        if args.pull {
            decode.pull(request, ids, deadline).map(Self::Pull)
        } else {
            decode.grant(request, ids, deadline).map(Self::Grant)
        }
    }

    /// Waits for each layer in turn, as whoever computes with them would, when they are streamed.
    ///
    /// # Errors
    ///
    /// The first that does not come.
    pub fn wait_layers(&self, args: &Args) -> Result<(), TransferError> {
        match self {
            Self::Grant(grant) if args.stream => (0..args.model.layers)
                .try_for_each(|layer| grant.wait_layer(layer, Deadline::after(args.timeout())).map(|_| ())),
            _ => Ok(()),
        }
    }

    /// Waits for all of it.
    ///
    /// # Errors
    ///
    /// As [`Grant::wait`].
    pub fn wait(self) -> Result<Received, TransferError> {
        match self {
            Self::Grant(grant) => grant.wait(),
            Self::Pull(pull) => pull.wait(),
        }
    }

    /// Gives it up.
    ///
    /// # Errors
    ///
    /// As [`Grant::revoke`].
    pub fn give_up(self, deadline: Deadline) -> Result<Verdicts, KvError> {
        match self {
            Self::Grant(grant) => grant.revoke(deadline),
            Self::Pull(pull) => pull.cancel(deadline),
        }
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        match self {
            Self::Grant(grant) => grant.progress(),
            Self::Pull(pull) => pull.progress(),
        }
    }
}
