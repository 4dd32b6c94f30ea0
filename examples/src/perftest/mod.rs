//! What `write_bw` and `write_lat` share: perftest's flags, its exchange of parameters, its header and tables.

pub mod args;
pub mod bandwidth;
pub mod banner;
pub mod exchange;
pub mod idle;
pub mod latency;
pub mod session;

/// The line perftest draws between the parts of its output.
pub const RULE: &str =
    "---------------------------------------------------------------------------------------";
