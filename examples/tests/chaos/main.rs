//! Chaos: real processes that are killed, stopped and resumed at random moments while a workload checks every byte.
//!
//! The others must end by themselves, soon, and with an error that names the one at fault and nobody else. A run is
//! decided by its seed, which a failure prints: set `SOAK_SEED` to it to see that failure again. `cargo xtask soak`
//! sets `SOAK=full` for the full counts; without it there are a tenth of them, or fewer. `CHAOS_DEVICE` names the
//! device that is used, which is the software device otherwise.

#[path = "../common/mod.rs"]
mod common;

mod kvcache;
mod paused;
mod ranks;
mod seed;
mod strangers;
mod verdict;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The longest wait of a program: `-T`.
const TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer things may take where it is no soak, on a machine that does other things.
const SLACK: u32 = 5;

/// The software device.
const SOFT: &str = "soft";

/// Within that much of a kill every survivor has ended: 7 s where waits may take 5 s. The kernel tells of a death at
/// once, so that it holds on a machine that does other things; but one that is emulated may take long to end a
/// process.
fn end_of_killed_within(timeout: Duration) -> Duration {
    let time = Duration::from_secs(2);
    timeout + if device() == SOFT { time } else { slack(time) }
}

/// Within that much of a stop every survivor has ended: later than after a kill, because only silence tells of it.
fn end_of_stopped_within(timeout: Duration) -> Duration {
    timeout + slack(Duration::from_secs(2))
}

/// A time that only a soak holds to exactly.
fn slack(time: Duration) -> Duration {
    if is_full() { time } else { time * SLACK }
}

/// The device that the processes use.
fn device() -> String {
    std::env::var("CHAOS_DEVICE").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| SOFT.to_owned())
}

/// The wire of the `turn`th round: the software device has two to other processes, which take turns.
fn wire(turn: u32) -> &'static str {
    if device() == SOFT { ["mapped", "tcp"][turn as usize % 2] } else { "auto" }
}

/// How a program says in its header that it took that wire.
fn header(wire: &str) -> String {
    if wire == "auto" { ", wire ".to_owned() } else { format!(", wire {wire},") }
}

/// How many of each kind are killed: an emulated machine, which is where soft-RoCE mostly is, takes long to start them.
fn kills() -> u32 {
    count(if device() == SOFT { 50 } else { 10 })
}

/// How many times as long ranks may take to meet: they do it before the fault, by the same `-T`, and slowly on an
/// emulated machine. One that is killed is noticed at once, whatever the time they have.
fn joins_slowly() -> u32 {
    if device() == SOFT { 1 } else { 6 }
}

/// How often something is done: `full` in a soak, a tenth of that here.
fn count(full: u32) -> u32 {
    if is_full() { full } else { full / 10 }
}

fn is_full() -> bool {
    std::env::var("SOAK").is_ok_and(|soak| soak == "full")
}

/// Ends what other threads do until then, though the test fails: they are waited for.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets one scenario run at a time, because each measures how long ends take.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    println!("The processes use the device {}", device());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
