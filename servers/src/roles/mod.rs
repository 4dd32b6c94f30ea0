//! The roles of a server: a single process that does all, and the prefill and decode that share the work.

mod single;

pub use single::Single;
