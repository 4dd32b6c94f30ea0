//! An open device: the calls that need nothing but it. Each kind of question is answered in the file named after it.
#![expect(unsafe_code, reason = "owns a context of libibverbs")]

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

use super::event::{self, Events};
use super::gid;
use super::port::{self, Limits};
use super::symbols::Symbols;
use super::sys::ibv_context;
use crate::backend::interface;
use crate::error::{CreateError, OpenError, QueryError};
use crate::memory::fork;
use crate::{AsyncEvent, DeviceAttributes, GidEntry, PortAttributes, PortNum, WorkerOptions};

/// An open device of libibverbs.
///
/// # Invariants
///
/// `context` was opened and is closed by this value alone, in its drop. libibverbs locks what it shares between
/// threads, so that the pointer may be used from any.
pub(crate) struct Context {
    name: String,
    pub(super) symbols: &'static Symbols,
    context: NonNull<ibv_context>,
    events: Events,
    /// Read once: they do not change while a device is there.
    limits: Limits,
    /// The process that opened it; a forked child inherits the value, not the right to release it.
    pid: u32,
}

// SAFETY: by the invariant.
unsafe impl Send for Context {}
// SAFETY: by the invariant.
unsafe impl Sync for Context {}

impl Context {
    /// Takes an open context over, and asks it what does not change; `refused` words the errors.
    ///
    /// # Safety
    ///
    /// `context` was opened just now with these symbols, and nothing else knows it.
    pub(super) unsafe fn new(
        name: &str,
        symbols: &'static Symbols,
        context: NonNull<ibv_context>,
        events: Events,
        refused: impl Fn(io::Error) -> OpenError,
    ) -> Result<Self, OpenError> {
        // INVARIANT: as the caller promised; an error below drops the value, which closes it.
        let pid = fork::pid();
        let mut opened = Self { name: name.to_owned(), symbols, context, events, limits: Limits::NONE, pid };
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

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn as_ptr(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    pub(super) fn events(&self) -> &Events {
        &self.events
    }

    /// Where the library tells of its events.
    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open and closes its descriptor when it is closed, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }

    /// The device's name, for messages.
    pub(super) fn label(&self) -> &str {
        &self.name
    }

    /// The device's folder in sysfs.
    pub(super) fn sysfs(&self) -> PathBuf {
        PathBuf::from("/sys/class/infiniband").join(&self.name)
    }

    /// Whether this process is a fork of the one that opened the device: its objects are then the parent's.
    pub(super) fn is_forked(&self) -> bool {
        self.pid != fork::pid()
    }

    /// The error of a verb about this device.
    pub(super) fn refused(&self, verb: &'static str, source: io::Error) -> QueryError {
        QueryError::Refused { verb, device: self.name.clone(), source }
    }
}

impl interface::Context for Context {
    type Pd = super::ProtectionDomain;
    type Worker = super::Worker;

    fn name(&self) -> &str {
        &self.name
    }

    fn query_device(&self) -> Result<DeviceAttributes, QueryError> {
        Ok(self.limits.attributes())
    }

    fn query_port(&self, port: PortNum) -> Result<PortAttributes, QueryError> {
        port::query_port(self, port)
    }

    fn gid_table(&self, port: PortNum) -> Result<Vec<GidEntry>, QueryError> {
        gid::table(self, port)
    }

    fn alloc_pd(self: &Arc<Self>) -> Result<Self::Pd, CreateError> {
        super::ProtectionDomain::new(self)
    }

    fn create_worker(self: &Arc<Self>, options: &WorkerOptions) -> Result<Self::Worker, CreateError> {
        super::Worker::new(self, options)
    }

    fn next_event(&self) -> Result<Option<AsyncEvent>, QueryError> {
        event::next(self)
    }

    fn event_fd(&self) -> BorrowedFd<'_> {
        self.events.fd()
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_forked() {
            // SAFETY: by the invariant open, and not used after this; every object of it holds an `Arc` of `self`.
            unsafe { close(self.symbols, self.context, &self.name) };
        }
    }
}

/// Closes a context; what the kernel says is logged, since nothing can be tried again.
///
/// # Safety
///
/// The context is open, has no objects, and is not used afterwards.
unsafe fn close(symbols: &Symbols, context: NonNull<ibv_context>, name: &str) {
    let Ok(close_device) = symbols.ibv_close_device else { return };
    // SAFETY: as the caller promised.
    if let Err(error) = super::check(unsafe { close_device(context.as_ptr()) }) {
        tracing::warn!(%error, device = name, "ibv_close_device failed; the device stays open");
    }
}
