//! Asynchronous events: what happens to a device outside of any work request.
//!
//! Only such an event says that completions were lost. Workers therefore check for events as well, and keep those that
//! they find for the program to take later.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::Context;
use super::sys::{self, ibv_async_event};
use crate::error::QueryError;
use crate::log::{Held, Hold};
use crate::{AsyncEvent, EventKind, PortNum, QpNum};

/// Events kept for a context; later ones are dropped, because a program may never take any.
const KEPT_MAX: usize = 1024;
/// Events taken in one check, at most, so that a flood of events does not hold a worker up.
const CHECK_MAX: usize = 64;

/// The events that workers have taken from the library, and one descriptor for these and the library's own.
pub(super) struct Events {
    kept: Mutex<VecDeque<AsyncEvent>>,
    /// Readable while `kept` has events.
    raised: OwnedFd,
    /// Readable while `raised` or the library's descriptor is; an epoll of both.
    either: OwnedFd,
}

impl Events {
    /// Makes an empty queue without a library.
    pub(super) fn new() -> io::Result<Self> {
        let raised = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&either, &raised, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { kept: Mutex::default(), raised, either })
    }

    /// Adds the descriptor of the library, which is readable while the library has events.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.either, descriptor, EventData::new_u64(1), EventFlags::IN)?)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }

    /// Takes the next event, kept ones first; `take` asks the library.
    fn next(
        &self,
        take: impl FnOnce() -> Result<Option<AsyncEvent>, QueryError>,
    ) -> Result<Option<AsyncEvent>, QueryError> {
        let mut kept = Held::lock(|| self.kept.lock());
        let Some(event) = kept.pop_front() else { return take() };
        if kept.is_empty() {
            // An error means that there was nothing to read, which is the goal.
            let _ = rustix::io::read(&self.raised, &mut [0; 8]);
        }
        Ok(Some(event))
    }

    /// Moves the events of the library into `kept`. Does nothing while another thread takes events, since that thread
    /// finds them as well.
    fn collect(&self, mut take: impl FnMut() -> Result<Option<AsyncEvent>, QueryError>) {
        let _lines = Hold::new();
        let Some(mut kept) = self.kept.try_lock() else { return };
        for _ in 0..CHECK_MAX {
            // The program sees this error when it asks for events itself.
            let Ok(Some(event)) = take() else { return };
            if kept.len() >= KEPT_MAX {
                crate::log::debug!(kind = %event.kind, "the event queue of a context is full and an event is dropped: take them with Context::next_event");
                continue;
            }
            kept.push_back(event);
            // The only error is a full counter, and then the descriptor is readable already.
            let _ = rustix::io::write(&self.raised, &1_u64.to_ne_bytes());
        }
    }
}

/// Makes a descriptor of the library non-blocking.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

impl Context {
    /// Takes the next event; never waits.
    pub(crate) fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        self.events.next(|| take(self))
    }

    /// Checks for the event of lost completions, and keeps every event that it finds; never waits.
    pub(super) fn check_overrun(&self) {
        self.events.collect(|| take(self));
    }
}

/// Takes an event of the library.
fn take(context: &Context) -> Result<Option<AsyncEvent>, QueryError> {
    let get_async_event = context.symbols.ibv_get_async_event.clone()?;
    let ack_async_event = context.symbols.ibv_ack_async_event.clone()?;
    let mut raw = ibv_async_event::zeroed();
    // SAFETY: the context is open as long as `context`, and `raw` is ours to be written. The descriptor does not
    // block, so the call returns at once.
    if unsafe { get_async_event(context.as_ptr(), &mut raw) } != 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(context.refused("ibv_get_async_event", error)),
        };
    }
    // SAFETY: the event was just returned and is only acknowledged below, so its object is still alive.
    let event = unsafe { describe(&raw) };
    // SAFETY: each returned event is acknowledged exactly once, here, so no count of the library underflows.
    unsafe { ack_async_event(&mut raw) };
    Ok(Some(event))
}

/// Translates an event. An event of a completion queue also sets its overrun flag.
///
/// # Safety
///
/// The event is not acknowledged yet. Until then, destroying the object that it names waits, so its pointer is valid.
unsafe fn describe(raw: &ibv_async_event) -> AsyncEvent {
    let kind = EventKind(raw.event_type);
    match raw.event_type {
        sys::IBV_EVENT_QP_FATAL
        | sys::IBV_EVENT_QP_REQ_ERR
        | sys::IBV_EVENT_QP_ACCESS_ERR
        | sys::IBV_EVENT_COMM_EST
        | sys::IBV_EVENT_SQ_DRAINED
        | sys::IBV_EVENT_PATH_MIG
        | sys::IBV_EVENT_PATH_MIG_ERR
        | sys::IBV_EVENT_QP_LAST_WQE_REACHED => {
            // SAFETY: events of these types name a queue pair, which is alive, because the caller has not acknowledged
            // yet.
            let qp_num = unsafe { (*raw.element.qp).qp_num };
            AsyncEvent::new(kind, None, Some(QpNum(qp_num)))
        }
        sys::IBV_EVENT_PORT_ACTIVE
        | sys::IBV_EVENT_PORT_ERR
        | sys::IBV_EVENT_LID_CHANGE
        | sys::IBV_EVENT_PKEY_CHANGE
        | sys::IBV_EVENT_SM_CHANGE
        | sys::IBV_EVENT_CLIENT_REREGISTER
        | sys::IBV_EVENT_GID_CHANGE => {
            // SAFETY: events of these types hold a port number, so this member of the union is the valid one.
            let port = unsafe { raw.element.port_num };
            AsyncEvent::new(kind, u8::try_from(port).ok().map(PortNum), None)
        }
        sys::IBV_EVENT_CQ_ERR => {
            // SAFETY: the event names a completion queue, which is alive, because the caller has not acknowledged yet.
            // Every queue was created by `cq.rs`, with a `cq_context` that points to its flag and that the flag
            // outlives.
            unsafe {
                if let Some(overrun) = (*raw.element.cq).cq_context.cast::<AtomicBool>().as_ref() {
                    overrun.store(true, Ordering::Relaxed);
                }
            }
            AsyncEvent::new(kind, None, None)
        }
        // Events of the device, and of objects that this crate does not create.
        _ => AsyncEvent::new(kind, None, None),
    }
}

// The numbers of the public types are those of the C headers; this stops the build if they differ.
const _: () = {
    assert!(EventKind::CQ_ERR.0 == sys::IBV_EVENT_CQ_ERR && EventKind::QP_FATAL.0 == sys::IBV_EVENT_QP_FATAL);
    assert!(EventKind::QP_REQ_ERR.0 == sys::IBV_EVENT_QP_REQ_ERR);
    assert!(EventKind::QP_ACCESS_ERR.0 == sys::IBV_EVENT_QP_ACCESS_ERR);
    assert!(EventKind::DEVICE_FATAL.0 == sys::IBV_EVENT_DEVICE_FATAL);
    assert!(EventKind::PORT_ACTIVE.0 == sys::IBV_EVENT_PORT_ACTIVE);
    assert!(EventKind::PORT_ERR.0 == sys::IBV_EVENT_PORT_ERR);
};

#[cfg(any(test, fuzzing))]
#[path = "tests/fuzz.rs"]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
