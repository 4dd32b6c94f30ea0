//! The roles of a server: a single process that does all, and the prefill and decode that share the work.

mod decode;
mod model;
mod prefill;
mod router;
mod single;

pub use decode::Decode;
pub use model::Model;
pub use prefill::Prefill;
pub use router::Router;
pub use single::Single;
