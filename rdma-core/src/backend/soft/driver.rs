//! The thread that serves timers and sockets, and the only reader of the clock.
//!
//! It starts with the first open device and ends after the last. It sleeps until the next
//! timer or socket. Threads that poll an empty completion queue serve the sockets themselves;
//! beside them the driver naps, so as not to compete for cores and the lock, and in between
//! serves what they leave. Once a thread is about to sleep for a completion, the sockets are the
//! driver's again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_getres, clock_gettime};

use super::channel::Channel;
use super::fabric::{Fabric, FabricGuard, Guarded};
use super::naps::Naps;
use super::wire::Rendezvous;

/// How long the driver leaves the sockets to threads that poll, before it looks itself.
const NAP: Duration = Duration::from_millis(1);
/// Posts and polls in that time that make it nap. A thread that is about to sleep polls twice;
/// one that moves large messages does so every 100 us or so.
const NAP_CALLS: u64 = 4;
/// How often the lock is tried beside threads that poll, before it is waited for.
const LOCK_TRIES: u32 = 64;
const LOCK_PAUSE: Duration = Duration::from_micros(50);
/// How often in a row what is ready is left to threads that have the lock.
const MET_MAX: u32 = 4;
/// Descriptors served in one go.
const READY_MAX: usize = 32;
/// What the driver's own descriptor is called among the ready ones; sockets have greater keys.
const WAKE_KEY: u64 = 0;

/// The present.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// The present or a little later, up to two ticks of the kernel, as long as none of them comes late by another: for what is
/// seldom due, since reading the clock to the nanosecond takes as long as a small write.
pub(super) fn soon() -> Instant {
    static BEGIN: OnceLock<(Instant, Duration, Duration)> = OnceLock::new();
    let (begin, begun, ticks) = *BEGIN.get_or_init(|| {
        // Not from the last tick, which may have come late; and in this order, by which it is late if it is anything.
        let begun = clock(clock_gettime(ClockId::Monotonic));
        (now(), begun, 2 * clock(clock_getres(ClockId::MonotonicCoarse)))
    });
    begin + (last_tick() + ticks).saturating_sub(begun)
}

/// When the kernel's clock last ticked, as it counts.
fn last_tick() -> Duration {
    clock(clock_gettime(ClockId::MonotonicCoarse))
}

fn clock(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// What the thread and those who wake it share.
pub(super) struct Driver {
    /// Sockets are registered in it, with keys of the sockets' own choice.
    pub(super) epoll: Arc<OwnedFd>,
    wake: Channel,
    /// Counts posts and polls.
    calls: AtomicU64,
    naps: Naps,
    /// Whether there is any connection to be served.
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
            naps: Naps::new(),
            connected: AtomicBool::new(false),
        })
    }

    /// The holder of the lock is about to let go of it.
    pub(super) fn note(&self, guarded: &mut Guarded) {
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

    pub(super) fn wake(&self) {
        self.wake.raise();
    }

    /// A thread posts or polls, and will serve the sockets, if there are any, once it finds nothing to take.
    pub(super) fn count_call(&self) {
        if self.connected.load(Ordering::Relaxed) {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A thread is about to sleep until a completion: the driver has the sockets to itself again.
    pub(super) fn drain_mailbox(&self) {
        if self.naps.drain_mailbox() {
            self.wake.raise();
        }
    }

    /// The sockets that are ready, waiting for one until `until`; `None` is for ever.
    fn ready<'a>(&self, buffer: &'a mut [MaybeUninit<Event>; READY_MAX], wait: Wait) -> &'a [Event] {
        let timeout = match wait {
            Wait::Not => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
            Wait::Until(until) => until.map(left),
        };
        // An interruption, like any other reason, ends in another look.
        epoll::wait(&self.epoll, buffer, timeout.as_ref()).map_or(&[], |(ready, _)| ready)
    }

    /// Naps for `longest`, until `until` at the latest, unless a thread went to sleep since the last
    /// count. Whether it was woken; it is woken at once until that is taken.
    fn nap(&self, count: &Count, longest: Duration, until: Option<Instant>) -> bool {
        let mut woken = false;
        if self.naps.begin(count.arms) {
            let nap = now() + longest;
            let timeout = left(until.map_or(nap, |until| until.min(nap)));
            woken = !matches!(poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&timeout)), Ok(0));
        }
        self.naps.end();
        woken
    }

    /// Whether threads that post and poll move everything along.
    fn others_serve(&self, count: &mut Count) -> bool {
        let calls = self.calls.load(Ordering::Relaxed);
        let (arms, at) = (self.naps.arms(), now());
        let naps = at.duration_since(count.at).as_nanos() / NAP.as_nanos();
        let enough = u128::from(calls.wrapping_sub(count.calls)) >= u128::from(NAP_CALLS) * naps.max(1);
        let sleeps = arms != count.arms;
        // Between two events there is time for few calls: they add up.
        if enough || sleeps || naps > 0 {
            *count = Count { calls, arms, at, others_serve: enough && !sleeps };
        }
        count.others_serve
    }
}

/// The driver's last count of what other threads do.
#[derive(Debug, Clone, Copy)]
struct Count {
    calls: u64,
    arms: u64,
    at: Instant,
    others_serve: bool,
}

/// How long to wait for sockets.
#[derive(Debug, Clone, Copy)]
enum Wait {
    Not,
    Until(Option<Instant>),
}

fn left(until: Instant) -> Timespec {
    let left = until.saturating_duration_since(now());
    Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
}

/// Starts the thread unless it runs.
pub(super) fn start(guard: &mut FabricGuard<'_>, fabric: &'static Fabric) -> io::Result<()> {
    if !guard.guarded().running {
        std::thread::Builder::new().name("rdma-soft".to_owned()).spawn(move || run(fabric))?;
        guard.guarded().running = true;
    }
    Ok(())
}

fn run(fabric: &'static Fabric) {
    let driver = &fabric.driver;
    let mut count = Count { calls: 0, arms: 0, at: now(), others_serve: false };
    let (mut looked, mut woken, mut met) = (Looked::Nothing, false, 0);
    loop {
        if woken {
            // Only here, where timers are looked at next: who takes it and sleeps on has missed one.
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
            // Those that poll do not keep up with what it found ready and could serve.
            let longest = if looked == Looked::Served { Duration::ZERO } else { NAP };
            woken = driver.nap(&count, longest, until);
            looked = look(fabric, met == MET_MAX);
            met = if looked == Looked::Met { met + 1 } else { 0 };
        }
        if !count.others_serve {
            woken |= wait_and_serve(fabric, until);
        }
    }
}

/// The lock. Threads that post and poll would wake one that waits for it at every release, only
/// to take it again first: beside them it is tried now and then, and waited for in the end.
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

/// Serves the sockets that become ready until `until`, once; whether it was woken.
fn wait_and_serve(fabric: &Fabric, until: Option<Instant>) -> bool {
    let mut buffer = [MaybeUninit::uninit(); READY_MAX];
    let mut woken = false;
    for event in fabric.driver.ready(&mut buffer, Wait::Until(until)) {
        match event.data.u64() {
            WAKE_KEY => woken = true,
            key => serve(&mut fabric.lock(), key),
        }
    }
    woken
}

/// Serves the sockets that are ready, for a thread that has nothing else to do; whether there was any. When none is, the
/// peer may need the core to send something.
pub(super) fn poll_sockets(fabric: &Fabric) -> bool {
    if !fabric.driver.connected.load(Ordering::Relaxed) {
        return false;
    }
    let looked = look(fabric, false);
    if looked == Looked::Nothing {
        std::thread::yield_now();
    }
    looked != Looked::Nothing
}

/// What a look at the sockets came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// None was ready.
    Nothing,
    /// All that were ready were served.
    Served,
    /// Another thread had the lock.
    Met,
}

/// Serves the sockets that are ready, but for those that are while another thread has the lock: it
/// makes progress, and what is ready stays so; unless there was enough of that, and the lock is `waited` for.
fn look(fabric: &Fabric, waited: bool) -> Looked {
    let mut buffer = [MaybeUninit::uninit(); READY_MAX];
    let mut looked = Looked::Nothing;
    for event in fabric.driver.ready(&mut buffer, Wait::Not) {
        let key = event.data.u64();
        if key == WAKE_KEY {
            continue;
        }
        let guard = if waited { Some(fabric.lock()) } else { fabric.try_lock() };
        let Some(mut guard) = guard else { return Looked::Met };
        serve(&mut guard, key);
        looked = Looked::Served;
    }
    looked
}

fn serve(guard: &mut FabricGuard<'_>, key: u64) {
    let Guarded { state, sockets, rendezvous, .. } = guard.guarded();
    if Rendezvous::is_own(key) {
        rendezvous.ready(now(), key, state);
    } else {
        sockets.ready(now(), key, state);
    }
    guard.run_commands();
}

fn next_timeout(guarded: &Guarded) -> Option<Instant> {
    [guarded.sockets.poll_timeout(), guarded.rendezvous.poll_timeout(), guarded.state.earliest]
        .into_iter()
        .flatten()
        .min()
}

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
    fn soon_is_hardly_after_the_present_and_before_it_only_when_ticks_are_late() {
        let tick = clock(clock_getres(ClockId::MonotonicCoarse));
        for _ in 0..100_000 {
            let (ticked, before) = (last_tick(), now());
            let lag = clock(clock_gettime(ClockId::Monotonic)) - ticked;
            let (at, after) = (soon(), now());
            assert!(before <= at || lag > tick, "{:?} early", before - at);
            assert!(at <= after + 2 * tick, "{:?} late, with ticks of {tick:?}", at - after);
        }
    }
}
