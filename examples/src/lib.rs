//! Parts that the example programs share: sizes as people type them, nccl-tests' table and perftest's, and charts.
//!
//! The programs themselves are in `src/bin`; those that are one line are [`collectives`] and [`perftest`].
//! [`columns::parse`] reads a printed table back, so that a test can hold what a program printed against what the
//! numbers in it must be.

#![allow(rustdoc::invalid_html_tags, reason = "the comments on options are help texts, in another syntax")]

pub mod chart;
pub mod collectives;
pub mod columns;
pub mod debug;
pub mod doctor;
pub mod fault;
pub mod hosts;
pub mod memory;
pub mod metrics;
pub mod output;
pub mod perftest;
pub mod processes;
pub mod sizes;
pub mod wire;
