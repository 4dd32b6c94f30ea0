//! The engine against a model, against itself over a bad network, and its transitions as tables.

mod bypass;
mod oracle;
mod pair;
mod transitions;
