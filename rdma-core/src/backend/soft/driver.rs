//! The thread that serves timers and sockets, and the only reader of the clock.
//!
//! It starts with the first open device and ends after the last. It sleeps until the next
//! timer or socket. Threads that poll an empty completion queue serve the sockets themselves;
//! while some do, the driver only naps, so as not to compete with them for cores and the lock.
//! Once a thread is about to sleep for a completion, the sockets are the driver's again.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::channel::Channel;
use super::fabric::{Fabric, Guarded, Hold};

/// How long the driver leaves the sockets to threads that poll, before it looks whether they still do.
const NAP: Duration = Duration::from_millis(1);
/// Looks at the sockets, since the driver last counted, that make it nap. A thread that is about
/// to sleep looks once more; one that polls and moves large messages does so every 100 us or so.
const NAP_POLLS: u64 = 4;
/// Descriptors served in one go.
const READY_MAX: usize = 32;
/// What the driver's own descriptor is called among the ready ones; sockets have greater keys.
const WAKE_KEY: u64 = 0;

/// The present.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// What the thread and those who wake it share.
pub(super) struct Driver {
    /// Sockets are registered in it, with keys of the sockets' own choice.
    pub(super) epoll: Arc<OwnedFd>,
    wake: Channel,
    /// Counts looks at the sockets by polling threads.
    polls: AtomicU64,
    /// Counts threads that were about to sleep until a completion.
    arms: AtomicU64,
    /// Whether the driver leaves the sockets to others.
    napping: AtomicBool,
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
            polls: AtomicU64::new(0),
            arms: AtomicU64::new(0),
            napping: AtomicBool::new(false),
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

    /// A thread is about to sleep until a completion: the driver has the sockets to itself again.
    ///
    /// Either the driver sees the count before it naps, or this sees that it naps.
    pub(super) fn attend(&self) {
        self.arms.fetch_add(1, Ordering::SeqCst);
        if self.napping.swap(false, Ordering::SeqCst) {
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

    /// Naps for as long as other threads poll, until `until`, or until woken.
    fn nap(&self, counted: &mut Counted, until: Option<Instant>) {
        self.napping.store(true, Ordering::SeqCst);
        while self.others_poll(counted) && until.is_none_or(|until| now() < until) {
            let nap = now() + NAP;
            let timeout = left(until.map_or(nap, |until| until.min(nap)));
            if !matches!(poll(&mut [PollFd::new(&self.wake, PollFlags::IN)], Some(&timeout)), Ok(0)) {
                break;
            }
        }
        self.napping.store(false, Ordering::SeqCst);
    }

    /// Whether threads polled since the last count, and none went to sleep.
    fn others_poll(&self, counted: &mut Counted) -> bool {
        let now =
            Counted { polls: self.polls.load(Ordering::Relaxed), arms: self.arms.load(Ordering::SeqCst) };
        let last = std::mem::replace(counted, now);
        counted.arms == last.arms && counted.polls.wrapping_sub(last.polls) >= NAP_POLLS
    }
}

/// The driver's last count of what other threads do.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    polls: u64,
    arms: u64,
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
pub(super) fn start(hold: &mut Hold<'_>, fabric: &'static Fabric) -> io::Result<()> {
    if !hold.guarded().running {
        std::thread::Builder::new().name("rdma-soft".to_owned()).spawn(move || run(fabric))?;
        hold.guarded().running = true;
    }
    Ok(())
}

fn run(fabric: &'static Fabric) {
    let driver = &fabric.driver;
    let mut counted = Counted::default();
    let mut buffer = [MaybeUninit::uninit(); READY_MAX];
    loop {
        let until = {
            let mut hold = fabric.lock();
            hold.guarded().asleep = None;
            if hold.devices.is_empty() {
                hold.guarded().running = false;
                return;
            }
            serve_timers(&mut hold);
            let until = next_timeout(hold.guarded());
            hold.guarded().asleep = Some(until);
            until
        };
        driver.nap(&mut counted, until);
        for event in driver.ready(&mut buffer, Wait::Until(until)) {
            match event.data.u64() {
                WAKE_KEY => drop(driver.wake.consume()),
                key => serve(&mut fabric.lock(), key),
            }
        }
    }
}

/// Serves the sockets that are ready, for a thread that has nothing else to do. When none is, the
/// peer may need the core to send something.
pub(super) fn poll_sockets(fabric: &Fabric) {
    let driver = &fabric.driver;
    if !driver.connected.load(Ordering::Relaxed) {
        return;
    }
    driver.polls.fetch_add(1, Ordering::Relaxed);
    let mut buffer = [MaybeUninit::uninit(); READY_MAX];
    let ready = driver.ready(&mut buffer, Wait::Not);
    if ready.is_empty() {
        std::thread::yield_now();
    }
    for event in ready {
        // Whoever has the lock makes progress, and what is ready stays so.
        if event.data.u64() != WAKE_KEY
            && let Some(mut hold) = fabric.try_lock()
        {
            serve(&mut hold, event.data.u64());
        }
    }
}

fn serve(hold: &mut Hold<'_>, key: u64) {
    let Guarded { state, sockets, .. } = hold.guarded();
    sockets.ready(now(), key, state);
    hold.settle();
}

fn next_timeout(guarded: &Guarded) -> Option<Instant> {
    [guarded.sockets.poll_timeout(), guarded.state.earliest].into_iter().flatten().min()
}

fn serve_timers(hold: &mut Hold<'_>) {
    let now = now();
    if hold.earliest.is_some_and(|earliest| now >= earliest) {
        hold.handle_timeouts(now);
    }
    let Guarded { state, sockets, .. } = hold.guarded();
    if sockets.poll_timeout().is_some_and(|at| now >= at) {
        sockets.handle_timeout(now, state);
    }
    hold.settle();
}
