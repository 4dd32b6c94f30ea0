//! Jobs of servers: their answers, figures and traces, and the cost of a server that is lost.
//!
//! All in one executable, because each is linked apart with the model and HTTP. The recorder of metrics is the only
//! state that these tests share; spans are those of processes. A test in `metrics` measures time, and no other one
//! does: a second one would have to take turns with it.

mod api;
mod lost;
mod metrics;
mod split;
#[path = "../support/mod.rs"]
mod support;
#[cfg(feature = "otel")]
mod traces;
