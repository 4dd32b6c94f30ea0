//! Asynchronous events: what happens to a device outside any work request.
//!
//! That completions were lost is told by such an event alone. Workers therefore look, too, and what they find for
//! others is kept until it is asked for.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};

use super::Context;
use super::sys::{self, ibv_async_event};
use crate::error::QueryError;
use crate::{AsyncEvent, EventKind, PortNum, QpNum};

/// Events kept for a context that does not ask; later ones are dropped.
const KEPT_MAX: usize = 1024;
/// Events taken in one look.
const LOOK_MAX: usize = 64;

/// The events that a look has taken from the library, and a descriptor for those and the library's own.
pub(super) struct Events {
    kept: Mutex<VecDeque<AsyncEvent>>,
    /// Readable while there are some in `kept`.
    raised: OwnedFd,
    /// Readable while `raised` or the library's descriptor is.
    either: OwnedFd,
}

impl Events {
    /// None yet, and no library to take them from.
    pub(super) fn new() -> io::Result<Self> {
        let raised = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let either = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&either, &raised, EventData::new_u64(0), EventFlags::IN)?;
        Ok(Self { kept: Mutex::default(), raised, either })
    }

    /// Tells of the library's events, too, which it has when `descriptor` is readable.
    pub(super) fn watch(&self, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::add(&self.either, descriptor, EventData::new_u64(1), EventFlags::IN)?)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }

    /// The next event, the kept ones first; `take` asks the library.
    fn next(
        &self,
        take: impl FnOnce() -> Result<Option<AsyncEvent>, QueryError>,
    ) -> Result<Option<AsyncEvent>, QueryError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(event) = kept.pop_front() else { return take() };
        if kept.is_empty() {
            // Nothing to read is what is wanted.
            let _ = rustix::io::read(&self.raised, &mut [0; 8]);
        }
        Ok(Some(event))
    }

    /// Takes what the library has, and keeps it. Does nothing while another thread takes some.
    fn look(&self, mut take: impl FnMut() -> Result<Option<AsyncEvent>, QueryError>) {
        let Ok(mut kept) = self.kept.try_lock() else { return };
        for _ in 0..LOOK_MAX {
            // An error is told to whoever asks for events.
            let Ok(Some(event)) = take() else { return };
            if kept.len() >= KEPT_MAX {
                tracing::debug!(kind = %event.kind, "nobody takes this context's events; one is dropped");
                continue;
            }
            kept.push_back(event);
            // The one error is a full counter, and then it is readable already.
            let _ = rustix::io::write(&self.raised, &1_u64.to_ne_bytes());
        }
    }
}

/// Makes a descriptor of the library's return at once when it has nothing.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// The next event, without waiting.
pub(super) fn next(context: &Context) -> Result<Option<AsyncEvent>, QueryError> {
    context.events().next(|| take(context))
}

/// Looks whether completions were lost, without waiting, for a completion queue that has nothing to tell.
pub(super) fn look(context: &Context) {
    context.events().look(|| take(context));
}

/// Takes an event of the library's.
fn take(context: &Context) -> Result<Option<AsyncEvent>, QueryError> {
    let get_async_event = context.symbols.ibv_get_async_event.clone()?;
    let ack_async_event = context.symbols.ibv_ack_async_event.clone()?;
    let mut raw = ibv_async_event::zeroed();
    // SAFETY: the context is open, and its descriptor does not block.
    if unsafe { get_async_event(context.as_ptr(), &mut raw) } != 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(context.refused("ibv_get_async_event", error)),
        };
    }
    // SAFETY: the event was returned just now and is not acknowledged yet.
    let event = unsafe { describe(&raw) };
    // SAFETY: once for each event that was returned.
    unsafe { ack_async_event(&mut raw) };
    Ok(Some(event))
}

/// # Safety
///
/// The event is not acknowledged: until then destroying the object that it names waits, so that its pointer is valid.
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
            // SAFETY: an event of these names a queue pair, alive as the caller promised.
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
            // SAFETY: an event of these holds a port number.
            let port = unsafe { raw.element.port_num };
            AsyncEvent::new(kind, u8::try_from(port).ok().map(PortNum), None)
        }
        sys::IBV_EVENT_CQ_ERR => {
            // SAFETY: names a completion queue, alive as the caller promised; ours were all created with a pointer to
            // their flag, which lives as long (see `cq.rs`).
            unsafe {
                if let Some(overrun) = (*raw.element.cq).cq_context.cast::<AtomicBool>().as_ref() {
                    overrun.store(true, Ordering::Relaxed);
                }
            }
            AsyncEvent::new(kind, None, None)
        }
        // Of the device, or of an object that this crate does not create.
        _ => AsyncEvent::new(kind, None, None),
    }
}

// What the public type calls these numbers is what the headers call them.
const _: () = {
    assert!(EventKind::CQ_ERR.0 == sys::IBV_EVENT_CQ_ERR && EventKind::QP_FATAL.0 == sys::IBV_EVENT_QP_FATAL);
    assert!(EventKind::QP_REQ_ERR.0 == sys::IBV_EVENT_QP_REQ_ERR);
    assert!(EventKind::QP_ACCESS_ERR.0 == sys::IBV_EVENT_QP_ACCESS_ERR);
    assert!(EventKind::DEVICE_FATAL.0 == sys::IBV_EVENT_DEVICE_FATAL);
    assert!(EventKind::PORT_ACTIVE.0 == sys::IBV_EVENT_PORT_ACTIVE);
    assert!(EventKind::PORT_ERR.0 == sys::IBV_EVENT_PORT_ERR);
};

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(descriptor: BorrowedFd<'_>) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    /// A library's descriptor, and the events that it has.
    struct Library(OwnedFd, VecDeque<AsyncEvent>);

    impl Library {
        fn with(count: u8) -> Self {
            let descriptor = eventfd(u32::from(count.min(1)), EventfdFlags::NONBLOCK).unwrap();
            Self(descriptor, (0..count).map(event).collect())
        }

        fn take(&mut self) -> Result<Option<AsyncEvent>, QueryError> {
            let event = self.1.pop_front();
            if self.1.is_empty() {
                let _ = rustix::io::read(&self.0, &mut [0; 8]);
            }
            Ok(event)
        }
    }

    fn event(port: u8) -> AsyncEvent {
        AsyncEvent::new(EventKind::PORT_ACTIVE, Some(PortNum(port)), None)
    }

    #[test]
    fn what_a_look_finds_is_told_in_order_before_what_comes_later() {
        let mut library = Library::with(3);
        let events = Events::new().unwrap();
        events.watch(library.0.as_fd()).unwrap();
        assert!(readable(events.fd()));
        events.look(|| library.take());
        assert!(library.1.is_empty() && readable(events.fd()), "whoever sleeps for events is not told");
        library.1.push_back(event(3));
        rustix::io::write(&library.0, &1_u64.to_ne_bytes()).unwrap();
        for port in 0..4 {
            assert!(readable(events.fd()));
            assert_eq!(events.next(|| library.take()).unwrap(), Some(event(port)));
        }
        assert!(!readable(events.fd()));
        assert_eq!(events.next(|| library.take()).unwrap(), None);
    }

    #[test]
    fn what_nobody_asks_for_is_bounded() {
        let mut library = Library::with(0);
        let events = Events::new().unwrap();
        events.watch(library.0.as_fd()).unwrap();
        let mut asked = 0;
        events.look(|| {
            asked += 1;
            Ok(Some(event(0)))
        });
        assert_eq!(asked, LOOK_MAX);
        for _ in 0..2 * KEPT_MAX {
            events.look(|| Ok(Some(event(0))));
        }
        let mut kept = 0;
        while events.next(|| library.take()).unwrap().is_some() {
            kept += 1;
        }
        assert_eq!(kept, KEPT_MAX);
        assert!(!readable(events.fd()));
    }
}
