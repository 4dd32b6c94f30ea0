//! Timers and retry counts of a reliable connection in the coded forms of verbs.

use std::fmt;
use std::time::Duration;

/// Time that a requester waits for an acknowledgement before it sends again: 4.096 us times two to the power
/// of the code. Code 0 waits forever.
///
/// The trap: a device may wait up to four times as long, and ConnectX waits at least half a second. A request
/// fails after `retry_cnt + 1` of these timeouts. perftest uses code 14 (67 ms), this crate 17 (537 ms), NCCL
/// 20 (4.3 s).
///
/// ```
/// use std::time::Duration;
/// use rdma_core::AckTimeout;
/// assert_eq!(AckTimeout::at_least(Duration::from_millis(60)), AckTimeout::new(14));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Returns the timeout with code `code`; only the low 5 bits count.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 31)
    }

    /// Returns the shortest timeout of at least `timeout`; at most code 31, 8,796 s.
    #[must_use]
    pub fn at_least(timeout: Duration) -> Self {
        (1..31).map(Self).find(|code| code.duration() >= timeout).unwrap_or(Self(31))
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the timeout in time units; [`Duration::MAX`] for code 0.
    #[must_use]
    pub fn duration(self) -> Duration {
        if self.0 == 0 { Duration::MAX } else { Duration::from_nanos(4096 << self.0) }
    }
}

impl Default for AckTimeout {
    fn default() -> Self {
        Self(17)
    }
}

impl fmt::Display for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.0, self.duration())
    }
}

/// Time that a peer waits before it repeats a send for which no receive was posted here (RNR, receiver not
/// ready).
///
/// ```
/// use std::time::Duration;
/// use rdma_core::RnrTimer;
/// assert_eq!(RnrTimer::at_least(Duration::from_micros(600)).duration(), Duration::from_micros(640));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// The wait of each code in units of 10 us; code 0 is the longest (InfiniBand Architecture Specification,
/// table 45).
const RNR_TENS_OF_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// Returns the timer with code `code`; only the low 5 bits count.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 31)
    }

    /// Returns the shortest timer of at least `wait`; at most 655.36 ms.
    #[must_use]
    pub fn at_least(wait: Duration) -> Self {
        (1..32).map(Self).find(|code| code.duration() >= wait).unwrap_or(Self(0))
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the wait that the code stands for.
    #[must_use]
    pub fn duration(self) -> Duration {
        Duration::from_micros(10 * u64::from(RNR_TENS_OF_US[usize::from(self.0 & 31)]))
    }
}

impl Default for RnrTimer {
    fn default() -> Self {
        Self(12)
    }
}

/// Repetitions of a send when the peer has no receive posted.
///
/// A part of [`RetryOptions`](crate::RetryOptions).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RnrRetry {
    /// Repeats so often, at most 6 times. Then the request fails with
    /// [`RNR_RETRY_EXC_ERR`](crate::CompletionStatus::RNR_RETRY_EXC_ERR).
    Times(u8),
    /// Repeats forever (code 7). The trap: a live peer that never posts a receive then hangs the sender, so
    /// bound the wait with a deadline of your own.
    Unlimited,
}

impl RnrRetry {
    /// Returns the code, 0 to 7.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Times(times) if times < 6 => times,
            Self::Times(_) => 6,
            Self::Unlimited => 7,
        }
    }
}
