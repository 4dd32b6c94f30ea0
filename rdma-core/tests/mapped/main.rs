//! Software devices that reach each other through shared memory, in one process and in two.

mod alone;
mod apart;
mod attack;
mod auto;
mod deaths;
#[path = "../tcp/end.rs"]
mod end;
mod fallback;
mod in_place;
mod limits;
mod long;
mod neighbours;
mod peer_slice;
#[path = "../tcp/processes.rs"]
mod processes;
mod quarantine;
mod random;
mod raw;
#[path = "../tcp/traffic.rs"]
mod traffic;
mod wayward;
mod window;

use rdma_core::{PeerAccess, Wire};

/// Which these tests are of; `tcp` has most of them, too.
const WIRE: Wire = Wire::Mapped;
/// How it reaches a peer.
const ACCESS: PeerAccess = PeerAccess::Mapped;
