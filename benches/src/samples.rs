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

/// The figure that `percent` of 100 samples do not exceed: the greatest at 100, and 0 of no samples.
#[must_use]
pub fn percentile(mut samples: Vec<f64>, percent: usize) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() * percent / 100).or(samples.last()).copied().unwrap_or_default()
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

    #[test]
    fn one_sample_in_a_hundred_may_exceed_the_ninety_ninth_percentile() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((percentile(samples.clone(), 99), percentile(samples, 100)), (199.0, 200.0));
        assert_eq!((percentile(vec![7.0], 99), percentile(Vec::new(), 99)), (7.0, 0.0));
    }
}
