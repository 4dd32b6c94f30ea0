//! Transfers that are to be given up: handles ask for it from any thread, and whoever drives does it.
//!
//! A handle that gave its transfer up by itself would need the engine's lock, and wait behind a thread that copies.

use std::time::Instant;

use rdma_core::Deadline;

/// The transfers of one end that are to be given up.
#[derive(Debug, Default)]
pub(super) struct GivenUp {
    /// By number, each with the deadline at which the lane is fenced, if the caller has set one.
    asked: Vec<(u64, Option<Deadline>)>,
    /// The moment of the first request that no drive has seen.
    since: Option<Instant>,
}

impl GivenUp {
    /// Asks for a transfer to be given up. Of several deadlines the earliest counts.
    pub(super) fn ask(&mut self, id: u64, until: Option<Deadline>) {
        match self.asked.iter_mut().find(|(of, _)| *of == id) {
            Some((_, known)) => *known = known.iter().chain(&until).min().copied(),
            None => self.asked.push((id, until)),
        }
        self.since.get_or_insert_with(Instant::now);
    }

    /// Takes what was asked.
    pub(super) fn take(&mut self) -> Vec<(u64, Option<Deadline>)> {
        self.since = None;
        std::mem::take(&mut self.asked)
    }

    /// The time of the next drive: at once if anything was asked.
    pub(super) fn due(&self) -> Option<Instant> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_transfer_is_given_up_once_by_its_earliest_deadline() {
        let after = |seconds| Some(Deadline::after(Duration::from_secs(seconds)));
        let (early, late) = (after(1), after(9));
        let mut given_up = GivenUp::default();
        assert!(given_up.due().is_none());
        for (id, until) in [(1, None), (2, late), (1, late), (2, early), (2, None), (3, None)] {
            given_up.ask(id, until);
        }
        assert!(given_up.due().is_some_and(|due| due <= Instant::now()));
        assert_eq!(given_up.take(), [(1, late), (2, early), (3, None)]);
        assert!(given_up.due().is_none() && given_up.take().is_empty());
    }
}
