//! Planted faults: defects of the device itself. A conformance suite shows with them that it finds such defects.

/// A defect of the software device, for tests of tests only.
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
    /// A send without a receive is acknowledged and dropped.
    MissingRnr,
    /// The responder does not move to ERR after a remote access error.
    NoError,
    /// A deregistered key is accepted (and nothing is written).
    WriteAfterDeregistration,
    /// The lowest bit of an immediate is flipped.
    WrongImmediate,
    /// Deregistration and destruction do not wait for mapped writers.
    EarlyReturn,
}

impl Planted {
    /// The defects that a conformance suite must find. [`EarlyReturn`](Self::EarlyReturn) is not among them, because
    /// it shows only while another process writes.
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
