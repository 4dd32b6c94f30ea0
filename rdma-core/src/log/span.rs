//! Spans, which begin and end as lines are written: when no lock is held, and at the cost of a span if a subscriber
//! unwinds.

use std::mem::{ManuallyDrop, replace};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Level;

use super::{is_wanted, write};

/// A span of the program's subscriber, of level DEBUG. Dropping the span ends it.
#[derive(Debug)]
pub struct Span(Arc<Mutex<Stage>>);

#[derive(Debug)]
enum Stage {
    /// The span has begun here, and the subscriber does not know it yet.
    Waits,
    Open(tracing::Span),
    Ended,
}

impl Span {
    /// Begins the span that `make` makes. [`debug_span!`](super::debug_span) passes the fields.
    pub fn begin(make: impl FnOnce() -> tracing::Span + 'static) -> Self {
        let stage = Arc::new(Mutex::new(Stage::Waits));
        if is_wanted(Level::DEBUG) {
            let of_line = Arc::clone(&stage);
            write(move || {
                let mut made = Some(make());
                let mut stage = of_line.lock();
                if matches!(*stage, Stage::Waits) {
                    *stage = made.take().map_or(Stage::Ended, Stage::Open);
                }
                // The drop of a span that has ended meanwhile is told to the subscriber, so the lock is free by then.
                drop(stage);
                drop(made);
            });
        }
        Self(stage)
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let stage = replace(&mut *self.0.lock(), Stage::Ended);
        if let Stage::Open(span) = stage {
            // A line that is left out is dropped here, where a lock may be held. The span is leaked then, because its
            // drop tells the subscriber.
            let span = ManuallyDrop::new(span);
            write(move || drop(ManuallyDrop::into_inner(span)));
        }
    }
}
