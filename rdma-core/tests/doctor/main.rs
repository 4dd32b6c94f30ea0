//! The doctor on trees of files: a healthy one, one for each finding, and damaged ones.

#[path = "../unwinding/raw.rs"]
#[expect(dead_code, reason = "other tests use more of it")]
mod raw;

mod absent;
mod bad_trees;
mod bearing;
mod case;
mod each;
mod each_file;
mod healthy;
mod mends;
mod reading;
mod tree;
mod unread;
