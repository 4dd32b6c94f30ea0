//! Both ends of a link in this process.

use std::net::TcpListener;
use std::thread;

use rdma_collective::bootstrap::JobToken;
use rdma_collective::engine::Engine;
use rdma_collective::kv::{Decode, LinkOptions, Pool, Prefill};
use rdma_collective::link::Meet;
use rdma_core::Deadline;

use crate::soft::Outcome;

/// Links the pool of prefill to that of decode, each with its engine.
///
/// # Errors
///
/// The device's refusal, and ends that do not meet by `deadline`.
pub fn joined(
    (at_prefill, source): (&Engine, &Pool),
    (at_decode, destination): (&Engine, &Pool),
    options: &LinkOptions,
    deadline: Deadline,
) -> Outcome<(Prefill, Decode)> {
    let (listener, token) = (TcpListener::bind("127.0.0.1:0")?, JobToken::random()?);
    let address = listener.local_addr()?;
    let (prefill, decode) = thread::scope(|scope| {
        let prefill = scope
            .spawn(|| Prefill::new(at_prefill, source, &Meet::Connect(address), &token, options, deadline));
        let meet = Meet::Accept(&listener);
        let decode = Decode::new(at_decode, destination, &meet, &token, options, deadline);
        (prefill.join(), decode)
    });
    Ok((prefill.map_err(|_| "prefill's thread panicked")??, decode?))
}
