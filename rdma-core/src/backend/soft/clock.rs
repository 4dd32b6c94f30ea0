//! The clock of the software devices. Everything else is passed the time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::time::{ClockId, clock_getres, clock_gettime};

/// Returns the current time.
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Returns the current time or up to two kernel ticks (8 ms at 250 Hz) later; earlier only if a tick comes late by more
/// than a tick.
///
/// For timers that rarely expire, such as that of an acknowledgement that a mapped peer has already given. Reading the
/// precise clock takes as long as a small write, the coarse one a fraction of it.
pub(super) fn soon() -> Instant {
    static BEGIN: OnceLock<(Instant, Duration, Duration)> = OnceLock::new();
    let (begin, begun, ticks) = *BEGIN.get_or_init(|| {
        // The precise clock, because the last tick may have come late; read before `now()`, so that an error makes the
        // result later, never earlier.
        let begun = clock(clock_gettime(ClockId::Monotonic));
        (now(), begun, 2 * clock(clock_getres(ClockId::MonotonicCoarse)))
    });
    begin + (last_tick() + ticks).saturating_sub(begun)
}

/// The time of the kernel's last tick, on its monotonic clock.
fn last_tick() -> Duration {
    clock(clock_gettime(ClockId::MonotonicCoarse))
}

fn clock(time: Timespec) -> Duration {
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soon_is_hardly_after_the_present_and_before_it_only_when_ticks_are_late() {
        let tick = clock(clock_getres(ClockId::MonotonicCoarse));
        for _ in 0..100_000 {
            let (ticked, before) = (last_tick(), now());
            let lag = clock(clock_gettime(ClockId::Monotonic)) - ticked;
            let (at, after) = (soon(), now());
            assert!(before <= at || lag > tick, "{:?} early", before - at);
            assert!(at <= after + 2 * tick, "{:?} late, with ticks of {tick:?}", at - after);
        }
    }
}
