//! One suite of verbs cases for every device and wire.
//!
//! [`cases::all`] lists them, [`Lab`] is what a case works with, [`run`] runs them one by one
//! under a watchdog, and [`deviations`] names what a kernel or driver is known to do otherwise,
//! each entry with its source, and asserted: a deviation that has gone away fails the run.

pub mod cases;
pub mod deviations;
mod lab;
pub mod peer;
mod report;
mod run;

pub use lab::{Both, End, Lab, PairOptions};
pub use report::{Outcome, Report};
pub use run::run;

/// What a case returns: nothing, or what was not as it must be.
pub type CaseResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// One thing that a device must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name: `file::function`.
    pub name: &'static str,
    /// Whether it asserts an exact status, errno or flush.
    pub exact: bool,
    /// The case itself.
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

/// Fails the case unless both are equal.
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
