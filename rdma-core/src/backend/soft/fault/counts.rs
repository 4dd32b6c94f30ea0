//! What a plan did.

/// How often each fault struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Messages that a rule looked at.
    pub messages: u64,
    /// Messages lost, those lost to a dead, stopped or unplugged device not counted.
    pub dropped: u64,
    /// Messages delivered late.
    pub delayed: u64,
    /// Messages delivered after a later one.
    pub reordered: u64,
    /// Payloads of which one byte was flipped.
    pub corrupted: u64,
    /// Requests told to wait although a receive was posted.
    pub rnr: u64,
    /// Times the device was killed.
    pub killed: u64,
    /// Times the device was stopped.
    pub stopped: u64,
    /// Times the port went down.
    pub flapped: u64,
    /// Deregistrations refused.
    pub deregistrations_refused: u64,
}
