//! Lines under holds: when they are written, and what panics and floods cost.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A line that counts.
fn counting(count: &Rc<Cell<u32>>) -> impl FnOnce() + 'static {
    let count = Rc::clone(count);
    move || count.set(count.get() + 1)
}

#[test]
fn a_line_is_written_at_once_or_at_the_end_of_the_last_hold() {
    let count = Rc::new(Cell::new(0));
    write(counting(&count));
    assert_eq!(count.get(), 1);
    let outer = Hold::new();
    let inner = Hold::new();
    write(counting(&count));
    drop(inner);
    write(counting(&count));
    assert_eq!(count.get(), 1, "a hold is left");
    drop(outer);
    assert_eq!(count.get(), 3);
}

#[test]
fn the_lines_of_a_guard_come_when_its_lock_is_free() {
    let lock = Rc::new(RefCell::new(0));
    let seen = Rc::new(Cell::new(false));
    let mut held = Held::lock(|| lock.borrow_mut());
    *held += 1;
    let (looked, saw) = (Rc::clone(&lock), Rc::clone(&seen));
    write(move || saw.set(looked.try_borrow().is_ok_and(|value| *value == 1)));
    drop(held);
    assert!(seen.get(), "the lock was held");
}

#[test]
fn a_line_that_panics_costs_itself_alone() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("planted in a payload");
        }
    }
    let count = Rc::new(Cell::new(0));
    let hold = Hold::new();
    write(|| std::panic::panic_any(Payload));
    write(counting(&count));
    drop(hold);
    write(|| panic!("planted"));
    write(counting(&count));
    assert_eq!((count.get(), STATE.get()), (2, 0));
}

#[test]
fn a_line_that_a_line_causes_is_left_out() {
    let count = Rc::new(Cell::new(0));
    let again = counting(&count);
    write(move || {
        drop(Hold::new());
        write(again);
    });
    assert_eq!((count.get(), STATE.get()), (0, 0));
}

#[test]
fn a_flood_is_cut_short_and_counted() {
    let count = Rc::new(Cell::new(0));
    let hold = Hold::new();
    (0..KEPT_MAX + 5).for_each(|_| write(counting(&count)));
    assert_eq!(LINES.with_borrow(|lines| lines.left_out), 5);
    drop(hold);
    assert_eq!(count.get(), KEPT_MAX as u32);
    assert_eq!(LINES.with_borrow(|lines| (lines.kept.len(), lines.left_out)), (0, 0));
}

/// A subscriber that counts the spans that end, and a thousand for each record.
struct Ends(Arc<AtomicU32>);

impl tracing::Subscriber for Ends {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {
        self.0.fetch_add(1000, Ordering::Relaxed);
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
    fn try_close(&self, _: tracing::span::Id) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[test]
fn the_end_of_a_span_is_told_when_the_hold_ends_however_many_lines_were_left_out() {
    let ended = Arc::new(AtomicU32::new(0));
    tracing::subscriber::with_default(Ends(Arc::clone(&ended)), || {
        let spans = [(); KEPT_MAX + 1].map(|()| debug_span!("planted"));
        let count = Rc::new(Cell::new(0));
        let hold = Hold::new();
        (0..KEPT_MAX).for_each(|_| write(|| ()));
        drop(spans);
        write(counting(&count));
        assert_eq!(ended.load(Ordering::Relaxed), 0, "the subscriber ran under a hold");
        drop(hold);
        assert_eq!((ended.load(Ordering::Relaxed), count.get()), (KEPT_MAX as u32 + 1, 0));
    });
}

#[test]
fn a_span_that_ends_while_a_line_is_written_is_told_after_the_line() {
    let ended = Arc::new(AtomicU32::new(0));
    tracing::subscriber::with_default(Ends(Arc::clone(&ended)), || {
        let (span, of_line) = (debug_span!("planted"), Arc::clone(&ended));
        write(move || {
            drop(span);
            assert_eq!(of_line.load(Ordering::Relaxed), 0, "the subscriber ran within a line");
        });
        assert_eq!((ended.load(Ordering::Relaxed), STATE.get()), (1, 0));
    });
}

#[test]
fn the_last_fields_of_a_span_are_told_even_if_it_ends_before_the_subscriber_knows_it() {
    let told = Arc::new(AtomicU32::new(0));
    let planted = || debug_span!("planted", last = field::Empty);
    let end = |span: Span| span.end(|span| _ = span.record("last", 1));
    tracing::subscriber::with_default(Ends(Arc::clone(&told)), || {
        end(planted());
        assert_eq!(told.load(Ordering::Relaxed), 1001);
        let hold = Hold::new();
        end(planted());
        assert_eq!(told.load(Ordering::Relaxed), 1001, "the subscriber ran under a hold");
        drop(hold);
        assert_eq!(told.load(Ordering::Relaxed), 2002);
    });
}
