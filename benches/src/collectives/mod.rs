//! Collectives between processes of one host, ours and others': the operation ([`Table`]), the side that does it
//! ([`Side`]), and the time that it takes, in turns ([`Pairs`]).

pub mod pairs;
pub mod picture;
pub mod rank;
pub mod side;
pub mod table;

pub use pairs::Pairs;
pub use side::{Setup, Side};
pub use table::Table;
