//! Jobs of servers: their answers, figures and traces, and the cost of a server that is lost.
//!
//! One executable, because each is linked apart with all of the model and of HTTP. The recorder of metrics is the only
//! state that these tests share; spans are those of processes. One of the tests measures time, in `metrics`, and a second
//! one would have to take turns with it.

mod api;
mod lost;
mod metrics;
mod split;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "otel")]
mod traces;
