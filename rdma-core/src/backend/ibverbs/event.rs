//! Asynchronous events: what happens to a device outside any work request.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Context;
use super::sys::{self, ibv_async_event};
use crate::error::QueryError;
use crate::{AsyncEvent, EventKind, PortNum, QpNum};

/// Makes a descriptor of the library's return at once when it has nothing.
pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor)?;
    Ok(rustix::fs::fcntl_setfl(descriptor, flags | rustix::fs::OFlags::NONBLOCK)?)
}

/// The next event, without waiting.
pub(super) fn next(context: &Context) -> Result<Option<AsyncEvent>, QueryError> {
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
