//! Calls on KV links, pools and transfers.

use std::net::TcpListener;

use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{Decode, LinkOptions, OnDrop, Pool, PoolUse, Prefill};
use rdma_collective::link::Meet;
use rdma_core::Memory;

use super::operations::awaited;
use super::{Call, Outcome, done, harmless, polled, refused, told};
use crate::fixture::{Fixture, soon};
use crate::pair::TOKEN;

/// Calls `with` on a way to meet that nobody else takes.
fn meeting(with: impl FnOnce(&Meet<'_>) -> Outcome) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    with(&Meet::Accept(&listener))
}

fn layout(f: &Fixture) -> Layout {
    f.source.layout().clone()
}

pub const CALLS: &[Call] = &[
    harmless("kv::BlockShare::blocks", |f| done(f.share.blocks().len())),
    harmless("kv::BlockShare::blocks", |f| {
        drop(f.share);
        Outcome::Done
    }),
    harmless("kv::Decode::drop", |f| {
        drop(f.decode);
        Outcome::Done
    }),
    refused("kv::Decode::grant", |f| told(f.decode.grant(900, &[0], soon()))),
    refused("kv::Decode::grant_missing", |f| told(f.decode.grant_missing(901, &f.verdicts, soon()))),
    refused("kv::Decode::new", |f| {
        let options = LinkOptions::default();
        meeting(|meet| told(Decode::new(&f.engine, &f.destination, meet, &TOKEN, &options, soon())))
    }),
    harmless("kv::Decode::has_own_keys", |f| done(f.decode.has_own_keys())),
    harmless("kv::Decode::next_event", |f| done(f.decode.next_event())),
    harmless("kv::Decode::peer", |f| done(f.decode.peer())),
    harmless("kv::Decode::peer_access", |f| done(f.decode.peer_access())),
    harmless("kv::Decode::pool", |f| done(f.decode.pool().purpose())),
    refused("kv::Decode::prepare", |f| {
        told(Decode::prepare(&f.engine, &f.destination, &TOKEN, &LinkOptions::default()))
    }),
    refused("kv::Decode::pull", |f| told(f.decode.pull(902, &[0], soon()))),
    refused("kv::Decode::pull_layers", |f| told(f.decode.pull_layers(907, &[0], soon()))),
    refused("kv::Decode::pull_missing", |f| told(f.decode.pull_missing(903, &f.verdicts, soon()))),
    harmless("kv::Decode::route", |f| done(f.decode.route().block_bytes(0))),
    harmless("kv::Decode::stats", |f| done(f.decode.stats())),
    refused("kv::LayerFuture::poll", |f| awaited(f.grant.layer(1))),
    refused("kv::LayerSentFuture::poll", |f| awaited(f.push.layer_sent(1))),
    refused("kv::Pool::allocate", |f| told(Pool::allocate(&f.engine, &layout(&f), PoolUse::Source))),
    refused("kv::Pool::close", |f| told(f.source.close(soon()))),
    harmless("kv::Pool::held", |f| done(f.source.held(0))),
    harmless("kv::Pool::in_region", |f| {
        done(Pool::in_region(&f.engine, &f.region, 0, &layout(&f), PoolUse::Source).is_ok())
    }),
    harmless("kv::Pool::in_regions", |f| {
        let tensors = [(f.region.clone(), 0)];
        done(Pool::in_regions(&f.engine, &tensors, &layout(&f), PoolUse::Source).is_ok())
    }),
    harmless("kv::Pool::layout", |f| done(f.source.layout().bytes())),
    harmless("kv::Pool::purpose", |f| done(f.source.purpose())),
    harmless("kv::Pool::read", |f| done(f.source.read(0, 0, 0, &mut [0; 4]))),
    refused("kv::Pool::register", |f| {
        let memory = Memory::allocate(layout(&f).bytes() as usize).unwrap();
        told(Pool::register(&f.engine, memory, &layout(&f), PoolUse::Source))
    }),
    refused("kv::Pool::register_tensors", |f| {
        let memory = Memory::allocate(layout(&f).bytes() as usize).unwrap();
        told(Pool::register_tensors(&f.engine, vec![memory], &layout(&f), PoolUse::Source))
    }),
    harmless("kv::Pool::stats", |f| done(f.source.stats())),
    refused("kv::Pool::share", |f| told(f.source.share(&[20]))),
    refused("kv::Pool::write", |f| told(f.source.write(0, 20, 0, &[0; 4]))),
    harmless("kv::PoolUse::access", |_| done(PoolUse::Source.access())),
    harmless("kv::Prefill::drop", |f| {
        drop(f.prefill);
        Outcome::Done
    }),
    refused("kv::Prefill::new", |f| {
        let options = LinkOptions::default();
        meeting(|meet| told(Prefill::new(&f.engine, &f.source, meet, &TOKEN, &options, soon())))
    }),
    harmless("kv::Prefill::has_own_keys", |f| done(f.prefill.has_own_keys())),
    harmless("kv::Prefill::next_event", |f| done(f.prefill.next_event())),
    refused("kv::Prefill::offer", |f| told(f.prefill.offer(904, &[0], soon()))),
    harmless("kv::Prefill::peer", |f| done(f.prefill.peer())),
    harmless("kv::Prefill::peer_access", |f| done(f.prefill.peer_access())),
    refused("kv::Prefill::prepare", |f| {
        told(Prefill::prepare(&f.engine, &f.source, &TOKEN, &LinkOptions::default()))
    }),
    refused("kv::Prefill::push", |f| told(f.prefill.push(905, &[0], soon()))),
    refused("kv::Prefill::push_layers", |f| told(f.prefill.push_layers(906, &[0], soon()))),
    harmless("kv::Prefill::stats", |f| done(f.prefill.stats())),
    refused("kv::Prepared::connect", |mut f| told(f.prepared.connect(&f.blob, soon()))),
    harmless("kv::Prepared::export", |f| done(f.prepared.export().len())),
    harmless("kv::Transfer::blocks", |f| done(f.grant.blocks().len())),
    harmless("kv::Transfer::drop", |f| {
        drop((f.push, f.offer, f.grant, f.pull));
        Outcome::Done
    }),
    refused("kv::Transfer::extend", |f| told(f.push.extend(soon()))),
    refused("kv::Transfer::layer", |f| awaited(f.grant.layer(0))),
    refused("kv::Transfer::layer_ready", |f| told(f.push.layer_ready(0))),
    refused("kv::Transfer::set_note", |f| told(f.push.set_note(b"token"))),
    refused("kv::SkippedFuture::poll", |f| awaited(f.push.skipped())),
    refused("kv::Transfer::skipped", |f| awaited(f.offer.skipped())),
    refused("kv::Transfer::poll_skipped", |f| polled(f.push.poll_skipped())),
    refused("kv::Transfer::wait_skipped", |f| told(f.push.wait_skipped(soon()))),
    refused("kv::Transfer::layer_sent", |f| awaited(f.offer.layer_sent(0))),
    refused("kv::Transfer::poll", |mut f| polled(f.push.poll())),
    refused("kv::Transfer::poll", |mut f| polled(f.grant.poll())),
    refused("kv::Transfer::poll", |f| polled(f.offer.start_revoke(soon()).poll())),
    refused("kv::Transfer::poll", |f| polled(f.grant.start_revoke(soon()).poll())),
    refused("kv::Transfer::poll", |f| awaited(f.push)),
    refused("kv::Transfer::poll", |f| awaited(f.grant)),
    refused("kv::Transfer::poll_layer", |f| polled(f.grant.poll_layer(0))),
    refused("kv::Transfer::poll_layer_sent", |f| polled(f.push.poll_layer_sent(0))),
    harmless("kv::RevokeToken::revoke", |f| {
        f.grant.revoke_token().revoke(soon());
        Outcome::Done
    }),
    harmless("kv::Transfer::on_drop", |f| done(f.push.on_drop(OnDrop::Finish))),
    harmless("kv::Transfer::progress", |f| done(f.grant.progress())),
    harmless("kv::Transfer::progress", |f| done(f.offer.progress())),
    harmless("kv::Transfer::request", |f| done(f.push.request())),
    harmless("kv::Transfer::revoke_token", |f| done(f.push.revoke_token())),
    refused("kv::Transfer::revoke", |f| told(f.offer.revoke(soon()))),
    refused("kv::Transfer::revoke", |f| told(f.pull.revoke(soon()))),
    refused("kv::Transfer::start_revoke", |f| told(f.push.start_revoke(soon()).wait())),
    refused("kv::Transfer::start_revoke", |f| awaited(f.pull.start_revoke(soon()))),
    refused("kv::Transfer::wait", |f| told(f.offer.wait())),
    refused("kv::Transfer::wait", |f| told(f.pull.wait())),
    refused("kv::Transfer::wait_layer", |f| told(f.grant.wait_layer(0, soon()))),
    refused("kv::Transfer::wait_layer_sent", |f| told(f.push.wait_layer_sent(0, soon()))),
    refused("kv::Transfer::wait_until", |f| f.push.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::Transfer::wait_until", |f| f.grant.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::Transfer::wait_until", |f| {
        f.push.start_revoke(soon()).wait_until(soon()).map_or(Outcome::Done, told)
    }),
];
