//! A disaggregated server to look at: prefills, decodes and a router around a small Llama.

pub mod model;
