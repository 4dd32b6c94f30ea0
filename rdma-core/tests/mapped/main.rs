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

/// The wire under test. The tests of `tcp` that are included here run on both.
const WIRE: Wire = Wire::Mapped;
/// The access to a peer that this wire gives.
const ACCESS: PeerAccess = PeerAccess::Mapped;
