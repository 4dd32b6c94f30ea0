//! Completion queues: creation, polling, notification. Entries become completions in [`super::worker`].
#![expect(unsafe_code, reason = "owns an object of libibverbs")]

use std::ffi::c_uint;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::channel::Channel;
use super::sys::{self, ibv_cq, ibv_wc};
use super::{Context, check, explain, not_null};
use crate::WorkerOptions;
use crate::error::{CreateError, PollError};
use crate::memory::pinning::PinningNeed;

/// Events taken in one call, at most. More wait for the next call, because the descriptor stays readable.
const EVENTS_MAX: u32 = 64;

/// Empty polls between two checks for the event of lost completions. A check is one system call: at this distance it
/// adds less than a hundredth to the cost of polling, and a loss is noticed within a fraction of a second.
const CHECK_EVERY: u32 = 4096;

/// A completion queue with a channel of its own.
///
/// # Invariants
///
/// `cq` belongs to `channel`, and only this value releases it, in its drop. Its `cq_context` points to `overrun`, which
/// outlives it.
pub(super) struct CompletionQueue {
    channel: Channel,
    cq: NonNull<ibv_cq>,
    /// Set when the device reports that completions were lost.
    overrun: Arc<AtomicBool>,
    /// Events taken from the channel and not yet acknowledged. `ibv_destroy_cq` waits for these.
    unacknowledged: c_uint,
    /// Requests to notify that may have raised an event which was not taken yet: each raises one at most.
    requested: u32,
    empty_polls: u32,
}

// SAFETY: libibverbs ties no object to a thread, and only this value releases it, so it may move to another thread.
unsafe impl Send for CompletionQueue {}

impl CompletionQueue {
    pub(super) fn new(context: &Arc<Context>, options: &WorkerOptions) -> Result<Self, CreateError> {
        let create_cq = context.symbols.ibv_create_cq.clone()?;
        let limit = context.limits.device.max_cqe;
        let cqe = libc::c_int::try_from(options.max_cqe).ok().filter(|_| options.max_cqe <= limit);
        let Some(cqe) = cqe else {
            return Err(CreateError::BeyondLimit {
                option: "max_cqe",
                asked: options.max_cqe.into(),
                limit: limit.into(),
            });
        };
        let channel = Channel::new(context)?;
        let overrun = Arc::new(AtomicBool::new(false));
        let cq_context = Arc::as_ptr(&overrun).cast_mut().cast();
        // SAFETY: `context` is open and `channel` belongs to it, so the call may use both; every device has vector 0.
        // The flag behind `cq_context` outlives the queue.
        let cq = not_null(unsafe { create_cq(context.as_ptr(), cqe, cq_context, channel.as_ptr(), 0) });
        let cq = cq.map_err(|source| {
            let rings = PinningNeed::about(explain::ring(options.max_cqe, 64));
            explain::creation(context, "ibv_create_cq", "completion queues", rings, source)
        })?;
        // INVARIANT: the queue was just created, with a pointer to the flag, which this value keeps; a failed drop
        // leaks it.
        Ok(Self { channel, cq, overrun, unacknowledged: 0, requested: 0, empty_polls: 0 })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.channel.context()
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.cq.as_ptr()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Takes completions and returns their number.
    pub(super) fn poll(&mut self, out: &mut [ibv_wc]) -> Result<usize, PollError> {
        // SAFETY: the queue is alive as long as `self`, since only the drop destroys it.
        let polled = unsafe { sys::ibv_poll_cq(self.as_ptr(), out) };
        if polled == 0 {
            self.empty_polls = self.empty_polls.wrapping_add(1);
            if self.empty_polls.is_multiple_of(CHECK_EVERY) {
                self.context().check_overrun();
            }
        }
        let overrun = self.overrun.load(Ordering::Relaxed);
        match usize::try_from(polled) {
            Ok(0) if overrun => Err(PollError::Overrun),
            Ok(polled) => Ok(polled.min(out.len())),
            Err(_) if overrun => Err(PollError::Overrun),
            // Providers return -1 without an errno, -2 for a queue that they cannot read, or an errno.
            Err(_) => Err(refused(
                "ibv_poll_cq",
                io::Error::from_raw_os_error(match -polled {
                    1 | 2 => libc::EIO,
                    errno => errno,
                }),
            )),
        }
    }

    /// Makes the next completion raise an event. Checks for lost completions first, because a thread that sleeps for
    /// one that was lost would sleep for ever.
    pub(super) fn request_notify(&mut self) -> Result<(), PollError> {
        self.context().check_overrun();
        self.requested = self.requested.saturating_add(1);
        // SAFETY: the queue is alive as long as `self`, since only the drop destroys it.
        check(unsafe { sys::ibv_req_notify_cq(self.as_ptr(), false) })
            .map_err(|source| refused("ibv_req_notify_cq", source))
    }

    /// Takes and acknowledges the events raised so far. To ask for more events than were requested would be a system
    /// call in vain with each event.
    pub(super) fn consume_events(&mut self) -> Result<(), PollError> {
        let mut taken = Ok(true);
        for _ in 0..self.requested.clamp(1, EVENTS_MAX) {
            taken = self.channel.take_event();
            match taken {
                Ok(true) => {
                    self.unacknowledged += 1;
                    self.requested = self.requested.saturating_sub(1);
                }
                Ok(false) => {
                    // At most the last request still has its event to come.
                    self.requested = self.requested.min(1);
                    break;
                }
                Err(_) => break,
            }
        }
        self.acknowledge(); // also after an error, because every taken event must be acknowledged
        taken.map(drop).map_err(|source| refused("ibv_get_cq_event", source))
    }

    /// Acknowledges all taken events with one call, since each call takes a lock of the queue.
    fn acknowledge(&mut self) {
        if let (1.., Ok(ack_cq_events)) = (self.unacknowledged, &self.context().symbols.ibv_ack_cq_events) {
            // SAFETY: the queue is alive, since only the drop destroys it, and exactly this many of its events are
            // taken and not acknowledged.
            unsafe { ack_cq_events(self.as_ptr(), self.unacknowledged) };
            self.unacknowledged = 0;
        }
    }

    fn destroy(&mut self) -> io::Result<()> {
        let destroy_cq = self.context().symbols.ibv_destroy_cq.clone().map_err(io::Error::other)?;
        self.acknowledge(); // otherwise the library waits for it for ever
        // SAFETY: the invariant says that the queue is alive; only the drop calls this, so it is not used afterwards.
        // The worker drops its queue pairs first.
        check(unsafe { destroy_cq(self.as_ptr()) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        if let Err(error) = self.destroy() {
            // The flag must outlive the queue. The channel's drop finds the channel busy, and leaks it as well.
            std::mem::forget(Arc::clone(&self.overrun));
            std::mem::forget(Arc::clone(self.context()));
            crate::log::warn!(%error, device = self.context().name(), "ibv_destroy_cq failed; the queue is leaked");
        }
    }
}

fn refused(verb: &'static str, source: io::Error) -> PollError {
    PollError::Refused { verb, source }
}
