//! Calls on memory, registered or not. Both processes share registered memory, so its bytes stay readable.

use std::time::Duration;

use rdma_core::memory::pinning::{PinningNeed, PinningProbe};
use rdma_core::{Deadline, Memory, RemoteMemory, quarantined};

use super::{Call, Outcome, done, harmless, refused, told};
use crate::busy::soon;
use crate::fixture::{ALL, BYTES};
use crate::raw;

pub const CALLS: &[Call] = &[
    harmless("Exported::drop", |f| {
        drop(f.exported);
        Outcome::Done
    }),
    harmless("Exported::remote", |f| done::<RemoteMemory>(f.exported.remote())),
    refused("Exported::revoke", |f| told(f.exported.revoke(soon()))),
    harmless("LocalBuf::capacity", |f| done(f.local.capacity())),
    harmless("LocalBuf::deref", |f| done(f.local.iter().fold(0, |all, byte| all ^ byte))),
    harmless("LocalBuf::deref_mut", |mut f| {
        f.local.fill(0);
        Outcome::Done
    }),
    harmless("LocalBuf::into_region", |f| done(f.local.into_region().map(drop))),
    harmless("LocalBuf::reset_view", |mut f| {
        f.local.reset_view();
        Outcome::Done
    }),
    harmless("LocalBuf::set_view", |mut f| done(f.local.set_view(1..2))),
    harmless("LocalBuf::sharing", |f| done(f.local.sharing())),
    harmless("LocalBuf::slice", |f| done(f.local.slice(1..2).map(drop))),
    harmless("LocalBuf::split_at", |f| done(f.local.split_at(8).map(drop))),
    harmless("LocalBuf::whole", |f| done(f.local.whole())),
    harmless("Memory::adopt", |_| done(Memory::adopt(vec![0; 8]))),
    harmless("Memory::allocate", |_| done(Memory::allocate(BYTES).unwrap())),
    harmless("Memory::deref", |f| done(f.memory.first().copied())),
    harmless("Memory::deref_mut", |mut f| {
        f.memory.fill(1);
        Outcome::Done
    }),
    harmless("Memory::from", |_| {
        done((Memory::from(vec![0_u8; 8]), Memory::from(vec![0_u8; 8].into_boxed_slice())))
    }),
    harmless("Memory::from_raw_parts", |_| done(raw::from_raw_parts(8))),
    harmless("Memory::into_owner", |f| done(f.memory.into_owner::<Vec<u8>>().map(drop))),
    harmless("Memory::share_in_place", |_| done(raw::share_in_place(Memory::from(vec![0_u8; 8])))),
    harmless("Memory::sharing", |f| done(f.memory.sharing())),
    harmless("Memory::unshare", |f| done(f.memory.unshare().map(drop).is_ok())),
    harmless("memory::InPlace::run", |_| done(raw::reads_in_place(&mut [1, 2]))),
    harmless("Region::access", |f| done(f.region.access())),
    harmless("Region::address_of", |f| done(f.region.address_of(0, 8))),
    harmless("Region::copy_in", |f| done(f.region.copy_in(0, &[0; 8]))),
    harmless("Region::copy_out", |f| done(f.region.copy_out(0, &mut [0; 8]))),
    harmless("Region::copy_to", |f| done(f.region.copy_to(0, 8, &f.private, 0))),
    harmless("Region::copy_to_hinted", |f| {
        done(f.region.copy_to_hinted(0, 8, (&f.private, 0), rdma_core::memory::CacheHint::Cached))
    }),
    refused("Region::deregister", |f| {
        drop(f.worker);
        // The worker's handle is leaked with the worker, so a region that is not attached stands for all.
        let local = f.local.into_region().unwrap();
        told(local.deregister())
    }),
    harmless("Region::into_local", |f| done(f.private.into_local().map(drop).is_ok())),
    harmless("Region::len", |f| done(f.region.len())),
    harmless("Region::load", |f| done(f.region.load::<u64>(0))),
    harmless("Region::remote", |f| done(f.region.remote())),
    harmless("Region::rkey", |f| done(f.region.rkey())),
    harmless("Region::sharing", |f| done(f.region.sharing())),
    harmless("Region::store", |f| done(f.region.store(8, 0_u64))),
    harmless("Region::wait", |f| {
        done(f.region.wait(8, |flag: u64| flag == 1, Deadline::after(Duration::from_millis(5))).is_err())
    }),
    harmless("quarantined", |_| done(quarantined())),
    harmless("memory::quarantined", |_| done(quarantined())),
    harmless("memory::pinning::PinningProbe::new", |f| {
        let probe = PinningProbe::new().read();
        done(probe.check_before(PinningNeed::length(BYTES as u64), f.context.name()).is_ok())
    }),
    // A registration must not write where the child has blocks of its own in place of its parent's mappings.
    refused("ProtectionDomain::alloc_region", |f| {
        let blocks: Vec<Vec<u8>> = (0..96).map(|_| vec![0; 1 << 20]).collect();
        let all: Vec<_> = (0..200).map(|_| told(f.pd.alloc_region(BYTES, ALL))).collect();
        let changed = blocks.iter().any(|block| block.iter().any(|byte| *byte != 0));
        assert!(!changed, "a registration changed bytes of the child's own");
        all.into_iter().next().unwrap()
    }),
];
