//! The cache of a server: pages in a pool, and the pages that texts with one beginning share.

mod blocks;
mod paged;

pub use blocks::{Blocks, Counts, NoBlocks, Taken, WAITS};
pub use paged::{Memory, Paged};
