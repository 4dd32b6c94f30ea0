//! [`Exported`]: a right of peers to a region, for a limited time.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{OwnProcess, PdId, Registered, Registration, quarantine};
use crate::error::{CloseError, Quarantine};
use crate::{Deadline, Refused, RemoteMemory};

/// A right of peers to a [`Region`](crate::Region), or to ranges of one, under a key of its own, that lasts as long as
/// this value.
///
/// [`ProtectionDomain::export`](crate::ProtectionDomain::export) makes one of a region,
/// [`export_range`](crate::ProtectionDomain::export_range) one of a range, and
/// [`export_ranges`](crate::ProtectionDomain::export_ranges) one of several. Use it to lend memory that is otherwise
/// private, because revoking an export is cheaper than deregistering the region.
///
/// While it lives, the region cannot become a [`LocalBuf`](crate::LocalBuf), because a peer may write it.
/// [`revoke`](Self::revoke) ends the right exactly. Dropping the value does so, too; when that fails, the
/// memory is leaked or quarantined instead of being freed.
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
/// The memory outlives the registration: it is released only after `deregister` returned `Ok`.
pub struct Exported {
    /// `None` once the right was revoked.
    active: OwnProcess<Option<Active>>,
    remote: RemoteMemory,
    /// The domain in which the next export may renew the registration; `None` for a range of the region, whose key is
    /// never renewed.
    renewable: Option<PdId>,
}

/// The memory, and the registration that gives the right.
type Active = (Arc<Registered>, Box<dyn Registration>);

impl Exported {
    /// Keeps the registration of `range`, which lies within `memory`.
    pub(crate) fn new(
        memory: Arc<Registered>,
        range: Range<usize>,
        registration: Box<dyn Registration>,
        renewable: Option<PdId>,
    ) -> Self {
        let (addr, len) = (memory.as_ptr().as_ptr() as u64 + range.start as u64, range.len() as u64);
        let remote = RemoteMemory { addr, len, rkey: registration.keys().rkey };
        Self { active: OwnProcess::new(Some((memory, registration))), remote, renewable }
    }

    /// Returns the description by which a peer names this memory in its requests.
    #[must_use]
    pub fn remote(&self) -> RemoteMemory {
        self.remote
    }

    /// Revokes the right: after `Ok`, no peer's write under this key lands any more.
    ///
    /// A peer that is stopped (SIGSTOP) in the middle of an access gets 250 ms, but no longer than until
    /// `deadline`. Then the pages that it accesses are replaced, so that its late write lands where nobody
    /// reads.
    ///
    /// # Errors
    ///
    /// The value comes back with the device's error, or with a [`Quarantine`]; the
    /// call can be repeated. A forked child is always refused, because the registration is its parent's.
    pub fn revoke(mut self, deadline: Deadline) -> Result<(), Refused<Self, CloseError>> {
        let ended = self.end(deadline);
        ended.map_err(|error| Refused { object: self, error })
    }

    fn end(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        let active = self.active.get_mut()?;
        let Some((_, registration)) = active else { return Ok(()) };
        registration.deregister(deadline)?;
        if let (Some((memory, registration)), Some(pd)) = (active.take(), self.renewable) {
            // The next export renews this registration, because a new key in a known slot costs less than a
            // registration.
            *memory.spare()? = Some((pd, registration));
        }
        Ok(())
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let Err(error) = self.end(Deadline::in_drop()) else { return };
        // In a forked child the copy is leaked with its field.
        let Ok(active) = self.active.get_mut() else { return };
        let Some((memory, registration)) = active.take() else { return };
        let bytes = memory.len();
        if Quarantine::is_cause(&error) {
            quarantine::keep(memory, bytes, registration);
            crate::log::warn!(%error, bytes, "memory is quarantined until the stopped peer goes on or ends");
            return;
        }
        // Freed memory would be given to somebody else while the device still writes it.
        std::mem::forget((memory, registration));
        crate::log::error!(%error, bytes, "a peer's right could not be revoked; the memory is leaked, not freed");
    }
}

impl fmt::Debug for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exported").field("remote", &self.remote).finish_non_exhaustive()
    }
}
