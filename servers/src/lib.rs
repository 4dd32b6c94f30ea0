//! A disaggregated server to look at: prefills, decodes and a router around a small Llama.
//!
//! `model` computes tokens, `cache` has their keys and values in the pools of the library, `batch` computes many texts
//! at once, `api` is what clients speak, and `roles` are the servers that are made of these. `observe` counts what they
//! do, and `trace` follows requests from server to server.

pub mod api;
pub mod batch;
pub mod bodies;
pub mod cache;
pub mod client;
pub mod demo;
pub mod directory;
pub mod generate;
pub mod health;
pub mod listen;
pub mod load;
pub mod members;
pub mod model;
pub mod observe;
pub mod process;
pub mod roles;
pub mod serve;
pub mod trace;
