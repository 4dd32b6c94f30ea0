//! Layers that are sent while the next are computed.

use std::thread;
use std::time::{Duration, Instant};

use super::{Member, Peer, Role, Sizes, interleaved, within};
use crate::soft::Outcome;

/// Seconds from the beginning of a computation to the confirmation of the last block: layer by layer, and sent at the
/// end. The medians. The peer [serves](Member::serve) meanwhile.
///
/// The computation takes as long as the request before it took to move. It is a wait that leaves the core, because a
/// GPU computes while the processor is free, and each layer is done at its time, however late the thread woke before.
///
/// # Errors
///
/// A transfer fails.
pub fn stream(member: &Member, peer: &Peer, sizes: Sizes) -> Outcome<(f64, f64)> {
    let blocks = sizes.list(0, Role::Prefill);
    let layers = member.pool.layout().layers();
    let mut request = 0;
    interleaved(sizes.rounds, |_, by_layer| {
        request += 2;
        let started = Instant::now();
        member.once(&peer.name, request - 1, &blocks)?;
        let (compute, started) = (started.elapsed(), Instant::now());
        let done = |layer: u32| sleep_until(started + compute * (layer + 1) / layers);
        let push = if by_layer {
            let push = member.node.push_layers(&peer.name, request, &blocks, within()).wait()?;
            for layer in 0..layers {
                done(layer);
                push.layer_ready(layer)?;
            }
            push
        } else {
            done(layers - 1);
            member.node.push(&peer.name, request, &blocks, within()).wait()?
        };
        push.wait()?;
        Ok(started.elapsed().as_secs_f64())
    })
}

fn sleep_until(moment: Instant) {
    let left = moment.saturating_duration_since(Instant::now());
    if left > Duration::ZERO {
        thread::sleep(left);
    }
}
