//! The message by which a grant or a lease lives longer.

use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::field::{Field, fields, message};
use crate::link::codec::{Ended, NoRoom, Reader, Writer};
use crate::link::control::Kind;

/// A grant, or a lease, lives longer: from the side that has made it.
pub(in crate::kv) const EXTEND: Kind = Kind(47);

message! {
    /// An [`EXTEND`].
    Extend {
        /// The grant, from decode; the lease, from prefill.
        id: u64,
        /// Time to live in milliseconds, counted from the arrival of this message.
        time_to_live_ms: u32,
    }
}

/// The time to live that the peer is told, in milliseconds.
pub(in crate::kv) fn time_to_live_ms(deadline: Deadline, now: Instant) -> u32 {
    let left = deadline.instant().saturating_duration_since(now);
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX)
}

/// The moment at which a time to live ends that has arrived at `now`; `None` if it never does.
pub(in crate::kv) fn expires(time_to_live_ms: u32, now: Instant) -> Option<Instant> {
    now.checked_add(Duration::from_millis(time_to_live_ms.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extensions_come_back_and_other_lengths_do_not() {
        let (mut bytes, extend) = ([0; 13], Extend { id: 1 << 40, time_to_live_ms: 9 });
        extend.write(&mut Writer::new(&mut bytes)).unwrap();
        assert_eq!(Extend::read(&bytes[..12]), Ok(extend));
        assert_eq!((Extend::read(&bytes[..11]), Extend::read(&bytes)), (Err(Ended), Err(Ended)));
    }

    #[test]
    fn times_to_live_are_told_in_whole_milliseconds_and_never_wrap() {
        let now = Instant::now();
        let at = |ms| Deadline::at(now + Duration::from_millis(ms));
        assert_eq!([0, 1, 70_000].map(|ms| time_to_live_ms(at(ms), now)), [0, 1, 70_000]);
        assert_eq!(time_to_live_ms(at(1 << 40), now), u32::MAX);
        assert_eq!(time_to_live_ms(at(0), now + Duration::from_secs(1)), 0);
        assert_eq!(expires(3, now), Some(now + Duration::from_millis(3)));
    }
}
