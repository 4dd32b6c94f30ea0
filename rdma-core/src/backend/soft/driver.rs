//! The driver: the one background thread of the fabric.
//!
//! The driver starts with the first open device and ends after the last. It serves timers and sockets, and sleeps in
//! epoll until the next of them. Threads that poll an empty completion queue serve the sockets themselves. While they
//! do, the driver naps a millisecond at a time, so that it does not compete for cores and the lock, and serves only
//! the sockets that they leave. Once a thread is about to sleep until a completion, the driver has the sockets to
//! itself again ([`Naps`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::Channel;
use super::clock::now;
use super::fabric::{Fabric, FabricGuard, Guarded};
use super::naps::Naps;
use super::wire::{HeldAcks, Rendezvous};

/// The length of a nap: how long the driver leaves the sockets to polling threads before it looks itself.
const NAP: Duration = Duration::from_millis(1);
/// Posts and polls of other threads within a nap that make the driver nap again. A thread that is about to sleep polls
/// twice, so two must not count as activity; a thread that moves large messages calls every 100 us or so.
const NAP_CALLS: u64 = 4;
/// Looks of other threads at the sockets within a nap that leave the driver nothing to do: each serves all that is
/// ready, and an acknowledgement that the peer waits for is held back for no more looks.
const NAP_LOOKS: u64 = HeldAcks::LOOKS_IF_ASKED;
/// Attempts to take the lock without waiting, while other threads poll; see [`lock`].
const LOCK_TRIES: u32 = 64;
/// Sleep between two such attempts.
const LOCK_PAUSE: Duration = Duration::from_micros(50);
/// Looks in a row that may leave ready sockets to the thread that holds the lock, before the driver waits for it.
const BUSY_MAX: u32 = 4;
/// Sleep after a panic, so that one that comes back at once does not keep a core.
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// Descriptors served in one round.
const READY_MAX: usize = 32;
/// The epoll key of the driver's wake-up descriptor; sockets have greater keys.
const WAKE_KEY: u64 = 0;

/// The state that the driver thread shares with the threads that wake it.
pub(super) struct Driver {
    /// Sockets register themselves here, with keys of their own choice.
    pub(super) epoll: Arc<OwnedFd>,
    pub(super) wake: Channel,
    /// Counts posts and polls while there are connections.
    calls: AtomicU64,
    /// Counts the looks at the sockets by which polling threads served all that was ready.
    looks: AtomicU64,
    naps: Naps,
    /// Acknowledgements are held back for polling threads only while the driver naps.
    pub(super) held_acks: Arc<HeldAcks>,
    /// Whether there is any connection to serve.
    connected: AtomicBool,
}

impl Driver {
    pub(super) fn new() -> io::Result<Self> {
        let (epoll, wake) = (epoll::create(epoll::CreateFlags::CLOEXEC)?, Channel::new()?);
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE_KEY), EventFlags::IN)?;
        Ok(Self {
            epoll: Arc::new(epoll),
            wake,
            calls: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            naps: Naps::new(),
            held_acks: Arc::new(HeldAcks::new()),
            connected: AtomicBool::new(false),
        })
    }

    /// Called before the lock is released: wakes the driver if a timer is due before it would wake by itself.
    pub(super) fn note_release(&self, guarded: &mut Guarded) {
        let connected = guarded.sockets.is_connected();
        if connected != self.connected.load(Ordering::Relaxed) {
            self.connected.store(connected, Ordering::Relaxed);
        }
        if let Some(until) = guarded.asleep
            && let Some(next) = next_timeout(guarded)
            && until.is_none_or(|until| next < until)
        {
            guarded.asleep = Some(Some(next));
            self.wake.raise();
        }
    }

    /// Whether there is any connection to serve.
    pub(super) fn is_connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// Counts a post or poll: such a thread serves the sockets itself when it finds no completion.
    pub(super) fn count_call(&self) {
        if self.is_connected() {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Called by a thread before it sleeps until a completion: the driver serves the sockets again.
    pub(super) fn before_sleep(&self) {
        if self.naps.announce_sleep() {
            self.wake.raise();
        }
    }

    /// Returns the descriptors that are ready, and waits for one until the timeout, if there is one.
    fn ready<'a>(
        &self,
        buffer: &'a mut [MaybeUninit<Event>; READY_MAX],
        timeout: Option<Timespec>,
    ) -> &'a [Event] {
        // An interruption, like any other error, only means that the caller looks again.
        epoll::wait(&self.epoll, buffer, timeout.as_ref()).map_or(&[], |(ready, _)| ready)
    }

    /// Naps for `longest`, until `until` at the latest, unless a thread went to sleep since the last count.
    ///
    /// Returns whether the driver was woken. The wake-up stays pending, so that later waits return at once, until
    /// [`run`] takes it.
    fn nap(&self, count: &Count, longest: Duration, until: Option<Instant>) -> bool {
        let mut woken = false;
        if self.naps.begin(count.sleeps) {
            let nap = now() + longest;
            let timeout = left(until.map_or(nap, |until| until.min(nap)));
            self.held_acks.allow(true);
            woken = !matches!(poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&timeout)), Ok(0));
            self.held_acks.allow(false);
        }
        self.naps.end();
        woken
    }

    /// Whether other threads post and poll often enough to serve the sockets.
    fn others_serve(&self, count: &mut Count) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        let (sleeps, at) = (self.naps.sleeps(), now());
        let naps = at.duration_since(count.at).as_nanos() / NAP.as_nanos();
        let enough = u128::from(calls.wrapping_sub(count.calls)) >= u128::from(NAP_CALLS) * naps.max(1);
        let went_to_sleep = sleeps != count.sleeps;
        // Within a nap there is time for few calls, so they add up until the nap is over.
        if enough || went_to_sleep || naps > 0 {
            *count = Count { calls, sleeps, at, others_serve: enough && !went_to_sleep };
        }
        count.others_serve
    }
}

/// The driver's last count of the calls of other threads.
#[derive(Debug, Clone, Copy)]
struct Count {
    calls: u64,
    sleeps: u64,
    at: Instant,
    others_serve: bool,
}

/// The time until `until`, for a system call.
fn left(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

/// Starts the driver thread unless it runs.
pub(super) fn start(guard: &mut FabricGuard<'_>, fabric: &'static Fabric) -> io::Result<()> {
    if !guard.guarded().running {
        std::thread::Builder::new().name("rdma-soft".to_owned()).spawn(move || outlive(|| run(fabric)))?;
        guard.guarded().running = true;
    }
    Ok(())
}

/// Runs `work` until it returns, and again after each panic.
///
/// A panic of the driver is a defect of the library. The thread goes on nevertheless, because `running` stays set, so
/// that nobody would start another, and every timer and socket of the process would be left to the threads that poll.
fn outlive(work: impl Fn()) {
    while let Err(payload) = catch_unwind(AssertUnwindSafe(&work)) {
        crate::log::drop_payload(payload);
        crate::log::error!(
            "the thread of the software devices panicked, and goes on: please report this defect"
        );
        std::thread::sleep(RESTART_PAUSE);
    }
}

/// The driver; returns when no device is open.
fn run(fabric: &'static Fabric) {
    let driver = &fabric.driver;
    let mut count = Count { calls: 0, sleeps: 0, at: now(), others_serve: false };
    let (mut served, mut woken, mut busy, mut napped) = (Served::Nothing, false, 0, false);
    loop {
        if woken {
            // The wake-up may be taken only here, right before the timers are served: whoever takes it elsewhere and
            // sleeps on misses a timer.
            let _ = driver.wake.consume();
        }
        let until = {
            let mut guard = lock(fabric, count.others_serve);
            guard.guarded().asleep = None;
            if guard.devices.is_empty() {
                guard.guarded().running = false;
                return;
            }
            serve_timers(&mut guard);
            let until = next_timeout(guard.guarded());
            guard.guarded().asleep = Some(until);
            until
        };
        woken = false;
        while driver.others_serve(&mut count) && !woken && until.is_none_or(|until| now() < until) {
            // Sockets that were ready and not served mean that the polling threads do not keep up: look again at once.
            let longest = if served == Served::All { Duration::ZERO } else { NAP };
            let looks = driver.looks.load(Ordering::Relaxed);
            woken = driver.nap(&count, longest, until);
            napped = true;
            if driver.looks.load(Ordering::Relaxed).wrapping_sub(looks) >= NAP_LOOKS {
                served = Served::Nothing;
                continue;
            }
            served = serve_ready(fabric, busy == BUSY_MAX);
            busy = if served == Served::LockBusy { busy + 1 } else { 0 };
            if driver.held_acks.any()
                && let Some(mut guard) = fabric.try_lock()
            {
                guard.send_held_acks();
            }
        }
        if !count.others_serve {
            if std::mem::take(&mut napped) {
                // A thread may have held an acknowledgement back up to the end of the last nap, and never look again.
                fabric.lock().send_held_acks();
            }
            woken |= wait_and_serve(fabric, until);
        }
    }
}

/// Takes the lock for the driver.
///
/// While other threads post and poll, a waiting driver would be woken at every release, only to find the lock taken
/// again: each release would cost a system call. So the driver first tries from time to time, and waits only in the
/// end.
fn lock(fabric: &Fabric, others_serve: bool) -> FabricGuard<'_> {
    let tries = if others_serve { LOCK_TRIES } else { 0 };
    for _ in 0..tries {
        if let Some(guard) = fabric.try_lock() {
            return guard;
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    fabric.lock()
}

/// Waits for sockets until `until` and serves those that are ready, once. Returns whether the driver was woken.
fn wait_and_serve(fabric: &Fabric, until: Option<Instant>) -> bool {
    let mut buffer = [MaybeUninit::uninit(); READY_MAX];
    let mut woken = false;
    for event in fabric.driver.ready(&mut buffer, until.map(left)) {
        match event.data.u64() {
            WAKE_KEY => woken = true,
            key => serve(&mut fabric.lock(), key),
        }
    }
    woken
}

/// Serves the ready sockets, for a thread that polled in vain. Returns whether any was ready; `None` without
/// connections.
///
/// Never yields the core, because the caller may hold locks of its own: whoever waits yields.
pub(super) fn poll_sockets(fabric: &Fabric) -> Option<bool> {
    if !fabric.driver.is_connected() {
        return None;
    }
    if fabric.driver.held_acks.look()
        && let Some(mut guard) = fabric.try_lock()
    {
        guard.send_held_acks();
    }
    let came = read_the_only_one(fabric).or_else(|| match serve_ready(fabric, false) {
        Served::Nothing => Some(false),
        Served::All => Some(true),
        Served::LockBusy => None,
    });
    if came.is_some() {
        fabric.driver.looks.fetch_add(1, Ordering::Relaxed);
    }
    Some(came.unwrap_or(true))
}

/// Reads the only connection, if there is just one, and returns whether anything was there. `None` if epoll must be
/// asked.
fn read_the_only_one(fabric: &Fabric) -> Option<bool> {
    let mut guard = fabric.try_lock()?;
    let Guarded { state, sockets, .. } = guard.guarded();
    let came = sockets.read_the_only_one(now(), state)?;
    guard.run_commands();
    Some(came)
}

/// The outcome of [`serve_ready`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// No socket was ready.
    Nothing,
    /// Every ready socket was served.
    All,
    /// Another thread had the lock.
    LockBusy,
}

/// Serves the sockets that are ready.
///
/// While another thread holds the lock they are left to it: that thread makes progress, and the sockets stay ready.
/// With `wait` the lock is waited for instead, so that ready sockets are not left for ever.
fn serve_ready(fabric: &Fabric, wait: bool) -> Served {
    let mut buffer = [MaybeUninit::uninit(); READY_MAX];
    let mut served = Served::Nothing;
    for event in fabric.driver.ready(&mut buffer, Some(Timespec::default())) {
        let key = event.data.u64();
        if key == WAKE_KEY {
            continue;
        }
        let guard = if wait { Some(fabric.lock()) } else { fabric.try_lock() };
        let Some(mut guard) = guard else { return Served::LockBusy };
        serve(&mut guard, key);
        served = Served::All;
    }
    served
}

/// Serves one ready descriptor.
fn serve(guard: &mut FabricGuard<'_>, key: u64) {
    let Guarded { state, sockets, rendezvous, .. } = guard.guarded();
    if Rendezvous::is_own(key) {
        rendezvous.ready(now(), key, state);
    } else {
        sockets.ready(now(), key, state);
    }
    guard.run_commands();
}

/// The earliest timer of sockets, rendezvous and state.
fn next_timeout(guarded: &Guarded) -> Option<Instant> {
    [guarded.sockets.poll_timeout(), guarded.rendezvous.poll_timeout(), guarded.state.earliest]
        .into_iter()
        .flatten()
        .min()
}

/// Handles every timer that is due.
fn serve_timers(guard: &mut FabricGuard<'_>) {
    let now = now();
    if guard.earliest.is_some_and(|earliest| now >= earliest) {
        guard.handle_timeouts(now);
    }
    let Guarded { state, sockets, rendezvous, .. } = guard.guarded();
    if sockets.poll_timeout().is_some_and(|at| now >= at) {
        sockets.handle_timeout(now, state);
    }
    if rendezvous.poll_timeout().is_some_and(|at| now >= at) {
        rendezvous.handle_timeout(now, state);
    }
    guard.run_commands();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_outlives_panics_and_ends_when_no_device_is_open() {
        let turns = AtomicU64::new(0);
        outlive(|| {
            let turn = turns.fetch_add(1, Ordering::Relaxed);
            assert!(turn == 2, "planted: turn {turn}");
        });
        assert_eq!(turns.into_inner(), 3);
    }
}
