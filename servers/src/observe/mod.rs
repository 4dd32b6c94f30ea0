//! The figures of a server: for `/stats`, for Prometheus, and with the spans of its requests.
//!
//! A [`Watch`] follows a text from its request to the end of its answer, and a [`Turn`] its way through the model. Both
//! count in the [`Stats`] of their server, which `/stats` and `/metrics` show.

mod figures;
pub mod names;
mod page;
mod stats;
mod turn;
mod watch;

pub use figures::{Cache, Came, Figures};
pub use page::{keep, routes};
pub use stats::{Count, Level, Outcome, Stats};
pub use turn::Turn;
pub use watch::{Heard, Watch, begin};
