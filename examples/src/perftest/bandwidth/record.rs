//! Times of posts and completions in, perftest's bandwidth line out.

use crate::perftest::RULE;
use std::time::Instant;

/// Above so many messages the peak is not looked for, as in perftest.
const PEAK_MESSAGES_MAX: u64 = 20_000;
const MEBIBYTE: f64 = 1024.0 * 1024.0;

/// Notes when messages were posted and completed, in their order over all queue pairs.
#[derive(Debug)]
pub struct Recorder {
    start: Option<Instant>,
    /// (messages posted before, nanoseconds after `start`), of each burst; empty when no peak is asked for.
    posted: Vec<(u64, u64)>,
    /// (messages complete, nanoseconds after `start`), of each poll that found some.
    completed: Vec<(u64, u64)>,
    messages: u64,
    end_ns: u64,
    /// When completions were found, until the next burst, which begins then.
    found: Option<Instant>,
}

/// A line of the table.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Report {
    /// Bytes of a message.
    #[serde(rename = "bytes")]
    pub size: u64,
    /// Messages over all queue pairs.
    pub messages: u64,
    /// MiB/s over the best stretch; 0 when it was not looked for.
    #[serde(rename = "peak_mib_s")]
    pub peak: f64,
    /// MiB/s over the whole run.
    #[serde(rename = "average_mib_s")]
    pub average: f64,
    /// Million messages a second.
    #[serde(rename = "million_messages_s")]
    pub rate: f64,
}

impl Recorder {
    /// Makes room for `messages`, so that recording allocates nothing.
    pub fn new(messages: u64) -> Self {
        let room = if messages <= PEAK_MESSAGES_MAX { messages as usize } else { 0 };
        Self {
            start: None,
            posted: Vec::with_capacity(room),
            completed: Vec::with_capacity(room),
            messages,
            end_ns: 0,
            found: None,
        }
    }

    /// Messages are about to be posted one after the other; so many, over all queue pairs, were posted before.
    ///
    /// At most one reading of the clock a burst, and none right after completions were found: where it is a system call
    /// it costs as much as a post.
    #[inline]
    pub fn burst(&mut self, before: u64) {
        let with_peak = self.messages <= PEAK_MESSAGES_MAX;
        if self.start.is_some() && !with_peak {
            return;
        }
        let now = self.found.take().unwrap_or_else(Instant::now);
        let start = *self.start.get_or_insert(now);
        if self.posted.len() < self.posted.capacity() {
            self.posted.push((before, nanoseconds(start, now)));
        }
    }

    /// So many messages, over all queue pairs, are complete.
    #[inline]
    pub fn complete(&mut self, total: u64) {
        let last = total >= self.messages;
        if self.messages > PEAK_MESSAGES_MAX && !last {
            return;
        }
        let now = Instant::now();
        self.found = Some(now);
        self.end_ns = nanoseconds(self.start.unwrap_or(now), now);
        if self.completed.len() < self.completed.capacity() {
            self.completed.push((total.min(self.messages), self.end_ns));
        }
    }

    /// The line for messages of `size` bytes.
    pub fn report(&self, size: u64) -> Report {
        let seconds = self.end_ns.max(1) as f64 / 1e9;
        let messages = self.messages as f64;
        Report {
            size,
            messages: self.messages,
            peak: self.peak_interval_ns().map_or(0.0, |ns| size as f64 / MEBIBYTE / (ns / 1e9)),
            average: size as f64 * messages / MEBIBYTE / seconds,
            rate: messages / seconds / 1e6,
        }
    }

    /// The least time a message took on average between the start of any burst and any later completion.
    fn peak_interval_ns(&self) -> Option<f64> {
        let mut best: Option<f64> = None;
        for &(total, completed) in &self.completed {
            for &(before, posted) in self.posted.iter().take_while(|(before, _)| *before < total) {
                let each = completed.saturating_sub(posted).max(1) as f64 / (total - before) as f64;
                best = Some(best.map_or(each, |best| best.min(each)));
            }
        }
        best
    }
}

fn nanoseconds(start: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(start).as_nanos()).unwrap_or(u64::MAX)
}

/// The rule and the line of titles.
pub fn titles() -> String {
    format!("{RULE}\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n")
}

/// Returns a line of the table.
pub fn line(report: &Report) -> String {
    let Report { size, messages, peak, average, rate } = report;
    format!(
        " {size:<7}    {messages:<10}       {peak:<7.2}            {average:<7.2}               {rate:<8.6}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recorded(messages: u64, posted: &[(u64, u64)], completed: &[(u64, u64)]) -> Recorder {
        Recorder {
            start: Some(Instant::now()),
            posted: posted.to_vec(),
            completed: completed.to_vec(),
            messages,
            end_ns: completed.last().map_or(0, |&(_, ns)| ns),
            found: None,
        }
    }

    #[test]
    fn average_and_rate_are_over_the_whole_run() {
        // Four messages of 1 MiB in 8 ms; the last two took 1 ms each.
        let run = recorded(4, &[(0, 0), (2, 6_000_000)], &[(2, 6_000_000), (4, 8_000_000)]);
        let report = run.report(1 << 20);
        assert_eq!(report, Report { size: 1 << 20, messages: 4, peak: 1000.0, average: 500.0, rate: 0.0005 });
    }

    #[test]
    fn a_long_run_has_no_peak_and_two_clock_readings() {
        let mut run = Recorder::new(PEAK_MESSAGES_MAX + 1);
        for total in 1..=PEAK_MESSAGES_MAX + 1 {
            run.burst(total - 1);
            run.complete(total);
        }
        assert!(run.posted.is_empty() && run.completed.is_empty());
        let report = run.report(8);
        assert_eq!(report.peak, 0.0);
        assert!(report.average > 0.0 && report.rate > 0.0);
    }

    #[test]
    fn the_table_is_perftests() {
        let report =
            Report { size: 65_536, messages: 5000, peak: 11_523.128, average: 11_520.5, rate: 0.184_328 };
        let text = titles() + &line(&report) + &line(&Report { size: 8_388_608, peak: 0.0, ..report });
        insta::assert_snapshot!(text);
    }

    proptest! {
        #[test]
        fn the_peak_is_never_below_the_average(bursts in prop::collection::vec((1u64..100, 1u64..1000), 1..40)) {
            let (mut posted, mut completed, mut now, mut total) = (vec![], vec![], 0, 0);
            for (messages, ns) in bursts {
                posted.push((total, now));
                (total, now) = (total + messages, now + ns);
                completed.push((total, now));
            }
            let report = recorded(total, &posted, &completed).report(64);
            prop_assert!(report.peak >= report.average * (1.0 - 1e-12));
        }
    }
}
