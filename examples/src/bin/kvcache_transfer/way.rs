//! The ways of one request from prefill to decode: pushed whole, pushed layer by layer, or pulled.

use crate::args::Args;
use rdma_collective::kv::{Joint, KvError, Prefill, Sent, Sources, TransferError};
use rdma_core::Deadline;
use std::time::Duration;

/// The sum of what a rank of prefill has sent to all ranks of decode together.
#[derive(Debug, Clone, Copy, Default)]
pub struct AllSent {
    /// Bytes.
    pub bytes: u64,
    /// Writes, or reads of an offer.
    pub writes: u64,
    /// Corrupt blocks, each as often as it is corrupt at a rank.
    pub corrupt: u64,
    /// Until the last confirmation.
    pub elapsed: Duration,
}

impl AllSent {
    fn and(self, one: Sent) -> Self {
        Self {
            bytes: self.bytes + one.bytes,
            writes: self.writes + u64::from(one.writes),
            corrupt: self.corrupt + u64::from(one.corrupt),
            elapsed: self.elapsed.max(one.elapsed),
        }
    }
}

/// Lets all ranks of decode have the blocks of a request, and waits until they have them.
///
/// # Errors
///
/// The reason why one of them does not have the blocks.
pub fn send(args: &Args, links: &[Prefill], request: u64, ids: &[u32]) -> Result<AllSent, KvError> {
    let deadline = Deadline::after(args.timeout());
    let begun = links.iter().map(|link| match (args.pull, args.stream) {
        (true, _) => link.offer(request, ids, deadline),
        (_, true) => link.push_layers(request, ids, deadline),
        _ => link.push(request, ids, deadline),
    });
    let begun = begun.collect::<Result<Vec<_>, _>>()?;
    if args.stream {
        for layer in 0..args.model.layers {
            // An error is dropped here, because waiting for a push that has ended gives the reason.
            begun.iter().for_each(|push| _ = push.layer_ready(layer));
        }
    }
    begun.into_iter().try_fold(AllSent::default(), |all, sent| Ok(all.and(sent.wait()?)))
}

/// Gives a request room, and reads it if it is to be pulled.
///
/// # Errors
///
/// As [`Sources::grant`] and [`Sources::pull`].
pub fn receive(args: &Args, sources: &Sources, request: u64, ids: &[u32]) -> Result<Joint, KvError> {
    let deadline = Deadline::after(args.timeout());
    if args.pull { sources.pull(request, ids, deadline) } else { sources.grant(request, ids, deadline) }
}

/// Waits for each layer in turn, as whoever computes with them would, when they are streamed.
///
/// # Errors
///
/// The first that does not come.
pub fn wait_layers(args: &Args, incoming: &Joint) -> Result<(), TransferError> {
    if !args.stream {
        return Ok(());
    }
    (0..args.model.layers)
        .try_for_each(|layer| incoming.wait_layer(layer, Deadline::after(args.timeout())).map(|_| ()))
}
