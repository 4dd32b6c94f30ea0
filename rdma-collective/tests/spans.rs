//! The spans of links and of transfers over them. Alone in its process, since who listens is said once.

mod common;
mod pair;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;

use common::long;
use pair::Setup;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps all spans. The number of a span is its place among them, from 1 on.
struct Spans;

#[derive(Debug, Clone, Default)]
struct Seen {
    name: &'static str,
    /// The number of the span that was entered when this one began; 0 is none.
    parent: u64,
    fields: BTreeMap<&'static str, String>,
    closed: bool,
}

static SEEN: Mutex<Vec<Seen>> = Mutex::new(Vec::new());

thread_local! {
    static ENTERED: Cell<u64> = const { Cell::new(0) };
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

fn change(span: &Id, change: impl FnOnce(&mut Seen)) {
    change(&mut SEEN.lock().unwrap()[span.into_u64() as usize - 1]);
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span()
            && ["rdma_collective::kv", "spans"].iter().any(|of| metadata.target().starts_with(of))
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut seen = Seen { name: span.metadata().name(), parent: ENTERED.get(), ..Seen::default() };
        span.record(&mut seen);
        let mut all = SEEN.lock().unwrap();
        all.push(seen);
        Id::from_u64(all.len() as u64)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        change(span, |seen| values.record(seen));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        ENTERED.set(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        ENTERED.set(0);
    }

    fn try_close(&self, span: Id) -> bool {
        change(&span, |seen| seen.closed = true);
        true
    }
}

fn transfer(kind: &str) -> Seen {
    let seen = SEEN.lock().unwrap();
    let is = |seen: &&Seen| seen.name == "kv_transfer" && seen.fields["kind"] == kind;
    seen.iter().rfind(is).unwrap_or_else(|| panic!("no {kind} among {seen:?}")).clone()
}

#[test]
fn transfers_have_spans_below_those_of_their_callers_which_end_with_the_outcome_and_the_bytes() {
    tracing::subscriber::set_global_default(Spans).unwrap();
    let pair = Setup::default().connect();
    let names = |name| SEEN.lock().unwrap().iter().any(|seen| seen.name == name);
    assert!(names("kv_connect"));

    let caller = tracing::info_span!("caller");
    let number = caller.id().unwrap().into_u64();
    let entered = caller.entered();
    let grant = pair.decode.grant(1, &[0], long()).unwrap();
    let push = pair.prefill.push(1, &[0], long()).unwrap();
    drop(entered);
    assert_eq!((transfer("Grant").closed, transfer("Push").closed), (false, false));
    let received = grant.wait().unwrap();
    let sent = push.wait().unwrap();
    for (kind, bytes) in [("Grant", received.bytes), ("Push", sent.bytes)] {
        let Seen { parent, fields, closed, .. } = transfer(kind);
        assert_eq!((parent, closed), (number, true), "{kind}");
        assert_eq!(
            (fields["outcome"].as_str(), fields["bytes"].as_str()),
            ("Done", bytes.to_string().as_str())
        );
    }

    pair.prefill.push(2, &[0], long()).unwrap().revoke(long()).unwrap();
    let revoked = transfer("Push");
    assert_eq!((revoked.parent, revoked.closed, revoked.fields["outcome"].as_str()), (0, true, "Revoked"));
}
