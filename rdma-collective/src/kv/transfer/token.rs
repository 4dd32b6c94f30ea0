//! Giving a transfer up from elsewhere than its handle: [`RevokeToken`].

use std::fmt;
use std::sync::{Arc, Weak};

use rdma_core::Deadline;

use super::{Joint, Revocable, Transfer};
use crate::kv::shared::Shared;

/// A token with which any thread can give a transfer up, while a task awaits the handle. Clones are of the same
/// transfer.
///
/// Returned by [`Transfer::revoke_token`] and [`Joint::revoke_token`]. A scheduler keeps one for each request, so that
/// it can abort the request wherever that is:
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::kv::{KvError, Grant, RevokeToken};
/// use rdma_core::Deadline;
///
/// /// Fills the blocks, unless the scheduler aborts the request meanwhile.
/// fn fill(grant: Grant, keep: impl FnOnce(RevokeToken)) -> bool {
///     keep(grant.revoke_token());
///     match grant.wait() {
///         Ok(received) => received.verdicts.all_valid(),
///         Err(error) => !matches!(*error.cause, KvError::Revoked { .. }),
///     }
/// }
///
/// fn abort(token: &RevokeToken) {
///     token.revoke(Deadline::after(Duration::from_secs(2)));
/// }
/// ```
#[derive(Clone)]
pub struct RevokeToken(Arc<dyn Fn(Deadline) + Send + Sync>);

impl RevokeToken {
    /// Begins to give the transfer up, and returns at once; see [`Transfer::start_revoke`].
    ///
    /// The outcome is that of the handle: [`KvError::Revoked`](crate::kv::KvError::Revoked), once none of the bytes
    /// land any more. The call does nothing when the transfer has ended, and none in a forked child.
    pub fn revoke(&self, deadline: Deadline) {
        (self.0)(deadline);
    }
}

impl<K: Revocable> Transfer<K> {
    /// A token with which other threads can give the transfer up. The token holds no block, and keeps no link open.
    #[must_use]
    pub fn revoke_token(&self) -> RevokeToken {
        let (shared, id, list) = (Arc::downgrade(&self.shared), self.id, self.list.clone());
        RevokeToken(Arc::new(move |deadline| {
            let shared: Option<Arc<Shared<K::Machine>>> = Weak::upgrade(&shared);
            shared.into_iter().for_each(|shared| shared.ask_to_give_up(id, &list, Some(deadline)));
        }))
    }
}

impl Joint {
    /// A token with which other threads can give the transfer up, on all links.
    #[must_use]
    pub fn revoke_token(&self) -> RevokeToken {
        let tokens: Vec<RevokeToken> = self.open_parts().map(Transfer::revoke_token).collect();
        RevokeToken(Arc::new(move |deadline| tokens.iter().for_each(|token| token.revoke(deadline))))
    }
}

impl fmt::Debug for RevokeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokeToken").finish_non_exhaustive()
    }
}
