//! What collectives and KV transfer stand on: how processes find each other.

pub mod bootstrap;
