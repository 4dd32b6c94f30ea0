//! [`Several`]: the registrations of one memory in several domains, which end together.

use super::{Keys, Registration};
use crate::Deadline;
use crate::error::{CloseError, Quarantine};

/// Registrations of one memory.
///
/// # Invariants
///
/// The registrations in `left` have not ended.
pub(super) struct Several {
    /// The keys of the first one.
    keys: Keys,
    left: Vec<Box<dyn Registration>>,
}

impl Several {
    /// Joins two registrations that have not ended; the keys are those of the first.
    pub(super) fn new(first: Box<dyn Registration>, other: Box<dyn Registration>) -> Self {
        Self { keys: first.keys(), left: vec![first, other] }
    }
}

impl Registration for Several {
    fn keys(&self) -> Keys {
        self.keys
    }

    /// Ends all registrations that can be ended. An error that is no quarantine comes before one that is: a device that
    /// refuses has not said that it will ever be done.
    fn deregister(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        let mut ended = Ok(());
        self.left.retain_mut(|registration| match registration.deregister(deadline) {
            Ok(()) => false,
            Err(error) => {
                if ended.as_ref().err().is_none_or(Quarantine::is_cause) {
                    ended = Err(error);
                }
                true
            }
        });
        ended
    }

    fn has_ended(&mut self) -> bool {
        self.left.retain_mut(|registration| !registration.has_ended());
        self.left.is_empty()
    }
}
