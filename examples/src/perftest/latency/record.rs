//! Times of posts in, perftest's latency line out.

use crate::perftest::RULE;
use std::time::{Duration, Instant};

/// The slowest so many exchanges count for nothing: perftest leaves them out of every figure.
const TAIL: usize = 2;

/// Notes when each exchange began.
#[derive(Debug)]
pub struct Recorder {
    posted: Vec<Instant>,
    /// How many latencies the time from one post to the next one has.
    latencies: f64,
    /// The clock's own part of that time.
    clock: Duration,
}

/// A line of the table, in microseconds: of one direction (half an exchange), or of a read.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Bytes of a message.
    #[serde(rename = "bytes")]
    pub size: u64,
    /// Exchanges.
    pub iters: u64,
    /// The fastest.
    #[serde(rename = "min_us")]
    pub min: f64,
    /// The slowest that counts.
    #[serde(rename = "max_us")]
    pub max: f64,
    /// The median.
    #[serde(rename = "typical_us")]
    pub typical: f64,
    /// The mean.
    #[serde(rename = "average_us")]
    pub average: f64,
    /// The standard deviation.
    #[serde(rename = "deviation_us")]
    pub deviation: f64,
    /// 99 of 100 are at most this.
    #[serde(rename = "percentile_99_us")]
    pub percentile_99: f64,
    /// 999 of 1000 are at most this.
    #[serde(rename = "percentile_99_9_us")]
    pub percentile_99_9: f64,
}

impl Recorder {
    /// For `iters` messages, each answered by one like it. Makes room, so that recording allocates nothing.
    pub fn of_exchanges(iters: u32) -> Self {
        Self { posted: Vec::with_capacity(iters as usize), latencies: 2.0, clock: Duration::ZERO }
    }

    /// For `iters` reads, whose latency is the whole round trip. Makes room, so that recording allocates nothing.
    ///
    /// A reading of the clock adds to each: no peer has work meanwhile. Where it is a system call that is a fourth of a
    /// read, so it is taken off; perftest reads a counter of the processor's, which takes no time.
    pub fn of_round_trips(iters: u32) -> Self {
        Self { latencies: 1.0, clock: reading(), ..Self::of_exchanges(iters) }
    }

    /// An exchange begins.
    #[inline]
    pub fn post(&mut self) {
        self.posted.push(Instant::now());
    }

    /// The line for messages of `size` bytes; `None` for fewer exchanges than make one.
    pub fn report(&self, size: u64) -> Option<Report> {
        let latency_us = |pair: &[Instant]| {
            (pair[1] - pair[0]).saturating_sub(self.clock).as_secs_f64() * 1e6 / self.latencies
        };
        Report::of(size, self.posted.windows(2).map(latency_us).collect())
    }
}

impl Report {
    fn of(size: u64, mut times: Vec<f64>) -> Option<Self> {
        let iters = times.len() as u64 + 1;
        times.sort_unstable_by(f64::total_cmp);
        let counted = times.len().checked_sub(TAIL).filter(|&counted| counted > 0)?;
        let (body, tail) = times.split_at(counted);
        let average = body.iter().sum::<f64>() / counted as f64;
        let variance = body.iter().map(|time| (time - average).powi(2)).sum::<f64>() / counted as f64;
        let at = |share: f64| times[((counted as f64 * share).ceil() as usize).min(counted)];
        Some(Self {
            size,
            iters,
            min: body[0],
            max: tail[0],
            typical: (body[(counted - 1) / 2] + body[counted / 2]) / 2.0,
            average,
            deviation: variance.sqrt(),
            percentile_99: at(0.99),
            percentile_99_9: at(0.999),
        })
    }
}

/// How long one reading of the clock takes, which is the least of many: some are interrupted.
fn reading() -> Duration {
    let readings: Vec<_> = (0..1000).map(|_| Instant::now()).collect();
    readings.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or_default()
}

/// The rule and the line of titles.
pub fn titles() -> String {
    format!(
        "{RULE}\n #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    \
         t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n"
    )
}

/// Returns a line of the table.
pub fn line(report: &Report) -> String {
    let Report { size, iters, min, max, typical, average, deviation, percentile_99, percentile_99_9 } =
        report;
    format!(
        " {size:<7} {iters:<10}     {min:<7.2}        {max:<7.2}      {typical:<7.2}            {average:<7.2}        \
         {deviation:<7.2}         {percentile_99:<7.2}                {percentile_99_9:<7.2}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_slowest_are_left_out() {
        let times: Vec<f64> = (1..=1001).rev().map(f64::from).collect();
        let report = Report::of(2, times).unwrap();
        assert_eq!((report.iters, report.min, report.max), (1002, 1.0, 1000.0));
        assert_eq!((report.typical, report.average), (500.0, 500.0));
        assert_eq!((report.percentile_99, report.percentile_99_9), (991.0, 1000.0));
        assert!((report.deviation - (999.0f64 * 999.0 - 1.0).sqrt() / 12f64.sqrt()).abs() < 1e-9);
    }

    #[test]
    fn the_median_of_an_even_count_is_between_its_middles() {
        let report = Report::of(2, vec![1.0, 2.0, 3.0, 4.0, 100.0, 100.0]).unwrap();
        assert_eq!((report.typical, report.average, report.max), (2.5, 2.5, 100.0));
    }

    #[test]
    fn five_exchanges_make_a_line_and_three_do_not() {
        let mut recorder = Recorder::of_exchanges(5);
        for _ in 0..3 {
            recorder.post();
        }
        assert_eq!(recorder.report(2), None);
        recorder.post();
        recorder.post();
        assert_eq!(recorder.report(2).unwrap().iters, 5);
    }

    #[test]
    fn a_read_is_a_whole_round_trip_and_a_write_half_an_exchange() {
        let begin = Instant::now();
        let posted: Vec<_> = (0..5).map(|number| begin + Duration::from_micros(10 * number)).collect();
        let typical = |recorder| Recorder { posted: posted.clone(), ..recorder }.report(2).unwrap().typical;
        let clock = Duration::from_micros(3);
        let exchange = typical(Recorder::of_exchanges(5));
        let read = typical(Recorder { clock, ..Recorder::of_round_trips(5) });
        assert!((exchange - 5.0).abs() < 1e-9 && (read - 7.0).abs() < 1e-9, "{exchange} {read}");
    }

    #[test]
    fn the_table_is_perftests() {
        let report = Report {
            size: 2,
            iters: 1000,
            min: 1.63,
            max: 8.27,
            typical: 1.71,
            average: 1.75,
            deviation: 0.12,
            percentile_99: 2.26,
            percentile_99_9: 8.27,
        };
        insta::assert_snapshot!(titles() + &line(&report));
    }
}
