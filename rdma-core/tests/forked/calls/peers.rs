//! Calls on memory of a peer, and on windows.

use std::time::Duration;

use rdma_core::memory::CacheHint;
use rdma_core::{Deadline, PeerSlice, PeerWindow};

use super::{Call, Outcome, done, harmless, refused, told};
use crate::busy::soon;
use crate::fixture::Fixture;
use crate::raw::Reads;

/// Calls `with` on memory of the peer.
fn slice(mut f: Fixture, with: impl FnOnce(&mut PeerSlice<'_>) -> Outcome) -> Outcome {
    let target = f.region.remote();
    with(&mut f.worker.peer_slice(&f.left, target, soon()))
}

/// Calls `with` on the peer's window, where there is one.
fn theirs(f: Fixture, with: impl FnOnce(&PeerWindow) -> Outcome) -> Outcome {
    f.peer_window.as_ref().map_or(Outcome::Absent, with)
}

pub const CALLS: &[Call] = &[
    refused("PeerSlice::copy_from", |mut f| {
        let mut slice = f.worker.peer_slice(&f.left, f.region.remote(), soon());
        told(slice.copy_from(0, 8, &f.private, 0))
    }),
    refused("PeerSlice::copy_in", |f| slice(f, |peer| told(peer.copy_in(0, &[1; 8])))),
    refused("PeerSlice::copy_out", |f| slice(f, |peer| told(peer.copy_out(0, &mut [1; 8])))),
    refused("PeerSlice::copy_to", |mut f| {
        let mut slice = f.worker.peer_slice(&f.left, f.region.remote(), soon());
        told(slice.copy_to(0, 8, &f.private, 0))
    }),
    harmless("PeerSlice::is_empty", |f| slice(f, |peer| done(peer.is_empty()))),
    harmless("PeerSlice::len", |f| slice(f, |peer| done(peer.len()))),
    refused("PeerSlice::load", |f| slice(f, |peer| told(peer.load::<u64>(0)))),
    refused("PeerSlice::ready", |f| slice(f, |peer| told(peer.ready()))),
    refused("PeerSlice::reduce_from", |f| slice(f, |peer| told(peer.reduce_from(0, 8, |_, _| {})))),
    refused("PeerSlice::run", |f| slice(f, |peer| told(peer.run(0, 8, &mut Reads(0))))),
    refused("PeerSlice::store", |f| slice(f, |peer| told(peer.store(0, 1_u64)))),
    refused("PeerSlice::wait", |f| slice(f, |peer| told(peer.wait(0, |flag: u64| flag == 1)))),
    refused("PeerSlice::wait_own", |mut f| {
        let mut slice = f.worker.peer_slice(&f.left, f.region.remote(), soon());
        told(slice.wait_own(&f.private, 0, |flag: u64| flag == u64::MAX))
    }),
    harmless("PeerSlice::with_cache_hint", |mut f| {
        let slice = f.worker.peer_slice(&f.left, f.region.remote(), soon());
        done(slice.with_cache_hint(CacheHint::Cached).len())
    }),
    refused("PeerWindow::copy_in", |f| theirs(f, |window| told(window.copy_in(0, &[1; 8])))),
    refused("PeerWindow::copy_out", |f| theirs(f, |window| told(window.copy_out(0, &mut [1; 8])))),
    refused("PeerWindow::copy_out_hinted", |f| {
        theirs(f, |window| told(window.copy_out_hinted(0, &mut [1; 8], CacheHint::Cached)))
    }),
    harmless("PeerWindow::is_empty", |f| theirs(f, |window| done(window.is_empty()))),
    harmless("PeerWindow::len", |f| theirs(f, |window| done(window.len()))),
    refused("PeerWindow::load", |f| theirs(f, |window| told(window.load::<u64>(0)))),
    refused("PeerWindow::run", |f| theirs(f, |window| told(window.run(0, 8, &mut Reads(0))))),
    refused("PeerWindow::store", |f| theirs(f, |window| told(window.store(0, 1_u64)))),
    refused("Window::copy_in", |f| told(f.window.copy_in(0, &[1; 8]))),
    harmless("Window::copy_out", |f| done(f.window.copy_out(0, &mut [1; 8]))),
    harmless("Window::drop", |f| {
        drop(f.window);
        Outcome::Done
    }),
    harmless("Window::len", |f| done(f.window.len())),
    harmless("Window::load", |f| done(f.window.load::<u64>(0))),
    harmless("Window::remote", |f| done(f.window.remote())),
    refused("Window::run", |f| told(f.window.run(0, 8, &mut Reads(0)))),
    refused("Window::store", |f| told(f.window.store(0, 1_u64))),
    refused("Window::wait", |f| {
        told(f.window.wait(0, |flag: u64| flag == 1, Deadline::after(Duration::from_secs(60))))
    }),
];
