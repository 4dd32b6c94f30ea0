//! The conformance suite: cases that every device and every wire must pass.
//!
//! [`cases::all`] lists the cases, a [`Lab`] is the device that a case works with, and [`run`] runs cases one by one
//! under a watchdog. [`deviations`] lists where a kernel or driver is known to differ, each entry with its source. The
//! suite asserts each deviation, so one that has gone away fails the run.

pub mod cases;
pub mod deviations;
mod lab;
pub mod peer;
mod report;
mod run;

pub use lab::{Both, End, Lab, PairOptions};
pub use report::{Outcome, Report};
pub use run::run;

/// The result of a case; an error says which expectation did not hold.
pub type CaseResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A case: one behaviour that a device must show.
#[derive(Clone, Copy)]
pub struct Case {
    /// The name of the case: `file::function`.
    pub name: &'static str,
    /// Whether the case asserts an exact status, errno or flush.
    pub exact: bool,
    /// The function that carries the case out.
    pub run: fn(&Lab) -> CaseResult,
}

/// Fails the case unless `$condition` holds.
#[macro_export]
macro_rules! check {
    ($condition:expr) => {
        if !$condition {
            return Err(format!("{}:{}: {} does not hold", file!(), line!(), stringify!($condition)).into());
        }
    };
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(format!("{}:{}: {}", file!(), line!(), format_args!($($words)+)).into());
        }
    };
}

/// Fails the case unless both values are equal.
#[macro_export]
macro_rules! check_eq {
    ($left:expr, $right:expr) => {{
        let (left, right) = (&$left, &$right);
        if left != right {
            let (file, line) = (file!(), line!());
            return Err(format!("{file}:{line}: {} is {left:?}, not {right:?}", stringify!($left)).into());
        }
    }};
}
