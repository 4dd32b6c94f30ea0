//! The choice between the algorithms of a collective by the time that each takes in the alpha-beta model: a round takes
//! a latency, and the time in which its bytes pass a link.
//!
//! `docs/defaults.md` says where the ratio of the two comes from.

use super::cut::Pieces;
use super::merging::Merging;
use super::round::doublings;
use crate::collective::schedule::Operation;

/// Bytes that pass a link in the latency of a message: the unit of time is a byte.
pub(crate) const LATENCY_BYTES: usize = 64 << 10;

/// Bytes that a rank copies or reduces in the time in which one byte passes a link.
const LOCAL_BYTES: u128 = 12;
/// Ranks below which [`Merging`](super::Merging) is worth its messages: eight ranks and more lose no more than a
/// quarter of the rounds by folding.
const RANKS_MERGED: u32 = 8;

/// An algorithm for all-reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllReduce {
    /// With so many halvings.
    Halving(u32),
    Circulant,
    Merging,
}

/// The fastest all-reduce in which every rank hears of every other by messages: no half and no block is without an
/// element.
pub(super) fn all_reduce(operation: &Operation) -> AllReduce {
    let Operation { ranks, count, data_type, .. } = *operation;
    let (bytes, bits) = (count as u128 * data_type.size() as u128, ranks.ilog2());
    let time = |rounds: u32, sent: u128, local: u128| {
        u128::from(rounds) * LATENCY_BYTES as u128 + sent + local / LOCAL_BYTES
    };
    let (is_power, rest) = (ranks.is_power_of_two(), ranks - (1 << bits));
    // Ranks beyond a power of two send the whole buffer to a worker, and receive it again.
    let folds = if is_power { 0 } else { 2 };
    let halvings = (0..=bits.min(count.max(1).ilog2())).map(|halvings| {
        let half = bytes >> halvings;
        // Partners that exchange the same span send a copy and reduce all of it.
        let exchanged = u128::from(bits - halvings) * half;
        let sent = 2 * (bytes - half) + exchanged + u128::from(folds) * bytes;
        let local = bytes - half + 2 * exchanged;
        (time(bits + halvings + folds, sent, local), AllReduce::Halving(halvings))
    });
    let circulant = (!is_power && count >= ranks as usize).then(|| {
        let sent = 2 * (bytes - bytes / u128::from(ranks));
        (time(2 * (bits + 1), sent, bytes), AllReduce::Circulant)
    });
    let merging = (ranks < RANKS_MERGED && Merging::fits(operation)).then(|| {
        // The rest reduce, and then send to several ranks each.
        let messages = (bits + 1).max(doublings(rest) + (1_u32 << bits).div_ceil(rest));
        // Among three ranks the first receives two buffers at once before it sends.
        let messages = messages + u32::from(ranks == 3);
        (time(bits + 1, bytes * u128::from(messages), 2 * bytes * u128::from(bits + 1)), AllReduce::Merging)
    });
    let fastest = halvings.chain(circulant).chain(merging).min_by_key(|(time, _)| *time);
    fastest.map_or(AllReduce::Halving(0), |(_, fastest)| fastest)
}

/// Whether two trees, which send these pieces one behind the other, are faster than a binomial one.
pub(super) fn two_trees(operation: &Operation, pieces: &Pieces) -> bool {
    let (bytes, bits) =
        (operation.count as u128 * operation.data_type.size() as u128, doublings(operation.ranks));
    let latency = LATENCY_BYTES as u128;
    let hop = latency + 2 * pieces.longest() as u128;
    u128::from(bits + 1) * hop + bytes < u128::from(bits) * (latency + bytes)
}
