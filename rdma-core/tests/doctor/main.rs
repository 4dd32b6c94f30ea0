//! The doctor on trees of files: a healthy one, one for each finding, and damaged ones.

mod bad_trees;
mod bearing;
mod each;
mod reading;
mod tree;
