//! Timers of a reliable connection in their coded forms.

use std::fmt;
use std::time::Duration;

/// How long a requester waits for an acknowledgement before it sends again: 4.096 us
/// times two to the power of the code, 0 meaning for ever.
///
/// The trap: the device may wait up to four times as long, and ConnectX waits half a second at least; what a request
/// outlives is this times one more than `retry_cnt`. 14 (67 ms) is perftest's default, 17 (537 ms) ours, 20 (4.3 s)
/// NCCL's.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::AckTimeout;
/// assert_eq!(AckTimeout::at_least(Duration::from_millis(60)), AckTimeout::new(14));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// The code `code`, of which the low 5 bits count.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 31)
    }

    /// The shortest timeout of at least `timeout` (at most code 31, 8,796 s).
    #[must_use]
    pub fn at_least(timeout: Duration) -> Self {
        (1..31).map(Self).find(|code| code.duration() >= timeout).unwrap_or(Self(31))
    }

    /// Its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time it stands for; [`Duration::MAX`] for code 0.
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

/// How long a peer is told to wait when it sends and no receive is posted here.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::RnrTimer;
/// assert_eq!(RnrTimer::at_least(Duration::from_micros(600)).duration(), Duration::from_micros(640));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Units of 10 us, by code; code 0 is the longest (InfiniBand specification, table 45).
const RNR_TENS_OF_US: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// The code `code`, of which the low 5 bits count.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        Self(code & 31)
    }

    /// The shortest timer of at least `wait` (at most 655.36 ms).
    #[must_use]
    pub fn at_least(wait: Duration) -> Self {
        (1..32).map(Self).find(|code| code.duration() >= wait).unwrap_or(Self(0))
    }

    /// Its code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time it stands for.
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

/// How often a send is repeated when the peer has no receive posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RnrRetry {
    /// That many times, at most 6; then the request fails with
    /// [`RNR_RETRY_EXC_ERR`](crate::CompletionStatus::RNR_RETRY_EXC_ERR).
    Times(u8),
    /// For ever (code 7). The trap: a peer that lives but never posts a receive then hangs
    /// the sender; bound it with a deadline of your own.
    Unlimited,
}

impl RnrRetry {
    /// Its code, 0 to 7.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Times(times) if times < 6 => times,
            Self::Times(_) => 6,
            Self::Unlimited => 7,
        }
    }
}
