//! A right of peers to memory that exports none, for a while.

use std::fmt;
use std::sync::Arc;

use super::{Registered, Registration, quarantine};
use crate::error::{CloseError, Quarantine};
use crate::{Deadline, Refused, RemoteMemory};

/// A right of peers to a [`Region`](crate::Region) that was registered without one, by a key of its own, for as long as this
/// lives. Made by [`ProtectionDomain::export`](crate::ProtectionDomain::export).
///
/// The region is no [`LocalBuf`](crate::LocalBuf) meanwhile: its bytes are copied, as those of any region that peers may
/// write. [`revoke`](Self::revoke) ends the right exactly; a drop does so, too, and keeps the memory from everybody when it
/// cannot.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, error::ReachError, loopback};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
/// let (left, _right) = loopback(&mut worker, &pd)?;
/// let deadline = Deadline::after(Duration::from_secs(5));
///
/// let region = pd.alloc_local(64)?.into_region().expect("it is whole");
/// let exported = pd.export(&region, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// let told = exported.remote();
/// worker.peer_slice(&left, told, deadline).copy_in(8, b"hello")?;
/// let region = region.into_local().expect_err("a peer may write it");
/// exported.revoke(deadline).map_err(|refused| refused.error)?;
/// let late = worker.peer_slice(&left, told, deadline).copy_in(8, b"later");
/// assert!(matches!(late, Err(ReachError::Revoked)));
/// assert_eq!(&region.into_local().expect("no peer has a right")[8..13], b"hello");
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Invariants
///
/// The memory outlives the registration: it is let go only after `deregister` returned `Ok`.
pub struct Exported {
    /// Absent once it was revoked.
    active: Option<(Arc<Registered>, Box<dyn Registration>)>,
    remote: RemoteMemory,
}

impl Exported {
    pub(crate) fn new(memory: Arc<Registered>, registration: Box<dyn Registration>) -> Self {
        let (addr, len) = (memory.as_ptr().as_ptr() as u64, memory.len() as u64);
        let remote = RemoteMemory { addr, len, rkey: registration.keys().rkey };
        Self { active: Some((memory, registration)), remote }
    }

    /// What a peer is told so that it can name this memory.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        self.remote
    }

    /// Takes the right back: when this returns `Ok`, no peer's write by it lands any more.
    ///
    /// A peer that is stopped in the midst of an access is given a quarter of a second, and no longer than until `deadline`;
    /// then its pages are replaced.
    ///
    /// # Errors
    ///
    /// It comes back with what the device said, or with a [`Quarantine`](crate::error::Quarantine); the call can be made again.
    /// A forked child is always refused.
    pub fn revoke(mut self, deadline: Deadline) -> Result<(), Refused<Self, CloseError>> {
        let ended = self.end(deadline);
        ended.map_err(|error| Refused { object: self, error })
    }

    fn end(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        let Some((memory, registration)) = &mut self.active else { return Ok(()) };
        if memory.is_forked() {
            let source =
                std::io::Error::other("this process was forked from the one that exported the memory");
            return Err(CloseError { verb: "ibv_dereg_mr", source });
        }
        registration.deregister(deadline)?;
        if let Some((memory, registration)) = self.active.take() {
            *memory.spare() = Some(registration);
        }
        Ok(())
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let Err(error) = self.end(Deadline::in_drop()) else { return };
        let Some((memory, registration)) = self.active.take() else { return };
        if Quarantine::is_cause(&error) {
            tracing::warn!(%error, bytes = memory.len(), "memory is quarantined");
            quarantine::keep(quarantine::KeptMemory::Shared(memory), registration);
            return;
        }
        if !memory.is_forked() {
            tracing::error!(%error, bytes = memory.len(), "a peer's right stays; the memory is leaked, not freed");
        }
        std::mem::forget((memory, registration));
    }
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exported").field("remote", &self.remote).finish_non_exhaustive()
    }
}
