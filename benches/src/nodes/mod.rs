//! Transfers between nodes ([`KvNode`](rdma_collective::kv::KvNode)), mostly of processes of their own.
//!
//! The functions with a [`Member`] are parts of one end, which the bench `nodes` runs in such a process.

mod calls;
mod idle;
mod killed;
mod link;
mod member;
mod revoke;
mod stream;
mod two;

use std::thread;
use std::time::Duration;

use rdma_collective::kv::layout::{Layout, Model, Order};
use rdma_collective::kv::{Kind, Transfer};
use rdma_core::Deadline;

pub use self::calls::{Pauses, calls, serve_both};
pub use self::idle::beside_idle;
pub use self::killed::{Deaths, deaths, victim};
pub use self::link::{link, serve_link};
pub use self::member::{Member, Peer, Role};
pub use self::revoke::revokes;
pub use self::stream::stream;
pub use self::two::two;
use crate::ratio::median;
use crate::soft::Outcome;

/// How much a run measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Blocks of a request, each of 64 KiB in each of 32 layers.
    pub blocks: u32,
    /// Samples of each side of a ratio.
    pub rounds: usize,
    /// Calls that are timed.
    pub calls: usize,
    /// Peers at rest.
    pub idle: u32,
    /// Requests that are revoked.
    pub revokes: usize,
    /// Peers that are killed.
    pub kills: usize,
}

impl Sizes {
    /// Requests of 256 MiB: 4096 blocks of 64 KiB.
    pub const FULL: Self =
        Self { blocks: 128, rounds: 15, calls: 10_000, idle: 512, revokes: 1000, kills: 100 };
    /// Shows whether everything runs, not how fast.
    pub const QUICK: Self = Self { blocks: 8, rounds: 2, calls: 50, idle: 4, revokes: 5, kills: 2 };

    /// The layout of a pool of `requests` requests.
    ///
    /// # Errors
    ///
    /// None: the layout is a valid one.
    pub fn layout(self, requests: u32) -> Outcome<Layout> {
        Ok(Layout::new(Model::LLAMA_3_1_8B.shape(16, requests * self.blocks, Order::LayerBlockPart))?)
    }

    /// Bytes of a request.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.blocks as usize * 32 * (64 << 10)
    }

    /// The blocks of the request number `at` of a pool: hardly any two are neighbours at both ends.
    #[must_use]
    pub fn list(self, at: u32, role: Role) -> Vec<u32> {
        let step = if role == Role::Prefill { 37 } else { 85 };
        (0..self.blocks).map(|block| at * self.blocks + block * step % self.blocks).collect()
    }
}

/// The longest that anything may take.
fn within() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Waits until so many bytes of a transfer have arrived.
fn wait_for_bytes<K: Kind>(transfer: &Transfer<K>, bytes: u64) -> Outcome<()> {
    let deadline = within();
    while transfer.progress().bytes_arrived < bytes {
        if deadline.expired() {
            return Err("no more bytes of a transfer arrive".into());
        }
        thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Whether a request of an interleaved run is one of ours: ours and theirs take turns in beginning. Both ends ask.
fn is_ours(request: u64) -> bool {
    matches!(request % 4, 0 | 1)
}

/// The medians of the seconds that `measure` gives for requests of ours and of theirs, which it is told.
fn interleaved(rounds: usize, mut measure: impl FnMut(u64, bool) -> Outcome<f64>) -> Outcome<(f64, f64)> {
    const WARM_UP: usize = 4;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (at, request) in (1..).take(WARM_UP + 2 * rounds).enumerate() {
        let seconds = measure(request, is_ours(request))?;
        if at >= WARM_UP {
            if is_ours(request) { &mut ours } else { &mut theirs }.push(seconds);
        }
    }
    Ok((median(ours), median(theirs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_as_many_samples_and_begin_in_turn() {
        let mut order = Vec::new();
        let seconds = interleaved(2, |_, ours| {
            order.push(ours);
            Ok(if ours { 1.0 } else { 2.0 })
        });
        assert_eq!(seconds.unwrap(), (1.0, 2.0));
        assert_eq!(order, [true, false, false, true, true, false, false, true]);
    }

    #[test]
    fn a_list_names_each_block_of_its_request_once() {
        for (sizes, role) in [Sizes::FULL, Sizes::QUICK]
            .into_iter()
            .flat_map(|sizes| [Role::Prefill, Role::Decode].map(|role| (sizes, role)))
        {
            let mut list = sizes.list(1, role);
            list.sort_unstable();
            assert!(list.into_iter().eq(sizes.blocks..2 * sizes.blocks));
        }
    }
}
