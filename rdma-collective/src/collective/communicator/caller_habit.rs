//! Whether the caller of a communicator waits for each long operation as soon as it has begun the operation.
//!
//! Such a caller drives the operation itself. Waking the engine's thread for it would cost both of them a core and the
//! engine's lock, several times an operation. A caller that computes meanwhile needs the thread at once. Nobody knows
//! in advance which of them begins an operation, so the last few operations decide.

use std::time::Duration;

/// Waits at once in a row from which another one is expected. A caller that computes during every few operations must
/// not lose the thread there, so these are many.
const EXPECTED: u32 = 16;
/// The longest pause between the two calls, the one that begins and the one that waits, that counts as at once. A
/// caller that computes for longer loses more by a late thread than the thread costs.
const AT_ONCE: Duration = Duration::from_micros(50);

/// The record of how soon a caller has waited for its last operations.
#[derive(Debug, Default)]
pub(super) struct CallerHabit {
    /// The last operation, until its caller waits for it.
    begun: Option<u64>,
    /// Waits at once in a row.
    at_once: u32,
}

impl CallerHabit {
    /// Notes that the caller has begun operation `id`. One before it that nobody has waited for counts as late.
    pub(super) fn begins(&mut self, id: u64) {
        if self.begun.replace(id).is_some() {
            self.count(false);
        }
    }

    /// Notes that the caller waits for operation `id`, so long after it had begun it.
    pub(super) fn waits(&mut self, id: u64, pause: Duration) {
        if self.begun.take_if(|last| *last == id).is_some() {
            self.count(pause <= AT_ONCE);
        }
    }

    fn count(&mut self, at_once: bool) {
        self.at_once = if at_once { self.at_once.saturating_add(1) } else { 0 };
    }

    /// Whether the caller is expected to wait for the next operation at once.
    pub(super) fn waits_at_once(&self) -> bool {
        self.at_once >= EXPECTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The habit of a caller that has paused so long before it waited for each of its operations.
    fn after(pauses: &[Duration]) -> CallerHabit {
        let mut habit = CallerHabit::default();
        for (id, pause) in (1..).zip(pauses) {
            habit.begins(id);
            habit.waits(id, *pause);
        }
        habit
    }

    #[test]
    fn many_waits_at_once_let_another_be_expected() {
        for (count, expected) in [(0, false), (15, false), (16, true), (100, true)] {
            assert_eq!(after(&vec![AT_ONCE; count]).waits_at_once(), expected, "{count}");
        }
    }

    #[test]
    fn a_late_wait_begins_the_count_anew() {
        let late = AT_ONCE + Duration::from_nanos(1);
        for (count, expected) in [(0, false), (15, false), (16, true)] {
            let pauses = [vec![AT_ONCE; 100], vec![late], vec![AT_ONCE; count]].concat();
            assert_eq!(after(&pauses).waits_at_once(), expected, "{count}");
        }
    }

    #[test]
    fn an_operation_that_nobody_waits_for_counts_as_late() {
        let mut habit = after(&[AT_ONCE; 16]);
        habit.begins(98);
        assert!(habit.waits_at_once(), "the caller may still come");
        habit.begins(99);
        assert!(!habit.waits_at_once());
        habit.waits(98, AT_ONCE);
        assert_eq!(habit.begun, Some(99), "the wait for another operation than the last says nothing");
    }
}
