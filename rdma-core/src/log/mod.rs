//! Log lines: the only code that calls `tracing`, so that nothing of a subscriber runs where that would do harm.
//!
//! A subscriber is code of the program: it may panic, and it may call this library. Therefore
//!
//! - a line is written by a thread that has no [`Hold`]. Under one, the thread keeps the line, and writes it when its
//!   last hold ends. Each lock has a hold that ends after the lock. A batch and a fence have one until their books are
//!   right; a single post and a poll need none, because no subscriber reaches the worker that they borrow;
//! - a line owns its text, because the values that it speaks of may be gone when it is written;
//! - an unwinding subscriber costs the line, and nothing else.
//!
//! Each thread writes its own lines, so that a subscriber of one thread sees what that thread did. Memory that must be
//! leaked or kept is leaked or kept before the line, because a subscriber may never return.

mod span;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[doc(hidden)]
pub use tracing;
pub(crate) use tracing::Level;

pub use self::span::Span;
#[doc(hidden)]
pub use crate::{
    __log_debug as debug, __log_debug_span as debug_span, __log_error as error, __log_info as info,
    __log_warn as warn,
};
#[doc(hidden)]
pub use tracing::field;

/// Most lines that a thread keeps; further ones are counted. A hold is short, so only a flood fills the list. Ends of
/// spans are kept beyond it, because the spans that are open bound their number.
const KEPT_MAX: usize = 256;
/// Set in [`STATE`] while lines are kept.
const KEPT: u32 = 1 << 31;
/// Set in [`STATE`] while a line is written.
const WRITING: u32 = 1 << 30;

thread_local! {
    /// The number of holds of this thread, with the two flags. A `u32` without a destructor, because each post and poll
    /// counts here.
    static STATE: Cell<u32> = const { Cell::new(0) };
    static LINES: RefCell<Lines> = const { RefCell::new(Lines::NONE) };
}

struct Lines {
    kept: Vec<Box<dyn FnOnce()>>,
    /// Number of kept ones that are ends of spans.
    ends: usize,
    left_out: u64,
}

/// While a thread has one of these, the thread keeps its log lines. The end of its last one writes them.
#[derive(Debug)]
pub struct Hold(PhantomData<*const ()>);

impl Hold {
    /// Begins a hold.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        STATE.set(STATE.get() + 1);
        Self(PhantomData)
    }
}

impl Default for Hold {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Hold {
    #[inline]
    fn drop(&mut self) {
        let state = STATE.get() - 1;
        STATE.set(state);
        if state == KEPT {
            write_kept();
        }
    }
}

/// The guard of a lock, with a hold that ends after the lock is released.
#[derive(Debug)]
pub struct Held<G> {
    // Fields drop in order: the lock must be free before the lines are written.
    guard: G,
    _lines: Hold,
}

impl<G> Held<G> {
    /// Begins a hold, and takes a lock.
    #[inline]
    pub fn lock(lock: impl FnOnce() -> G) -> Self {
        let lines = Hold::new();
        Self { guard: lock(), _lines: lines }
    }
}

impl<G: Deref> Deref for Held<G> {
    type Target = G::Target;

    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Held<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Whether a subscriber may want lines of this level. Calls no subscriber.
pub(crate) fn is_wanted(level: Level) -> bool {
    level <= tracing::level_filters::STATIC_MAX_LEVEL
        && level <= tracing::level_filters::LevelFilter::current()
}

/// Writes a line now, or at the end of the last hold of this thread.
///
/// A line that a subscriber causes while it is given a line is left out, because such lines might never end.
#[cold]
pub fn write(line: impl FnOnce() + 'static) {
    write_or_keep(line, false);
}

/// Writes a line, which is never left out if it `ends_span`: the subscriber would take the span for an open one.
fn write_or_keep(line: impl FnOnce() + 'static, ends_span: bool) {
    match STATE.get() {
        0 | KEPT => {
            pass_on(line);
            // Counts and ends of spans that the subscriber has caused.
            if STATE.get() == KEPT {
                write_kept();
            }
        }
        state if state & WRITING != 0 && !ends_span => {}
        // Without the list the thread is ending, and the line is lost.
        state => LINES
            .try_with(|lines| lines.borrow_mut().keep(Box::new(line), ends_span))
            .map_or((), |()| STATE.set(state | KEPT)),
    }
}

/// Whether code of the program may run now. If not, the thread tells the recorder of metrics at the end of its last
/// hold, or with the next count.
#[cfg(feature = "metrics")]
pub(crate) fn may_tell() -> bool {
    let state = STATE.get();
    let may = state & !KEPT == 0;
    if !may {
        STATE.set(state | KEPT);
    }
    may
}

impl Lines {
    const NONE: Self = Self { kept: Vec::new(), ends: 0, left_out: 0 };

    fn keep(&mut self, line: Box<dyn FnOnce()>, ends_span: bool) {
        if ends_span || self.kept.len() - self.ends < KEPT_MAX {
            self.ends += usize::from(ends_span);
            self.kept.push(line);
        } else {
            self.left_out += 1;
        }
    }
}

#[cold]
fn write_kept() {
    STATE.set(0);
    let lines = LINES.try_with(|lines| lines.replace(Lines::NONE));
    if let Ok(Lines { kept, left_out, .. }) = lines {
        kept.into_iter().for_each(pass_on);
        if left_out > 0 {
            warn!(left_out, "more log lines came at once than are kept");
        }
    }
    crate::metrics::publish();
}

/// Gives a line to the subscriber, or a count to the recorder.
pub(crate) fn pass_on(line: impl FnOnce()) {
    STATE.set(STATE.get() | WRITING);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(line)) {
        drop_payload(payload);
    }
    STATE.set(STATE.get() & !WRITING);
}

/// Drops the payload of a panic. Its destructor is code of the program, and may panic, too: then that payload is
/// forgotten.
pub(crate) fn drop_payload(payload: Box<dyn Any + Send>) {
    std::mem::forget(catch_unwind(AssertUnwindSafe(|| drop(payload))));
}

/// Turns the fields and the message of a line into owned values, and writes the line. Takes what `tracing::warn!`
/// takes: fields `%a`, `?a`, `a`, `a = %b`, `a = b`, then a format string with its arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_line {
    ($level:ident [$($own:tt)*] [$($field:tt)*] % $name:ident, $($rest:tt)+) => {
        $crate::__log_line!($level [$($own)*] [$($field)*] $name = % $name, $($rest)+)
    };
    ($level:ident [$($own:tt)*] [$($field:tt)*] ? $name:ident, $($rest:tt)+) => {
        $crate::__log_line!($level [$($own)*] [$($field)*] $name = ? $name, $($rest)+)
    };
    ($level:ident [$($own:tt)*] [$($field:tt)*] $name:ident, $($rest:tt)+) => {
        $crate::__log_line!($level [$($own)*] [$($field)*] $name = $name, $($rest)+)
    };
    ($level:ident [$($own:tt)*] [$($field:tt)*] $name:ident = % $value:expr, $($rest:tt)+) => {
        $crate::__log_line!(
            $level
            [$($own)* let $name = ::std::format!("{}", $value);]
            [$($field)* $name = %$name,]
            $($rest)+
        )
    };
    ($level:ident [$($own:tt)*] [$($field:tt)*] $name:ident = ? $value:expr, $($rest:tt)+) => {
        $crate::__log_line!(
            $level
            [$($own)* let $name = ::std::format!("{:?}", $value);]
            [$($field)* $name = %$name,]
            $($rest)+
        )
    };
    ($level:ident [$($own:tt)*] [$($field:tt)*] $name:ident = $value:expr, $($rest:tt)+) => {
        $crate::__log_line!(
            $level
            [$($own)* let $name = $value.to_owned();]
            [$($field)* $name = $name,]
            $($rest)+
        )
    };
    ($level:ident [$($own:tt)*] [$($field:tt)*] $($message:tt)+) => {{
        let message = ::std::format_args!($($message)+).to_string();
        $($own)*
        $crate::log::write(move || {
            $crate::log::tracing::event!(
                $crate::log::tracing::Level::$level,
                $($field)*
                "{message}"
            );
        });
    }};
}

/// A line of level ERROR.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_error {
    ($($line:tt)+) => { $crate::__log_line!(ERROR [] [] $($line)+) };
}

/// A line of level WARN.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_warn {
    ($($line:tt)+) => { $crate::__log_line!(WARN [] [] $($line)+) };
}

/// A line of level INFO.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_info {
    ($($line:tt)+) => { $crate::__log_line!(INFO [] [] $($line)+) };
}

/// A line of level DEBUG.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug {
    ($($line:tt)+) => { $crate::__log_line!(DEBUG [] [] $($line)+) };
}

/// A [`Span`] with a name and fields, which must own what they show.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug_span {
    ($($span:tt)+) => { $crate::log::Span::begin(move || $crate::log::tracing::debug_span!($($span)+)) };
}

#[cfg(test)]
mod tests;
