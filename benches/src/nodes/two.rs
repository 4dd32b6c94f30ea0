//! Requests to two peers at once.

use std::time::Instant;

use super::{Member, Peer, Role, Sizes, interleaved, within};
use crate::soft::Outcome;

/// Seconds of a request to each of two peers, at once and one after the other, the medians. Both peers
/// [serve](Member::serve) meanwhile.
///
/// # Errors
///
/// A transfer fails.
pub fn two(member: &Member, peers: &[Peer], sizes: Sizes) -> Outcome<(f64, f64)> {
    let blocks = sizes.list(0, Role::Prefill);
    let begin = |peer: &Peer, request| member.node.push(&peer.name, request, &blocks, within()).wait();
    interleaved(sizes.rounds, |request, at_once| {
        let started = Instant::now();
        if at_once {
            let pushes = peers.iter().map(|peer| begin(peer, request)).collect::<Result<Vec<_>, _>>()?;
            pushes.into_iter().try_for_each(|push| push.wait().map(drop))?;
        } else {
            for peer in peers {
                begin(peer, request)?.wait()?;
            }
        }
        Ok(started.elapsed().as_secs_f64())
    })
}
