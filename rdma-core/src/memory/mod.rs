//! Memory that a device may touch: who may look at it, and when.
//!
//! Two types, after who writes. [`LocalBuf`] is registered with `LOCAL_WRITE` alone and is
//! owned by one place at a time (the caller, or the worker while it is posted), so it derefs
//! to `[u8]`. A [`Region`] exports a right to peers, who write whenever they like, so it never
//! gives a slice: it is read and written by copying.
//!
//! With `backend`, this is the only home of `unsafe` in the crate. It knows no device: a
//! registration is a `Registration` that a backend made.

mod capacity;
mod copy;
mod exported;
pub(crate) mod flag;
pub(crate) mod fork;
mod in_place;
mod kinds;
mod local_buf;
mod owned;
pub mod pinning;
mod quarantine;
mod region;
mod registered;
mod sharing;
mod window;

pub(crate) use capacity::file_limit_below;
#[doc(hidden)]
pub use copy::{CacheHint, copy_slice};
pub(crate) use copy::{copy_shared, copy_shared_hinted, prefetch, prefetch_for_write};
pub use exported::Exported;
pub use flag::Flag;
pub(crate) use flag::{Backoff, Pause};
pub use in_place::InPlace;
pub(crate) use in_place::check_needs;
pub(crate) use kinds::{Backing, Irreplaceable, Mapping, Pages, Patch};
pub use local_buf::LocalBuf;
pub use owned::Memory;
pub use quarantine::{Quarantined, quarantined};
pub use region::Region;
pub(crate) use registered::{Keys, PdId, Registered, Registration};
pub use sharing::{Sharing, Unshared};
pub use window::{PeerWindow, Window};
