//! The completion channel: the descriptor that becomes readable when a completion queue has raised an event.
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
/// `channel` is of `context` and is released by this value alone, in its drop.
pub(super) struct Channel {
    context: Arc<Context>,
    channel: NonNull<ibv_comp_channel>,
}

// SAFETY: libibverbs ties no object to a thread; by the invariant this value alone releases it.
unsafe impl Send for Channel {}

impl Channel {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, CreateError> {
        let create_comp_channel = context.symbols.ibv_create_comp_channel.clone()?;
        let refused = |source| {
            explain::creation(context, "ibv_create_comp_channel", "channels", PinningNeed::length(0), source)
        };
        // SAFETY: the context is open.
        let channel = not_null(unsafe { create_comp_channel(context.as_ptr()) }).map_err(refused)?;
        // INVARIANT: created just now.
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
        // SAFETY: the channel is alive and holds its descriptor open, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).fd) }
    }

    /// Takes one event; `false` when there is none. It must be acknowledged to its queue.
    pub(super) fn take_event(&self) -> io::Result<bool> {
        let get_cq_event = self.context.symbols.ibv_get_cq_event.clone().map_err(io::Error::other)?;
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive, its descriptor does not block, and both results go to variables of ours.
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
        // SAFETY: by the invariant alive, and called from drop alone.
        Ok(check(unsafe { destroy_comp_channel(self.as_ptr()) }))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if self.context.is_forked() {
            return;
        }
        if let Ok(Err(error)) = self.destroy() {
            tracing::warn!(%error, device = self.context.label(), "ibv_destroy_comp_channel failed; it is leaked");
            std::mem::forget(Arc::clone(&self.context));
        }
    }
}
