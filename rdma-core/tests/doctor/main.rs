//! The doctor on trees of files: a healthy one, one for each finding, and damaged ones.

mod absent;
mod bad_trees;
mod bearing;
mod case;
mod each;
mod healthy;
mod mends;
mod reading;
mod tree;
mod unread;
