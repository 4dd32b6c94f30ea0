//! The ways of one request from prefill to decode: pushed whole, pushed layer by layer, or pulled.

use crate::args::Args;
use rdma_collective::kv::{Decode, KvError, Prefill, Receiving, Sent, Transfer, TransferError};
use rdma_core::Deadline;

/// Lets decode have the blocks of a request, and waits until it has them.
///
/// # Errors
///
/// The reason why decode does not have the blocks.
pub fn send(args: &Args, prefill: &Prefill, request: u64, ids: &[u32]) -> Result<Sent, KvError> {
    let deadline = Deadline::after(args.timeout());
    if args.pull {
        return prefill.offer(request, ids, deadline)?.wait();
    }
    if !args.stream {
        return prefill.push(request, ids, deadline)?.wait();
    }
    let push = prefill.push_layers(request, ids, deadline)?;
    // An error is dropped here, because waiting for a push that has ended gives the reason.
    let _ = (0..args.model.layers).try_for_each(|layer| push.layer_ready(layer));
    push.wait()
}

/// Gives a request room, and reads it if it is to be pulled.
///
/// # Errors
///
/// As [`Decode::grant`] and [`Decode::pull`].
pub fn receive(
    args: &Args,
    decode: &Decode,
    request: u64,
    ids: &[u32],
) -> Result<Transfer<Receiving>, KvError> {
    let deadline = Deadline::after(args.timeout());
    if args.pull { decode.pull(request, ids, deadline) } else { decode.grant(request, ids, deadline) }
}

/// Waits for each layer in turn, as whoever computes with them would, when they are streamed.
///
/// # Errors
///
/// The first that does not come.
pub fn wait_layers(args: &Args, incoming: &Transfer<Receiving>) -> Result<(), TransferError> {
    if !args.stream {
        return Ok(());
    }
    (0..args.model.layers)
        .try_for_each(|layer| incoming.wait_layer(layer, Deadline::after(args.timeout())).map(|_| ()))
}
