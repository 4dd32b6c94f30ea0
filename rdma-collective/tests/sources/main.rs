//! Transfers that several ranks of prefill fill together: refusals, deadlines, layers, and ranks that are lost.

#[path = "../common/mod.rs"]
mod common;
mod joint;
mod lost;
mod packed;
#[path = "../pair/mod.rs"]
mod pair;
mod ranks;
mod refusals;
