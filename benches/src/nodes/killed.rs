//! Peers that are killed, and the next of their name.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::kv::KvError;
use rdma_core::Wire;

use super::{Member, Role, Sizes, within};
use crate::pair::{self, End};
use crate::soft::Outcome;

const VICTIM: &str = "prefill-0";
const SURVIVOR: &str = "decode-0";
/// Requests of which the victim pushes nothing, a block each.
const WAITING: u32 = 8;
/// The kill comes within that many microseconds after a request is under way: one takes longer.
const MOMENTS_US: u64 = 10_000;

/// The times after the deaths of peers, in seconds.
#[derive(Debug, Default)]
pub struct Deaths {
    /// From just before the signal to the error of each request with the peer.
    pub noticed: Vec<f64>,
    /// From just before the signal until a request with the next process of the name is done, its start included.
    pub replaced: Vec<f64>,
}

/// Kills one peer after the other, each a process of `arguments`, in which [`victim`] runs. This process is decode.
///
/// # Errors
///
/// A peer fails to start, a transfer fails before the kill, or an error has another reason.
pub fn deaths(wire: Wire, sizes: Sizes, arguments: &[String]) -> Outcome<Deaths> {
    let member = Member::new(wire, SURVIVOR, Role::Decode, &sizes.layout(2)?)?;
    let blocks = sizes.list(0, member.role);
    let mut deaths = Deaths::default();
    let mut killed = None;
    for round in 0..=sizes.kills as u64 {
        let mut victim = End::start(arguments)?;
        member.join(&victim.hear()?)?;
        member.once(VICTIM, 1, &blocks)?;
        deaths.replaced.extend(killed.map(|killed: Instant| killed.elapsed().as_secs_f64()));
        if round == sizes.kills as u64 {
            victim.kill()?;
            break;
        }
        let waiting = (0..WAITING).map(|at| {
            let request = u64::from(u32::MAX) + u64::from(at);
            member.node.grant(VICTIM, request, &[sizes.blocks + at], within()).wait()
        });
        let waiting = waiting.collect::<Result<Vec<_>, _>>()?;
        let moment = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let begin = thread::scope(|scope| -> Outcome<Instant> {
            let moving = scope.spawn(|| {
                for request in 2.. {
                    if let Err(error) = member.once(VICTIM, request, &blocks) {
                        return (Instant::now(), error.to_string());
                    }
                }
                (Instant::now(), String::new())
            });
            thread::sleep(Duration::from_micros(moment % MOMENTS_US));
            let begin = Instant::now();
            victim.kill()?;
            for grant in waiting {
                let Err(error) = grant.wait() else { return Err("a request has ended well".into()) };
                deaths.noticed.push(begin.elapsed().as_secs_f64());
                if !matches!(*error.cause, KvError::PeerFailed { .. }) {
                    return Err(error.into());
                }
            }
            let (at, error) = moving.join().map_err(|_| "the thread of transfers panicked")?;
            if !error.contains(VICTIM) && !error.contains("process") {
                return Err(error.into());
            }
            deaths.noticed.push((at - begin).as_secs_f64());
            Ok(begin)
        })?;
        killed = Some(begin);
    }
    Ok(deaths)
}

/// Is a peer that is killed: pushes requests from 1 on to the first node that connects.
///
/// # Errors
///
/// Nobody connects, or the first transfer fails.
pub fn victim(wire: Wire, sizes: Sizes) -> Outcome<()> {
    let member = Member::new(wire, VICTIM, Role::Prefill, &sizes.layout(1)?)?;
    pair::say(&member.line())?;
    let deadline = within();
    while member.node.peers().is_empty() {
        if deadline.expired() {
            return Err("nobody connects".into());
        }
        thread::yield_now();
    }
    member.serve(SURVIVOR, 1, &sizes.list(0, member.role), &AtomicBool::new(false))
}
