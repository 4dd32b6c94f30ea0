//! Layouts: where each block of each layer lies in a pool, and whether two pools agree on it.
//!
//! Layouts own offsets. The memory, its registration and the holds on blocks belong to the pool.

mod cache_type;
mod error;
mod hash;
mod model;
pub(in crate::kv) mod order;
mod shape;
mod tensor_parallel;

pub use cache_type::CacheType;
pub use error::{LayoutError, Side};

pub use model::Model;
pub use order::{Extent, HeadOrder, Layout, Order};
pub use shape::{Attention, Shape};
pub use tensor_parallel::TensorParallel;
