//! Calls on KV links, pools and transfers.

use std::future::IntoFuture;
use std::net::TcpListener;
use std::time::Duration;

use rdma_collective::kv::layout::Layout;
use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill};
use rdma_collective::link::Meet;
use rdma_core::{Deadline, Memory};

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
    *f.source.layout()
}

pub const CALLS: &[Call] = &[
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
    harmless("kv::Decode::next_event", |f| done(f.decode.next_event())),
    harmless("kv::Decode::peer", |f| done(f.decode.peer())),
    harmless("kv::Decode::peer_access", |f| done(f.decode.peer_access())),
    harmless("kv::Decode::pool", |f| done(f.decode.pool().purpose())),
    refused("kv::Decode::prepare", |f| {
        told(Decode::prepare(&f.engine, &f.destination, &TOKEN, &LinkOptions::default()))
    }),
    refused("kv::Decode::pull", |f| told(f.decode.pull(902, &[0], soon()))),
    refused("kv::Decode::pull_missing", |f| told(f.decode.pull_missing(903, &f.verdicts, soon()))),
    harmless("kv::Decode::stats", |f| done(f.decode.stats())),
    harmless("kv::Grant::drop", |f| {
        drop(f.grant);
        Outcome::Done
    }),
    refused("kv::Grant::into_future", |f| awaited(f.grant.into_future())),
    refused("kv::Grant::layer", |f| awaited(f.grant.layer(0))),
    refused("kv::Grant::poll", |mut f| polled(f.grant.poll())),
    refused("kv::Grant::poll_layer", |f| polled(f.grant.poll_layer(0))),
    harmless("kv::Grant::progress", |f| done(f.grant.progress())),
    refused("kv::Grant::revoke", |f| told(f.grant.revoke(soon()))),
    refused("kv::Grant::start_revoke", |f| polled(f.grant.start_revoke(soon()).poll())),
    refused("kv::Grant::wait", |f| told(f.grant.wait())),
    refused("kv::Grant::wait_layer", |f| told(f.grant.wait_layer(0, soon()))),
    refused("kv::Grant::wait_until", |f| f.grant.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::GrantFuture::poll", |f| awaited(f.grant.into_future())),
    refused("kv::LayerFuture::poll", |f| awaited(f.grant.layer(1))),
    harmless("kv::Offer::drop", |f| {
        drop(f.offer);
        Outcome::Done
    }),
    refused("kv::Offer::into_future", |f| awaited(f.offer.into_future())),
    refused("kv::Offer::poll", |mut f| polled(f.offer.poll())),
    refused("kv::Offer::revoke", |f| told(f.offer.revoke(soon()))),
    refused("kv::Offer::start_revoke", |f| told(f.offer.start_revoke(soon()).wait())),
    refused("kv::Offer::wait", |f| told(f.offer.wait())),
    refused("kv::Offer::wait_until", |f| f.offer.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::OfferFuture::poll", |f| awaited(f.offer.into_future())),
    refused("kv::Pool::allocate", |f| told(Pool::allocate(&f.engine, layout(&f), PoolUse::Source))),
    refused("kv::Pool::close", |f| told(f.source.close(soon()))),
    harmless("kv::Pool::held", |f| done(f.source.held(0))),
    harmless("kv::Pool::in_region", |f| {
        done(Pool::in_region(&f.engine, &f.region, 0, layout(&f), PoolUse::Source).is_ok())
    }),
    harmless("kv::Pool::layout", |f| done(f.source.layout().bytes())),
    harmless("kv::Pool::purpose", |f| done(f.source.purpose())),
    harmless("kv::Pool::read", |f| done(f.source.read(0, 0, 0, &mut [0; 4]))),
    refused("kv::Pool::register", |f| {
        let memory = Memory::allocate(layout(&f).bytes() as usize).unwrap();
        told(Pool::register(&f.engine, memory, layout(&f), PoolUse::Source))
    }),
    harmless("kv::Pool::stats", |f| done(f.source.stats())),
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
    refused("kv::Pull::cancel", |f| told(f.pull.cancel(soon()))),
    refused("kv::Pull::into_future", |f| awaited(f.pull.into_future())),
    refused("kv::Pull::poll", |mut f| polled(f.pull.poll())),
    harmless("kv::Pull::progress", |f| done(f.pull.progress())),
    refused("kv::Pull::start_cancel", |f| told(f.pull.start_cancel(soon()).wait())),
    refused("kv::Pull::wait", |f| told(f.pull.wait())),
    refused("kv::Pull::wait_until", |f| f.pull.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::PullFuture::poll", |f| awaited(f.pull.into_future())),
    refused("kv::Push::cancel", |f| told(f.push.cancel(soon()))),
    harmless("kv::Push::drop", |f| {
        drop(f.push);
        Outcome::Done
    }),
    refused("kv::Push::into_future", |f| awaited(f.push.into_future())),
    refused("kv::Push::layer_ready", |f| told(f.push.layer_ready(0))),
    refused("kv::Push::poll", |mut f| polled(f.push.poll())),
    harmless("kv::Push::progress", |f| done(f.push.progress())),
    refused("kv::Push::start_cancel", |f| told(f.push.start_cancel(soon()).wait())),
    refused("kv::Push::wait", |f| told(f.push.wait())),
    refused("kv::Push::wait_until", |f| f.push.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::PushFuture::poll", |f| awaited(f.push.into_future())),
    refused("kv::Revoking::into_future", |f| awaited(f.push.start_cancel(soon()).into_future())),
    refused("kv::Revoking::poll", |f| polled(f.push.start_cancel(soon()).poll())),
    refused("kv::Revoking::wait", |f| told(f.push.start_cancel(soon()).wait())),
    refused("kv::Revoking::wait_until", |f| {
        let late = Deadline::after(Duration::from_secs(60));
        f.push.start_cancel(soon()).wait_until(late).map_or(Outcome::Done, told)
    }),
    refused("kv::RevokingFuture::poll", |f| awaited(f.grant.start_revoke(soon()).into_future())),
];
