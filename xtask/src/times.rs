//! How long the steps of a run took, each in one line.

use std::fmt::Write;
use std::time::{Duration, Instant};

/// The steps so far.
#[derive(Default)]
pub struct Times(Vec<(String, Duration)>);

impl Times {
    /// Carries out a step, under its name.
    pub fn step<T>(&mut self, name: &str, run: impl FnOnce() -> T) -> T {
        println!("==> {name}");
        let started = Instant::now();
        let result = run();
        self.0.push((name.to_owned(), started.elapsed()));
        result
    }

    /// A line for each step.
    pub fn list(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (name, time)| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{:>5.0} s  {name}", time.as_secs_f64());
            text
        })
    }
}
