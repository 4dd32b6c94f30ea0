//! Requests that are revoked while they arrive.

use std::time::Instant;

use super::{Member, Peer, Sizes, wait_for_bytes, within};
use crate::soft::Outcome;

/// Seconds of each revocation by decode of a request of which some blocks have arrived, and others have not. The peer
/// [serves](Member::serve) meanwhile, and the same link serves all requests.
///
/// # Errors
///
/// A transfer fails other than by its revocation.
pub fn revokes(member: &Member, peer: &Peer, sizes: Sizes) -> Outcome<Vec<f64>> {
    let blocks = sizes.list(0, member.role);
    let mut seconds = Vec::new();
    member.once(&peer.name, 1, &blocks)?;
    let bytes = sizes.bytes() as u64;
    for request in 2..2 + 4 * sizes.revokes as u64 {
        let grant = member.node.grant(&peer.name, request, &blocks, within()).wait()?;
        // Up to 3/4 of the bytes have arrived before they are revoked, and something has.
        wait_for_bytes(&grant, bytes * (request * 7 % 24) / 32 + 1)?;
        let begin = Instant::now();
        let verdicts = grant.revoke(within())?;
        if !verdicts.all_valid() {
            seconds.push(begin.elapsed().as_secs_f64());
        }
        if seconds.len() == sizes.revokes {
            break;
        }
    }
    if seconds.is_empty() {
        Err("all requests had arrived before they were revoked".into())
    } else {
        Ok(seconds)
    }
}
