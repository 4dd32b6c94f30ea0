//! Tests of the engine: against a model, over a bad network, and its transitions as tables.

mod bypass;
mod oracle;
mod pair;
mod transitions;
