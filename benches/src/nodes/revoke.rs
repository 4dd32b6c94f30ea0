//! Requests that are revoked while they arrive.

use std::time::Instant;

use super::{Member, Peer, Sizes, within};
use crate::soft::Outcome;

/// Seconds of each revocation by decode of a request of which some layers have arrived, and others have not. The peer
/// [serves](Member::serve) meanwhile, and the same link serves all requests.
///
/// # Errors
///
/// A transfer fails other than by its revocation.
pub fn revokes(member: &Member, peer: &Peer, sizes: Sizes) -> Outcome<Vec<f64>> {
    let blocks = sizes.list(0, member.role);
    let mut seconds = Vec::new();
    member.once(&peer.name, 1, &blocks)?;
    // Some have arrived before they are revoked.
    for request in 2..2 + 2 * sizes.revokes as u64 {
        let grant = member.node.grant(&peer.name, request, &blocks, within()).wait()?;
        grant.wait_layer((request * 7 % 24) as u32, within())?;
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
