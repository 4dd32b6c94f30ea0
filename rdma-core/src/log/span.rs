//! Spans, which begin and end as lines are written: when no lock is held, and at the cost of a span if a subscriber
//! unwinds.

use std::fmt;
use std::mem::{ManuallyDrop, replace};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Level;

use super::{is_wanted, write, write_or_keep};

/// A span of the program's subscriber, of level DEBUG. Dropping the span ends it.
#[derive(Debug)]
pub struct Span(Arc<Mutex<Stage>>);

enum Stage {
    /// The span has begun here, and the subscriber does not know it yet.
    Waits,
    Open(tracing::Span),
    /// Ended, with the fields that the subscriber hears last if it does not know the span yet.
    Ended(Option<Last>),
}

/// Records the last fields of a span, which it owns.
type Last = Box<dyn FnOnce(&tracing::Span) + Send>;

impl Span {
    /// Begins the span that `make` makes. [`debug_span!`](super::debug_span) passes the fields.
    pub fn begin(make: impl FnOnce() -> tracing::Span + 'static) -> Self {
        let stage = Arc::new(Mutex::new(Stage::Waits));
        if is_wanted(Level::DEBUG) {
            let of_line = Arc::clone(&stage);
            write(move || {
                let made = make();
                let mut stage = of_line.lock();
                let last = match &mut *stage {
                    Stage::Ended(last) => last.take(),
                    _ => {
                        *stage = Stage::Open(made);
                        return;
                    }
                };
                // The end of a span that has ended meanwhile is told to the subscriber, so the lock is free by then.
                drop(stage);
                last.into_iter().for_each(|last| last(&made));
            });
        }
        Self(stage)
    }

    /// Ends the span, whose last fields `last` records.
    pub fn end(self, last: impl FnOnce(&tracing::Span) + Send + 'static) {
        if is_wanted(Level::DEBUG) {
            self.close(Some(Box::new(last)));
        }
    }

    fn close(&self, last: Option<Last>) {
        let mut stage = self.0.lock();
        match replace(&mut *stage, Stage::Ended(None)) {
            Stage::Waits => *stage = Stage::Ended(last),
            Stage::Open(span) => {
                drop(stage);
                // The line of a thread that ends is lost, and dropped here, where a lock may be held. The span is
                // leaked then, because its drop tells the subscriber.
                let span = ManuallyDrop::new(span);
                let end = move || {
                    last.into_iter().for_each(|last| last(&span));
                    drop(ManuallyDrop::into_inner(span));
                };
                write_or_keep(end, true);
            }
            ended => *stage = ended,
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.close(None);
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waits => "Waits",
            Self::Open(_) => "Open",
            Self::Ended(_) => "Ended",
        })
    }
}
