//! Times of a run's steps: seconds of the clock, and seconds of processor of the processes that ended meanwhile. On a
//! machine that does other work too, only the second tells what a step costs.

use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};

/// Ticks a second of the times in `/proc`: Linux has the same on every architecture that Rust knows.
const TICKS: u64 = 100;

/// The times of one step.
#[derive(Debug, Clone, Copy)]
pub struct Took {
    /// Time of the clock.
    pub elapsed: Duration,
    /// Time of processor of all children that ended, and of theirs.
    pub processor: Duration,
}

impl Took {
    /// Carries out a step, and measures it.
    pub fn measure<T>(run: impl FnOnce() -> T) -> (T, Took) {
        let (started, before) = (Instant::now(), of_children());
        let result = run();
        (result, Took { elapsed: started.elapsed(), processor: of_children().saturating_sub(before) })
    }

    /// Two columns: seconds of the clock and of processor.
    pub fn columns(self) -> String {
        format!("{:>5.0} s {:>5.0} s", self.elapsed.as_secs_f64(), self.processor.as_secs_f64())
    }
}

/// The heading of [`Took::columns`].
pub const HEADING: &str = "  clock processor";

/// The steps so far.
#[derive(Default)]
pub struct Times(Vec<(String, Took)>);

impl Times {
    /// Carries out a step, under its name.
    pub fn step<T>(&mut self, name: &str, run: impl FnOnce() -> T) -> T {
        println!("==> {name}");
        let (result, took) = Took::measure(run);
        self.0.push((name.to_owned(), took));
        result
    }

    /// A line for each step.
    pub fn list(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (name, took)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{}  {name}", took.columns());
            text
        })
    }
}

/// Time of processor of the children that ended: the 16th and 17th field of `/proc/self/stat`, in ticks.
fn of_children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    parse(&stat).unwrap_or_default()
}

fn parse(stat: &str) -> Option<Duration> {
    // The second field is the program's name in brackets, and may contain blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(13);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(Duration::from_millis((ticks()? + ticks()?) * (1000 / TICKS)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_childrens_time_is_read_from_the_kernels_line() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 5 100 0 0 11 12 250 50 20 0 1 0 9 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(parse(stat), Some(Duration::from_secs(3)));
        assert_eq!(parse("7 (a"), None);
    }
}
