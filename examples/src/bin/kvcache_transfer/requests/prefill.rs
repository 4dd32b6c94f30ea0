//! Prefill's side of many requests: workers that push theirs one after the other.

use super::{Requests, Turn, request_id};
use crate::args::Args;
use crate::way::{self, AllSent};
use anyhow::Context;
use rdma_collective::kv::{KvError, Prefill};
use std::thread;

/// Sum over all requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Bytes of those that were confirmed.
    pub bytes: u64,
    /// Blocks that decode found corrupt.
    pub corrupt: u64,
    /// Requests that decode gave up.
    pub revoked: u64,
}

/// Pushes all requests.
///
/// # Errors
///
/// The first push that failed, unless decode was to give it up.
pub fn run(args: &Args, requests: &Requests, links: &[Prefill]) -> anyhow::Result<Total> {
    thread::scope(|scope| {
        let workers =
            (0..requests.workers()).map(|worker| scope.spawn(move || work(args, requests, links, worker)));
        let workers: Vec<_> = workers.collect();
        workers.into_iter().try_fold(Total::default(), |total, worker| {
            let own = worker.join().map_err(|_| anyhow::anyhow!("a worker panicked"))??;
            Ok(Total {
                bytes: total.bytes + own.bytes,
                corrupt: total.corrupt + own.corrupt,
                revoked: total.revoked + own.revoked,
            })
        })
    })
}

fn work(args: &Args, requests: &Requests, links: &[Prefill], worker: u32) -> anyhow::Result<Total> {
    let mut total = Total::default();
    for turn in requests.of(worker) {
        let pushed = push(args, requests, links, turn);
        match pushed.with_context(|| format!("the transfer of request {}", request_id(turn)))? {
            Some(pushed) => {
                total.bytes += pushed.bytes;
                total.corrupt += pushed.corrupt;
            }
            None => total.revoked += 1,
        }
    }
    Ok(total)
}

/// `None` when decode gave it up, as it was to.
fn push(args: &Args, requests: &Requests, links: &[Prefill], turn: Turn) -> Result<Option<AllSent>, KvError> {
    match way::send(args, links, request_id(turn), requests.source(turn)) {
        Ok(sent) => Ok(Some(sent)),
        Err(KvError::PeerRevoked { .. }) if turn.abort_at.is_some() => Ok(None),
        Err(error) => Err(error),
    }
}
