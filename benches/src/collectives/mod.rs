//! Collectives between processes of one host, ours and others': what is done ([`Table`]), by whom ([`Side`]), and how long it
//! takes, in turns ([`Pairs`]).

pub mod pairs;
pub mod picture;
pub mod rank;
pub mod side;
pub mod table;

pub use pairs::Pairs;
pub use side::{Setup, Side};
pub use table::Table;
