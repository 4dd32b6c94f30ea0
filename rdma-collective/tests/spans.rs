//! The spans of links and of transfers over them. Alone in its process, since who listens is said once.

mod common;
mod pair;

use std::collections::BTreeSet;
use std::sync::Mutex;

use common::long;
use pair::Setup;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes the names of spans.
struct Names;

static NAMES: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());

impl Subscriber for Names {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("rdma_collective::kv")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        NAMES.lock().unwrap().insert(span.metadata().name());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn links_and_transfers_have_spans() {
    tracing::subscriber::set_global_default(Names).unwrap();
    let pair = Setup::default().connect();
    pair.prefill.push(1, &[0], long()).unwrap().revoke(long()).unwrap();
    let names = NAMES.lock().unwrap();
    assert!(names.contains("kv_connect") && names.contains("kv_transfer"), "{names:?}");
}
