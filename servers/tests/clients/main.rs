//! Clients of others, and clients that do harm or say garbage: the servers lose nothing by them.

mod input;
mod limits;
mod models;
mod others;
#[path = "../support/mod.rs"]
mod support;
