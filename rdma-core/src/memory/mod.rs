//! Memory that devices may access, with the rule of who may look at it and when.
//!
//! There are two types of registered memory, by who may write it. A [`LocalBuf`] is registered with
//! `LOCAL_WRITE` alone. It has one owner at a time (the caller, or the worker while it is posted), so it
//! derefs to `[u8]`. A [`Region`] grants rights to peers, which write at any moment. No `&[u8]` of it ever
//! exists, because a reference to bytes that change is undefined behaviour; its bytes are copied in and out.
//!
//! [`Memory`] is memory that no device knows: before registration, and again after it. [`Window`] is memory
//! that peers on this host map. [`pinning`] explains limits on registered memory.
//!
//! Besides `backend`, this folder is the only one with `unsafe` code. It knows no device: a registration is a
//! `Registration` that a backend made.

mod anonymous_pages;
mod capacity;
mod copy;
mod exported;
pub(crate) mod flag;
pub(crate) mod fork;
mod in_place;
mod kinds;
mod local_buf;
mod map_over;
mod owned;
pub mod pinning;
mod quarantine;
mod region;
mod registered;
mod sharing;
mod window;

use anonymous_pages::AnonymousPages;
pub(crate) use capacity::file_limit_below;
#[doc(hidden)]
pub use copy::{CacheHint, copy_slice};
pub(crate) use copy::{copy_shared, copy_shared_hinted, prefetch, prefetch_for_write};
pub use exported::Exported;
pub use flag::Flag;
pub(crate) use flag::{Backoff, Pause};
#[cfg(feature = "metrics")]
pub(crate) use fork::FirstProcess;
#[doc(hidden)]
pub use fork::OwnProcess;
pub use in_place::InPlace;
pub(crate) use in_place::check_needs;
pub(crate) use kinds::{Backing, Irreplaceable, Mapping, Pages, Patch};
pub use local_buf::LocalBuf;
pub(crate) use map_over::map_over;
use map_over::{WRITABLE, map_shared};
pub use owned::Memory;
pub use quarantine::{Quarantined, quarantined};
pub use region::Region;
pub(crate) use registered::{Keys, PdId, Registered, Registration};
pub use sharing::{Sharing, Unshared};
pub use window::{PeerWindow, Window};
