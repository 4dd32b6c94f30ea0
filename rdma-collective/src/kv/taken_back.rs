//! Requests whose grant or offer was taken back before it was met, so that a peer that comes too late learns it at
//! once instead of waiting for its deadline.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::message::Reason;
use crate::kv::RequestId;

/// Most requests kept; the oldest are forgotten, which bounds the memory that a peer can take.
const REQUESTS_MAX: usize = 256;
/// A request that comes again after 60 s counts as another request.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The requests, newest first, each with the reason and the time it was taken back.
#[derive(Debug, Default)]
pub(super) struct TakenBack(VecDeque<(RequestId, Reason, Instant)>);

impl TakenBack {
    pub(super) fn note(&mut self, request: RequestId, reason: Reason, now: Instant) {
        self.forget(request);
        self.0.truncate(REQUESTS_MAX - 1);
        self.0.push_front((request, reason, now));
    }

    /// Forgets a request, because a new grant or offer for it has come.
    pub(super) fn forget(&mut self, request: RequestId) {
        self.0.retain(|(known, ..)| *known != request);
    }

    /// Takes the reason why a request has nothing to meet; it is reported once.
    pub(super) fn take(&mut self, request: RequestId, now: Instant) -> Option<Reason> {
        self.0.retain(|(.., noted)| now.saturating_duration_since(*noted) < KEPT_FOR);
        let at = self.0.iter().position(|(known, ..)| *known == request)?;
        self.0.remove(at).map(|(_, reason, _)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_is_told_once_and_neither_for_ever_nor_without_bound() {
        let (mut taken_back, now) = (TakenBack::default(), Instant::now());
        taken_back.note(1.into(), Reason::Expired, now);
        taken_back.note(1.into(), Reason::Revoked, now);
        assert_eq!(taken_back.take(1.into(), now), Some(Reason::Revoked));
        assert_eq!(taken_back.take(1.into(), now), None);
        taken_back.note(2.into(), Reason::Expired, now);
        assert_eq!(taken_back.take(2.into(), now + KEPT_FOR), None);
        (0..1000_u64).for_each(|request| taken_back.note(request.into(), Reason::Expired, now));
        assert_eq!(taken_back.0.len(), REQUESTS_MAX);
        taken_back.forget(999.into());
        assert_eq!(taken_back.take(999.into(), now), None);
        assert_eq!(taken_back.take((1000 - REQUESTS_MAX as u64).into(), now), Some(Reason::Expired));
    }
}
