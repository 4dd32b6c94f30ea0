//! Calls on several KV links of one pool, and on the transfers over them.

use rdma_collective::kv::{OnDrop, Sources};

use super::operations::awaited;
use super::{Call, Outcome, done, harmless, polled, refused, told};
use crate::fixture::soon;

pub const CALLS: &[Call] = &[
    harmless("kv::Joint::blocks", |f| done(f.joint.blocks().len())),
    refused("kv::Joint::extend", |f| told(f.joint.extend(soon()))),
    refused("kv::Joint::layer", |f| awaited(f.joint.layer(0))),
    harmless("kv::Joint::on_drop", |f| done(f.joint.on_drop(OnDrop::Revoke))),
    refused("kv::Joint::poll", |mut f| polled(f.joint.poll())),
    refused("kv::Joint::poll", |f| awaited(f.joint)),
    refused("kv::Joint::poll_layer", |f| polled(f.joint.poll_layer(0))),
    harmless("kv::Joint::progress", |f| done(f.joint.progress())),
    harmless("kv::Joint::request", |f| done(f.joint.request())),
    refused("kv::Joint::revoke", |f| told(f.joint.revoke(soon()))),
    harmless("kv::Joint::revoke_token", |f| done(f.joint.revoke_token())),
    refused("kv::Joint::start_revoke", |f| awaited(f.joint.start_revoke(soon()))),
    refused("kv::Joint::wait", |f| told(f.joint.wait())),
    refused("kv::Joint::wait_layer", |f| told(f.joint.wait_layer(0, soon()))),
    refused("kv::Joint::wait_until", |f| f.joint.wait_until(soon()).map_or(Outcome::Done, told)),
    refused("kv::JointLayer::poll", |f| awaited(f.joint.layer(1))),
    refused("kv::JointRevoking::poll", |f| awaited(f.joint.start_revoke(soon()))),
    refused("kv::JointRevoking::wait", |f| told(f.joint.start_revoke(soon()).wait())),
    refused("kv::Sources::grant", |f| told(f.sources.grant(900, &[0], soon()))),
    refused("kv::Sources::grant_missing", |f| told(f.sources.grant_missing(901, &f.verdicts, soon()))),
    harmless("kv::Sources::into_links", |f| done(f.sources.into_links())),
    harmless("kv::Sources::links", |f| done(f.sources.links().len())),
    harmless("kv::Sources::new", |f| done(Sources::new(vec![f.decode]).is_ok())),
    harmless("kv::Sources::pool", |f| done(f.sources.pool().purpose())),
    refused("kv::Sources::pull", |f| told(f.sources.pull(902, &[0], soon()))),
    refused("kv::Sources::pull_layers", |f| told(f.sources.pull_layers(904, &[0], soon()))),
    refused("kv::Sources::pull_missing", |f| told(f.sources.pull_missing(903, &f.verdicts, soon()))),
];
