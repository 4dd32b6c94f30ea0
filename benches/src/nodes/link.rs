//! A node beside a link made by hand: the same pools, engines and requests.

use std::net::TcpListener;
use std::time::Instant;

use rdma_collective::kv::{Decode, LinkOptions, Prefill};
use rdma_collective::link::Meet;

use super::member::TOKEN;
use super::{Member, Sizes, interleaved, is_ours, within};
use crate::pair;
use crate::soft::Outcome;

/// Is decode: seconds from the grant of a request to its last block, through the node and through a link made by hand.
/// The medians.
///
/// # Errors
///
/// A transfer fails, or a byte has not arrived.
pub fn link(member: &Member, sizes: Sizes) -> Outcome<(f64, f64)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let peers = member.meet(&listener.local_addr()?.to_string())?;
    let peer = &peers.first().ok_or("no prefill")?.name;
    let (meet, options) = (Meet::Accept(&listener), LinkOptions::default());
    let link = Decode::new(&member.engine, &member.pool, &meet, &TOKEN, &options, within())?;
    let blocks = sizes.list(0, member.role);
    let medians = interleaved(sizes.rounds, |request, by_node| {
        let begin = Instant::now();
        if by_node {
            member.once(peer, request, &blocks)?;
        } else {
            link.grant(request, &blocks, within())?.wait()?;
        }
        Ok(begin.elapsed().as_secs_f64())
    })?;
    member.verify(&blocks)?;
    Ok(medians)
}

/// Is prefill of [`link`].
///
/// # Errors
///
/// A first transfer fails.
pub fn serve_link(member: &Member, sizes: Sizes) -> Outcome<()> {
    let peers = member.meet("")?;
    let peer = peers.first().ok_or("no decode")?;
    let (meet, options) = (Meet::Connect(peer.said.parse()?), LinkOptions::default());
    let link = Prefill::new(&member.engine, &member.pool, &meet, &TOKEN, &options, within())?;
    let blocks = sizes.list(0, member.role);
    for request in 1.. {
        let moved = if is_ours(request) {
            member.once(&peer.name, request, &blocks).map(drop)
        } else {
            link.push(request, &blocks, within())?.wait().map(drop).map_err(Into::into)
        };
        match moved {
            // Decode has what it wanted; its own look at the bytes says whether they came.
            Err(_) if request > 2 => break,
            moved => moved?,
        }
    }
    Ok(pair::stay()?)
}
