//! Many requests at once: which blocks each of them has on either side, what they hold, and which are aborted.
//!
//! Every worker of either side takes the requests whose number leaves its own, one after the other, through two slots
//! of blocks that nobody else has. Both sides follow from the flags alone.

pub mod decode;
pub mod prefill;
mod report;

use crate::args::Args;
use crate::content::{mix, shuffled};
use crate::presets::Request;

/// Slots of each worker, so that a request's blocks do not hold what they are to get.
pub const SLOTS_A_WORKER: u32 = 2;

/// Where the requests of a run have their blocks.
#[derive(Debug, Clone)]
pub struct Requests {
    count: u32,
    concurrency: u32,
    abort_rate: u8,
    seed: u64,
    /// Blocks of one request, in each layer.
    blocks: u32,
    source_ids: Vec<u32>,
    destination_ids: Vec<u32>,
}

/// A request with its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Number of the request, from 0.
    pub number: u32,
    /// The slot that its worker has it in.
    slot: u32,
    /// In percent of its bytes, when decode gives it up; `None` when it does not.
    pub abort_at: Option<u8>,
}

impl Requests {
    /// Returns the requests that the flags ask for.
    pub fn new(args: &Args, request: &Request) -> Self {
        let all = request.pool_blocks();
        Self {
            count: args.requests,
            concurrency: args.concurrency(),
            abort_rate: args.abort_rate,
            seed: args.seed,
            blocks: request.blocks,
            source_ids: shuffled(args.seed, all, all),
            destination_ids: shuffled(!args.seed, all, all),
        }
    }

    /// The workers.
    pub fn workers(&self) -> u32 {
        self.concurrency
    }

    /// The requests of one worker, in order.
    pub fn of(&self, worker: u32) -> impl Iterator<Item = Turn> + '_ {
        let numbers = (worker..self.count).step_by(self.concurrency as usize);
        (0..).zip(numbers).map(move |(turn, number)| {
            let mixed = mix(mix(self.seed) ^ u64::from(number));
            let aborted = mixed % 100 < u64::from(self.abort_rate);
            let slot = worker * SLOTS_A_WORKER + turn % SLOTS_A_WORKER;
            Turn { number, slot, abort_at: aborted.then_some((mixed >> 32) as u8 % 100) }
        })
    }

    /// Prefill's blocks of a request, in its order; what lies in them is that of these places of all it has.
    pub fn source(&self, turn: Turn) -> &[u32] {
        self.slot(&self.source_ids, turn)
    }

    /// Decode's blocks of a request, in its order.
    pub fn destination(&self, turn: Turn) -> &[u32] {
        self.slot(&self.destination_ids, turn)
    }

    /// All blocks of prefill's pool, in the order of their content.
    pub fn sources(&self) -> &[u32] {
        &self.source_ids
    }

    /// The content of a request's first block.
    pub fn first_place(&self, turn: Turn) -> u32 {
        turn.slot * self.blocks
    }

    fn slot<'a>(&self, ids: &'a [u32], turn: Turn) -> &'a [u32] {
        ids.chunks(self.blocks as usize).nth(turn.slot as usize).unwrap_or_default()
    }
}

/// The number by which both sides name a request.
pub fn request_id(turn: Turn) -> u64 {
    u64::from(turn.number) + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sides::Rank;
    use clap::Parser;
    use std::collections::HashSet;

    fn requests(flags: &str) -> Requests {
        let line = format!("kvcache_transfer --prompt 80 {flags}");
        let args = Args::parse_from(line.split_whitespace());
        Requests::new(&args, &args.request(Rank::default()).unwrap())
    }

    #[test]
    fn every_request_is_one_workers_and_workers_share_no_block() {
        let requests = requests("--requests 23 --concurrency 4");
        let (mut numbers, mut owners) = (HashSet::new(), HashSet::new());
        for worker in 0..requests.workers() {
            let mut own = HashSet::new();
            for turn in requests.of(worker) {
                assert!(numbers.insert(turn.number));
                assert_eq!((requests.source(turn).len(), requests.destination(turn).len()), (5, 5));
                own.extend(requests.source(turn).iter().copied());
            }
            assert_eq!(own.len(), 10, "two slots");
            assert!(own.into_iter().all(|block| owners.insert(block)));
        }
        assert_eq!(numbers, (0..23).collect());
    }

    #[test]
    fn the_content_is_that_of_the_place_among_all_sources() {
        let requests = requests("--requests 9 --concurrency 3");
        for turn in (0..3).flat_map(|worker| requests.of(worker)) {
            let first = requests.first_place(turn) as usize;
            assert_eq!(requests.sources()[first..first + 5], *requests.source(turn));
        }
    }

    #[test]
    fn about_as_many_are_aborted_as_were_asked_for() {
        let aborted = |flags: &str| {
            let requests = requests(flags);
            (0..requests.workers())
                .flat_map(|worker| requests.of(worker).collect::<Vec<_>>())
                .filter(|turn| turn.abort_at.is_some())
                .count()
        };
        assert_eq!(aborted("--requests 1000 --concurrency 8"), 0);
        assert_eq!(aborted("--requests 1000 --concurrency 8 --abort-rate 100"), 1000);
        assert!((200..300).contains(&aborted("--requests 1000 --concurrency 8 --abort-rate 25")));
    }
}
