//! Time that calls take in the caller's thread while requests of 256 MiB are under way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::kv::layout::{Layout, Model, Order};
use rdma_collective::kv::{Decode, KvError, LinkOptions, Pool, PoolUse, Prefill};
use rdma_core::{Deadline, Device, SoftOptions, Wire};

use super::joined::joined;
use crate::soft::Outcome;

const LIMIT: Duration = Duration::from_secs(120);
/// Blocks of a request: with 32 layers these are 4096 of 64 KiB.
const EACH: u32 = 128;
/// Calls that are timed: five in each round.
const CALLS: usize = 10_000;
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

/// Measures 10,000 calls that begin, announce and give up transfers, over a link on which others run.
///
/// # Errors
///
/// The device's refusal, and a transfer that fails.
pub fn pauses(wire: Wire) -> Outcome<Pauses> {
    let layout = Layout::new(Model::LLAMA_3_1_8B.shape(16, 2 * EACH, Order::LayerBlockPart))?;
    let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open()?;
    let engine = || Engine::new(&context, EngineOptions::default());
    let (at_prefill, at_decode) = (engine()?, engine()?);
    let source = Pool::allocate(&at_prefill, &layout, PoolUse::Source)?;
    let destination = Pool::allocate(&at_decode, &layout, PoolUse::Destination)?;
    let (prefill, decode) = joined(
        (&at_prefill, &source),
        (&at_decode, &destination),
        &LinkOptions::default(),
        Deadline::after(LIMIT),
    )?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let runs = scope.spawn(|| run(&prefill, &decode, &done));
        let naps = scope.spawn(|| nap(&done));
        let calls = call(&prefill, &decode);
        done.store(true, Ordering::Relaxed);
        let idle = naps.join().map_err(|_| "the idle thread panicked")?;
        runs.join().map_err(|_| "the thread of transfers panicked")??;
        let mut calls = calls?;
        calls.sort_by(f64::total_cmp);
        let at = |share: usize| calls.get(calls.len() * share / 100).or(calls.last()).copied();
        Ok(Pauses {
            p99: at(99).unwrap_or_default(),
            longest: at(100).unwrap_or_default(),
            idle: idle.as_secs_f64(),
        })
    })
}

/// Moves one request after the other.
fn run(prefill: &Prefill, decode: &Decode, done: &AtomicBool) -> Outcome<()> {
    let blocks: Vec<u32> = (0..EACH).collect();
    for request in (0..).take_while(|_| !done.load(Ordering::Relaxed)) {
        let grant = decode.grant(request, &blocks, Deadline::after(LIMIT))?;
        prefill.push(request, &blocks, Deadline::after(LIMIT))?.wait()?;
        grant.wait()?;
    }
    Ok(())
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

/// Times calls on requests that are given up again.
fn call(prefill: &Prefill, decode: &Decode) -> Outcome<Vec<f64>> {
    let blocks: Vec<u32> = (EACH..2 * EACH).collect();
    let mut seconds = Vec::with_capacity(CALLS);
    let mut request = 1_u64 << 32;
    while seconds.len() < CALLS {
        request += 1;
        let (deadline, begin) = (Deadline::after(LIMIT), Instant::now());
        let grant = match decode.grant(request, &blocks, deadline) {
            // The one before is being given up.
            Err(KvError::Held { .. }) => {
                thread::sleep(NAP);
                continue;
            }
            grant => grant?,
        };
        let granted = Instant::now();
        let push = prefill.push_layers(request, &blocks, deadline)?;
        let pushed = Instant::now();
        // The grant may have been given up, but not by this thread.
        push.layer_ready(0)?;
        let announced = Instant::now();
        grant.revoke_token().revoke(deadline);
        let cancelled = Instant::now();
        drop(push);
        let dropped = Instant::now();
        let moments = [begin, granted, pushed, announced, cancelled, dropped];
        seconds.extend(moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()));
        drop(grant);
    }
    Ok(seconds)
}
