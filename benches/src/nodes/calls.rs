//! Time that calls take in the caller's thread while another request is under way to the same peer.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::kv::{Begin, Begun, KvError, Revocable, Transfer};

use super::{Member, Role, Sizes, wait_for_bytes, within};
use crate::samples::percentile;
use crate::soft::Outcome;

/// The numbers of requests whose calls are timed; the others count from 1.
const TIMED: u64 = 1 << 32;
/// The sleep of the thread that has nothing to do.
const NAP: Duration = Duration::from_micros(500);

/// How long calls take.
#[derive(Debug, Clone, Copy)]
pub struct Pauses {
    /// Seconds that 99 of 100 calls take at most.
    pub p99: f64,
    /// Seconds of the longest call.
    pub longest: f64,
    /// Seconds that a thread without work woke late at most, in the same run.
    pub idle: f64,
}

impl Pauses {
    /// Seconds by which the longest call took longer than the worst pause of the thread without work.
    #[must_use]
    pub fn beyond_idle(&self) -> f64 {
        (self.longest - self.idle).max(0.0)
    }
}

/// Times calls that begin, announce layers, extend, look at the progress and at layers as a task does, and give up,
/// while another thread moves one request after the other. Requests are given up when they are under way, by
/// `start_revoke` and by a drop in turn. The calls that drive the engine, `poll` and its sisters, are not among them:
/// they do the engine's work, and copy if there is something to copy.
///
/// # Errors
///
/// A transfer fails.
pub fn calls(member: &Member, peer: &str, sizes: Sizes) -> Outcome<Pauses> {
    let [low, high] = [0, 1].map(|at| sizes.list(at, member.role));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let runs = scope.spawn(|| member.serve(peer, 1, &low, &done));
        let naps = scope.spawn(|| nap(&done));
        let calls = timed(member, peer, &high, sizes.calls);
        done.store(true, Ordering::Relaxed);
        let idle = naps.join().map_err(|_| "the idle thread panicked")?;
        runs.join().map_err(|_| "the thread of transfers panicked")??;
        let calls = calls?;
        Ok(Pauses {
            p99: percentile(calls.clone(), 99),
            longest: percentile(calls, 100),
            idle: idle.as_secs_f64(),
        })
    })
}

/// Is the other end of [`calls`].
///
/// # Errors
///
/// A first transfer fails.
pub fn serve_both(member: &Member, peer: &str, sizes: Sizes) -> Outcome<()> {
    let [low, high] = [0, 1].map(|at| sizes.list(at, member.role));
    let never = AtomicBool::new(false);
    thread::scope(|scope| {
        let runs = scope.spawn(|| member.serve(peer, 1, &low, &never));
        let served = member.serve(peer, TIMED, &high, &never);
        runs.join().map_err(|_| "the thread of transfers panicked")??;
        served
    })
}

/// The most that a thread without work wakes late.
fn nap(done: &AtomicBool) -> Duration {
    let mut late = Duration::ZERO;
    while !done.load(Ordering::Relaxed) {
        let begin = Instant::now();
        thread::sleep(NAP);
        late = late.max(begin.elapsed().saturating_sub(NAP));
    }
    late
}

/// The seconds of calls so far.
#[derive(Default)]
struct Clock(Vec<f64>);

impl Clock {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let returned = call();
        self.0.push(begin.elapsed().as_secs_f64());
        returned
    }

    /// Times the beginning of a transfer, over a link that is up.
    fn begin<K: Begun>(&mut self, begin: impl FnOnce() -> Begin<K>) -> Outcome<Transfer<K>> {
        Ok(self.time(|| begin().try_now()).map_err(|_| "the link is not up any more")??)
    }

    /// Times a task's look at a layer.
    fn look(&mut self, layer: &mut (impl Future + Unpin)) {
        let mut context = Context::from_waker(Waker::noop());
        drop(self.time(|| Pin::new(layer).poll(&mut context)));
    }

    /// Times giving a transfer up, and waits until its blocks are free.
    fn give_up<K: Revocable>(
        &mut self,
        transfer: Transfer<K>,
        member: &Member,
        by_drop: bool,
    ) -> Outcome<()> {
        let blocks = transfer.blocks().to_vec();
        let revoking = if by_drop {
            self.time(|| drop(transfer));
            None
        } else {
            Some(self.time(|| transfer.start_revoke(within())))
        };
        let deadline = within();
        while blocks.iter().any(|block| member.pool.held(*block).is_some()) {
            if deadline.expired() {
                return Err("blocks of a request that was given up stay held".into());
            }
            thread::sleep(NAP);
        }
        drop(revoking);
        Ok(())
    }
}

fn timed(member: &Member, peer: &str, blocks: &[u32], calls: usize) -> Outcome<Vec<f64>> {
    let mut clock = Clock::default();
    let layers = member.pool.layout().layers();
    // The first request waits for the link.
    member.once(peer, TIMED, blocks)?;
    for request in TIMED + 1.. {
        let by_drop = request % 2 == 0;
        match member.role {
            Role::Prefill => {
                let push = clock.begin(|| member.node.push_layers(peer, request, blocks, within()))?;
                clock.time(|| push.layer_ready(0))?;
                push.wait_layer_sent(0, within())?;
                for layer in 1..layers {
                    clock.time(|| push.layer_ready(layer))?;
                }
                clock.time(|| push.progress());
                clock.time(|| push.extend(within())).or_else(ended_well)?;
                clock.look(&mut push.layer_sent(layers - 1));
                clock.give_up(push, member, by_drop)?;
            }
            Role::Decode => {
                let grant = clock.begin(|| member.node.grant(peer, request, blocks, within()))?;
                wait_for_bytes(&grant, 1)?;
                clock.time(|| grant.extend(within())).or_else(ended_well)?;
                clock.time(|| grant.progress());
                for layer in 0..layers {
                    clock.look(&mut grant.layer(layer));
                }
                clock.give_up(grant, member, by_drop)?;
            }
        }
        if clock.0.len() >= calls {
            break;
        }
    }
    Ok(clock.0)
}

/// Whether a request could not be extended because it had ended well.
fn ended_well(error: KvError) -> Outcome<()> {
    if matches!(error, KvError::AlreadyEnded { .. }) { Ok(()) } else { Err(error.into()) }
}
