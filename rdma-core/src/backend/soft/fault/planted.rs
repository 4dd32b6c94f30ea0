//! Faults of the device itself, planted so that a conformance suite can show that it finds them.

/// One fault of the software device. Never of use but to test tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Planted {
    /// A remote range whose end wraps around is accepted (and nothing is written).
    RangeWrap,
    /// The key of another protection domain is accepted.
    ForeignKey,
    /// Receives are not flushed.
    MissingFlush,
    /// The third completion of a queue comes twice.
    DoubleCompletion,
    /// The third completion of a queue comes before the second.
    OutOfOrder,
    /// The second receive of a queue pair vanishes.
    LostCredit,
    /// A send without a receive is acknowledged, and forgotten.
    MissingRnr,
    /// The responder stays as it is after a remote access error.
    NoError,
    /// A deregistered key is accepted (and nothing is written).
    WriteAfterDeregistration,
    /// The lowest bit of an immediate is flipped.
    WrongImmediate,
    /// The deregistration of memory and the end of a queue pair do not wait for writers of other processes.
    EarlyReturn,
}

impl Planted {
    /// Those that a conformance suite finds: what takes a process that writes at the very moment does not show in it.
    pub const ALL: [Self; 10] = [
        Self::RangeWrap,
        Self::ForeignKey,
        Self::MissingFlush,
        Self::DoubleCompletion,
        Self::OutOfOrder,
        Self::LostCredit,
        Self::MissingRnr,
        Self::NoError,
        Self::WriteAfterDeregistration,
        Self::WrongImmediate,
    ];
}
