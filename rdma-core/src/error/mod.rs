//! Errors, one small enum per area; each says what is wrong and ends with the mend.

mod close;
mod connect;
mod create;
mod open;
mod poll;
mod post;
mod range;
mod reach;
mod register;

pub use close::CloseError;
pub use connect::{ConnectError, GidRejection, NoUsableGid};
pub use create::CreateError;
pub use open::{LibraryUnavailable, OpenError, QueryError};
pub use poll::{FenceError, PollError};
pub use post::{DetachError, PartialPost, PostError, PostRefused};
pub use range::RangeError;
pub use reach::ReachError;
pub use register::RegisterError;
