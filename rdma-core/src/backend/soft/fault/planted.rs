//! Planted faults: defects of the device itself. A conformance suite shows with them that it finds such defects.
//!
//! The feature `planted` is for tests alone. Without it nothing can be planted: [`is`] and [`at`] are constants, so
//! that a program contains no trace of the defects.

/// A defect of the software device, for tests of tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Planted {
    /// A remote range whose end wraps around is accepted (and nothing is written).
    RangeWrap,
    /// The key of another protection domain is accepted (and nothing is written).
    ForeignKey,
    /// Receives are not flushed.
    MissingFlush,
    /// The third completion comes twice.
    DoubleCompletion,
    /// Each completion from the third on comes before its predecessor.
    OutOfOrder,
    /// The second receive vanishes.
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

#[cfg(feature = "planted")]
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

#[cfg(feature = "planted")]
mod hook {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Planted;

    /// The number of the planted defect, or 0, in the low byte; above it, how often [`at`] was asked about the defect.
    static PLANTED: AtomicU64 = AtomicU64::new(0);

    /// Plants a defect in every software device of this process, in place of the one before.
    pub fn plant(defect: Option<Planted>) {
        PLANTED.store(defect.map_or(0, number), Ordering::SeqCst);
    }

    fn number(defect: Planted) -> u64 {
        defect as u64 + 1
    }

    pub(crate) fn is(defect: Planted) -> bool {
        PLANTED.load(Ordering::Relaxed) & 0xff == number(defect)
    }

    pub(crate) fn at(defect: Planted, nth: u64) -> bool {
        is(defect) && (PLANTED.fetch_add(0x100, Ordering::Relaxed) >> 8) + 1 == nth
    }
}

#[cfg(not(feature = "planted"))]
mod hook {
    use super::Planted;

    #[inline(always)]
    pub(crate) const fn is(_: Planted) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) const fn at(_: Planted, _: u64) -> bool {
        false
    }
}

/// Whether the defect is planted for the `nth` time that this asks, and for no other time.
pub(crate) use hook::at;
/// Whether the defect is planted.
pub(crate) use hook::is;
#[cfg(feature = "planted")]
pub use hook::plant;
