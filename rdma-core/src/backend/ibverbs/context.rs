//! Open devices: the calls that need nothing but the context. Each kind of question is answered in the file named after
//! it.
#![expect(unsafe_code, reason = "owns a context of libibverbs")]

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::ptr::NonNull;

use super::event::{self, Events};
use super::port::{self, Limits};
use super::symbols::Symbols;
use super::sys::{ibv_context, ibv_device_attr};
use crate::DeviceAttributes;
use crate::error::{OpenError, QueryError};

/// An open device of libibverbs.
///
/// # Invariants
///
/// `context` is open, and only this value closes it, in its drop. libibverbs locks the data that a context shares
/// between threads, so the pointer may be used from any.
pub(crate) struct Context {
    name: String,
    pub(super) symbols: &'static Symbols,
    context: NonNull<ibv_context>,
    pub(super) events: Events,
    /// The limits of the device, read once because they never change.
    pub(super) limits: Limits,
}

// SAFETY: libibverbs ties no context to a thread, and only this value closes it.
unsafe impl Send for Context {}
// SAFETY: libibverbs locks what threads share through a context, so calls through `&Context` may run at once.
unsafe impl Sync for Context {}

impl Context {
    /// Takes over an open context and reads its limits; `refused` words the errors.
    ///
    /// # Safety
    ///
    /// `context` was just opened with these symbols, and nothing else uses it.
    pub(super) unsafe fn new(
        name: &str,
        symbols: &'static Symbols,
        context: NonNull<ibv_context>,
        events: Events,
        refused: impl Fn(io::Error) -> OpenError,
    ) -> Result<Self, OpenError> {
        // INVARIANT: the caller hands over an open context. An error below drops the value, which closes it.
        let no_limits = Limits::new(&ibv_device_attr::zeroed());
        let mut opened = Self { name: name.to_owned(), symbols, context, events, limits: no_limits };
        event::set_nonblocking(opened.async_fd()).map_err(&refused)?;
        opened.events.watch(opened.async_fd()).map_err(&refused)?;
        opened.limits = match port::query_device(&opened) {
            Ok(limits) => limits,
            Err(QueryError::Library(error)) => return Err(error.into()),
            Err(QueryError::Refused { source, .. }) => return Err(refused(source)),
            Err(error) => return Err(refused(io::Error::other(error))),
        };
        Ok(opened)
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// The descriptor of the library's asynchronous events.
    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context owns the descriptor and is open as long as `self`, so it is valid for the borrow.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn query_device(&self) -> Result<DeviceAttributes, QueryError> {
        Ok(self.limits.device.clone())
    }

    pub(crate) fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }

    /// The folder of the device in sysfs.
    pub(super) fn sysfs(&self) -> PathBuf {
        PathBuf::from("/sys/class/infiniband").join(&self.name)
    }

    /// The error of a verb about this device.
    pub(super) fn refused(&self, verb: &'static str, source: io::Error) -> QueryError {
        QueryError::Refused { verb, device: self.name.clone(), source }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the invariant says that the context is open. Every object of it holds an `Arc` of `self`, so none is
        // left, and nothing uses the context after its drop.
        unsafe { close(self.symbols, self.context, &self.name) };
    }
}

/// Closes a context, and logs an error, because nothing else can be done about it.
///
/// # Safety
///
/// The context is open, has no objects, and is not used afterwards.
unsafe fn close(symbols: &Symbols, context: NonNull<ibv_context>, name: &str) {
    let Ok(close_device) = symbols.ibv_close_device else { return };
    // SAFETY: the caller promises an open context without objects that is never used again, so it may be closed.
    if let Err(error) = super::check(unsafe { close_device(context.as_ptr()) }) {
        crate::log::warn!(%error, device = name, "ibv_close_device failed; the device stays open until the process ends");
    }
}
