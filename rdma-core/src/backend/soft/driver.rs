//! The thread that serves timers and sockets, and the only reader of the clock.
//!
//! It starts with the first open device and ends after the last. It sleeps until the next
//! timer or socket. Threads that poll an empty completion queue serve the sockets themselves;
//! while some do, the driver only naps, so as not to compete with them for cores. Once a thread
//! is about to sleep for a completion, the sockets are the driver's again.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use super::channel::Channel;
use super::fabric::{Fabric, Guarded, Hold};

/// How long the driver leaves the sockets to threads that poll; so much later it sees that
/// they have stopped.
const NAP: Duration = Duration::from_micros(200);
/// Descriptors served in one go.
const READY_MAX: usize = 32;

/// How the driver sleeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sleep {
    until: Option<Instant>,
    /// The sockets do not wake it.
    nap: bool,
}

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
    /// Whether there is any connection to be served.
    connected: AtomicBool,
}

impl Driver {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?),
            wake: Channel::new()?,
            polls: AtomicU64::new(0),
            connected: AtomicBool::new(false),
        })
    }

    /// A thread polls: whether there are sockets for it to serve.
    pub(super) fn begin_poll(&self) -> bool {
        let connected = self.connected.load(Ordering::Relaxed);
        if connected {
            self.polls.fetch_add(1, Ordering::Relaxed);
        }
        connected
    }

    /// The holder of the lock is about to let go of it.
    pub(super) fn note(&self, guarded: &mut Guarded) {
        let connected = guarded.sockets.is_connected();
        if connected != self.connected.load(Ordering::Relaxed) {
            self.connected.store(connected, Ordering::Relaxed);
        }
        let Some(sleep) = guarded.asleep else { return };
        let next = next_timeout(guarded);
        let too_long = next.is_some_and(|next| sleep.until.is_none_or(|until| next < until));
        if too_long || (sleep.nap && guarded.state.armed > 0) {
            // It looks for itself, once.
            guarded.asleep = None;
            self.wake.raise();
        }
    }

    pub(super) fn wake(&self) {
        self.wake.raise();
    }

    /// Sleeps until its time, until woken, or until a socket is ready.
    fn sleep(&self, sleep: Sleep) {
        let timeout = sleep.until.map(|until| {
            let left = until.saturating_duration_since(now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let mut fds = [PollFd::new(&self.wake, PollFlags::IN), PollFd::new(&self.epoll, PollFlags::IN)];
        let count = if sleep.nap { 1 } else { 2 };
        // An interruption, like any other reason, ends in another look.
        let _ = poll(&mut fds[..count], timeout.as_ref());
        let _ = self.wake.consume();
    }
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
    let mut polls = 0;
    loop {
        let sleep = {
            let mut hold = fabric.lock();
            if hold.devices.is_empty() {
                hold.guarded().running = false;
                return;
            }
            serve_sockets(&mut hold);
            serve_timers(&mut hold);
            let seen = hold.driver.polls.load(Ordering::Relaxed);
            let nap = seen != polls && hold.armed == 0;
            polls = seen;
            let due = next_timeout(hold.guarded());
            let until = if nap { due.into_iter().chain([now() + NAP]).min() } else { due };
            let sleep = Sleep { until, nap };
            hold.guarded().asleep = Some(sleep);
            sleep
        };
        fabric.driver.sleep(sleep);
        fabric.lock().guarded().asleep = None;
    }
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

/// Serves the sockets that are ready, without waiting; tells whether any was.
pub(super) fn serve_sockets(hold: &mut Hold<'_>) -> bool {
    let mut buffer = [std::mem::MaybeUninit::<epoll::Event>::uninit(); READY_MAX];
    let instantly = Timespec { tv_sec: 0, tv_nsec: 0 };
    let Ok((ready, _)) = epoll::wait(&hold.driver.epoll, &mut buffer, Some(&instantly)) else { return false };
    let any = !ready.is_empty();
    for event in ready {
        let Guarded { state, sockets, .. } = hold.guarded();
        sockets.ready(now(), event.data.u64(), state);
        hold.settle();
    }
    any
}
