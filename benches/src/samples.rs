//! Figures of a machine on which other programs run, too: the middle of many short samples.

use std::time::{Duration, Instant};

use crate::ratio::median;
use crate::soft::Outcome;

/// How long samples are taken.
const FOR: Duration = Duration::from_millis(300);
/// How many there are at least, and at most.
const COUNT: std::ops::RangeInclusive<usize> = 15..=100_000;

/// The median of the seconds that `once` takes, after as many samples to warm up as a third of those that count.
///
/// # Errors
///
/// The first error of `once`.
pub fn median_of(mut once: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let begin = Instant::now();
    while begin.elapsed() < FOR / 3 {
        once()?;
    }
    let mut samples = Vec::with_capacity(*COUNT.end());
    let (begin, mut last) = (Instant::now(), Instant::now());
    while samples.len() < *COUNT.start() || (samples.len() < *COUNT.end() && last - begin < FOR) {
        once()?;
        let now = Instant::now();
        samples.push((now - last).as_secs_f64());
        last = now;
    }
    Ok(median(samples))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slow_sample_in_many_does_not_count() {
        let mut calls = 0_u32;
        let once = || {
            calls += 1;
            let long = if calls.is_multiple_of(3) { 20 } else { 1 };
            std::thread::sleep(Duration::from_millis(long));
            Ok(())
        };
        let seconds = median_of(once).unwrap();
        assert!((0.001..0.015).contains(&seconds), "{seconds}");
        assert!(median_of(|| Err("no".into())).is_err());
    }
}
