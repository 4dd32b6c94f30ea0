//! Collectives between processes, ours and others': the operation ([`Table`]), where its ranks are ([`Network`]), the
//! side that does it ([`Side`]), and the time that it takes, in turns ([`Pairs`]).

pub mod network;
pub mod pairs;
pub mod picture;
pub mod rank;
pub mod side;
pub mod table;

pub use network::{Network, Spread};
pub use pairs::Pairs;
pub use side::{Setup, Side};
pub use table::Table;
