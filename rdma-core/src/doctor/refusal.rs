//! [`Refusal`]: the errors that a finding may explain, and the findings that bear on each.

use std::error::Error;

use super::finding::{Finding, Severity};
use super::finding_id::FindingId;
use super::machine::Machine;
use super::wants::Wants;
use crate::error::{ConnectError, CreateError, NoUsableGid, OpenError, QueryError, RegisterError};
use crate::{CompletionStatus, Failure};

/// A refusal of which the machine may know the reason.
///
/// The argument of [`Machine::bearing_on`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A device could not be found, opened or connected, or its peer did not answer.
    Device {
        /// The name of the device, where the error has it.
        name: Option<String>,
    },
    /// Memory could not be registered, or an object not be created.
    Registration {
        /// The bytes to register; 0 where the error has none.
        bytes: u64,
    },
}

/// Findings that explain a refused registration.
const OF_REGISTRATION: [FindingId; 6] = [
    FindingId::MemlockTooSmall,
    FindingId::NoIpcLock,
    FindingId::IpcLockNamespace,
    FindingId::MemoryCgroup,
    FindingId::SystemMemory,
    FindingId::RdmaCgroup,
];
/// Findings that explain a refused device although they are warnings elsewhere.
const OF_DEVICE: [FindingId; 13] = [
    FindingId::NoDevice,
    FindingId::Transport,
    FindingId::NodeMissing,
    FindingId::NodeDenied,
    FindingId::NoLibibverbs,
    FindingId::PortDown,
    FindingId::NetdevDown,
    FindingId::EmptyGid,
    FindingId::GidElsewhere,
    FindingId::NoUsableGid,
    FindingId::GidV1,
    FindingId::GidLinkLocal,
    FindingId::NcclIbDisabled,
];

impl Refusal {
    /// Returns the refusal that an error tells of, or one of its sources; `None` for an error of another kind, and for
    /// one of the software device.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(refusal) = Self::of_one(error) {
                return Some(refusal);
            }
            next = error.source();
        }
        None
    }

    fn of_one(error: &(dyn Error + 'static)) -> Option<Self> {
        let device = |name: Option<&String>| Some(Self::Device { name: name.cloned() });
        if let Some(error) = error.downcast_ref::<OpenError>() {
            return match error {
                OpenError::UnknownDevice { name, .. } | OpenError::Refused { name, .. } => device(Some(name)),
                OpenError::NotListed(_) | OpenError::Library(_) => device(None),
                _ => None,
            };
        }
        if let Some(error) = error.downcast_ref::<QueryError>() {
            return match error {
                QueryError::NoSuchPort { device: name, .. } | QueryError::Refused { device: name, .. } => {
                    device(Some(name))
                }
                _ => None,
            };
        }
        if let Some(RegisterError::Refused { len, .. } | RegisterError::BeyondSystem { len, .. }) =
            error.downcast_ref()
        {
            return Some(Self::Registration { bytes: *len });
        }
        if let Some(CreateError::Refused { .. }) = error.downcast_ref() {
            return Some(Self::Registration { bytes: 0 });
        }
        // A GID that does not reach the peer passes for a connected one until the first request is sent.
        let unanswered = |failure: &Failure| failure.status == CompletionStatus::RETRY_EXC_ERR;
        let is_path = error.is::<ConnectError>()
            || error.is::<NoUsableGid>()
            || error.downcast_ref().is_some_and(unanswered);
        if is_path { device(None) } else { None }
    }
}

impl Machine {
    /// Returns the findings that may be the reason of a refusal, errors first; a program prints them below its error.
    ///
    /// `wants` are those of the program; the name and the bytes of the refusal are added to them.
    ///
    /// ```
    /// use rdma_core::DeviceList;
    /// use rdma_core::doctor::{Machine, Refusal, Wants};
    ///
    /// if let Err(error) = DeviceList::probe().find("mlx5_9") {
    ///     eprintln!("{error}");
    ///     if let Some(refusal) = Refusal::of(&error) {
    ///         let findings = Machine::read("/").bearing_on(&refusal, &Wants::default());
    ///         findings.iter().for_each(|finding| eprintln!("{finding}"));
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn bearing_on(&self, refusal: &Refusal, wants: &Wants) -> Vec<Finding> {
        let mut wants = wants.clone();
        match refusal {
            Refusal::Device { name } => wants.device = name.clone().or(wants.device),
            Refusal::Registration { bytes } => wants.pin_bytes = wants.pin_bytes.max(*bytes),
        }
        let bears = |finding: &Finding| match refusal {
            Refusal::Device { .. } => {
                let of_memory = OF_REGISTRATION.contains(&finding.id) && finding.id != FindingId::RdmaCgroup;
                (finding.severity == Severity::Error && !of_memory) || OF_DEVICE.contains(&finding.id)
            }
            Refusal::Registration { .. } => OF_REGISTRATION.contains(&finding.id),
        };
        self.findings(&wants).into_iter().filter(bears).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_does_not_answer_is_a_refusal_and_a_flushed_request_is_none() {
        let failure = |status| Failure { status, vendor_error: 0 };
        let device = Some(Refusal::Device { name: None });
        assert_eq!(Refusal::of(&failure(CompletionStatus::RETRY_EXC_ERR)), device);
        assert_eq!(Refusal::of(&failure(CompletionStatus::WR_FLUSH_ERR)), None);
    }
}
