//! Completion channels: a descriptor that becomes readable when a completion queue has raised an event.
#![expect(unsafe_code, reason = "owns an object of libibverbs")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::sys::ibv_comp_channel;
use super::{Context, check, event, explain, not_null};
use crate::error::{CreateError, LibraryUnavailable};
use crate::memory::pinning::PinningNeed;

/// A completion channel for one completion queue; reading from it does not wait.
///
/// # Invariants
///
/// `channel` belongs to `context`, and only this value releases it, in its drop.
pub(super) struct Channel {
    context: Arc<Context>,
    channel: NonNull<ibv_comp_channel>,
}

// SAFETY: libibverbs ties no object to a thread, and only this value releases it, so it may move to another thread.
unsafe impl Send for Channel {}

impl Channel {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CreateError> {
        let create_comp_channel = context.symbols.ibv_create_comp_channel.clone()?;
        let refused = |source| {
            explain::creation(context, "ibv_create_comp_channel", "channels", PinningNeed::length(0), source)
        };
        // SAFETY: `context` is open as long as the `Arc` lives, so the call may use it.
        let channel = not_null(unsafe { create_comp_channel(context.as_ptr()) }).map_err(refused)?;
        // INVARIANT: the channel was just created, and only this value knows it.
        let channel = Self { context: Arc::clone(context), channel };
        event::set_nonblocking(channel.fd()).map_err(refused)?;
        Ok(channel)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_comp_channel {
        self.channel.as_ptr()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel owns the descriptor and is alive as long as `self`, so it is valid for the borrow.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).fd) }
    }

    /// Takes an event; `false` when there is none. The caller must acknowledge it to the queue.
    pub(super) fn take_event(&self) -> io::Result<bool> {
        let get_cq_event = self.context.symbols.ibv_get_cq_event.clone().map_err(io::Error::other)?;
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive as long as `self`, and both results go to variables of ours. The descriptor
        // does not block, so the call returns at once.
        if unsafe { get_cq_event(self.as_ptr(), &mut cq, &mut cq_context) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
            _ => Err(error),
        }
    }

    fn destroy(&self) -> Result<io::Result<()>, LibraryUnavailable> {
        let destroy_comp_channel = self.context.symbols.ibv_destroy_comp_channel.clone()?;
        // SAFETY: the invariant says that the channel is alive; only the drop calls this, so it is not used afterwards.
        Ok(check(unsafe { destroy_comp_channel(self.as_ptr()) }))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Ok(Err(error)) = self.destroy() {
            std::mem::forget(Arc::clone(&self.context));
            crate::log::warn!(%error, device = self.context.name(), "ibv_destroy_comp_channel failed; the channel is leaked");
        }
    }
}
