//! Forks: [`OwnProcess`] keeps a value for the process that made it, and [`Checkpoint`] tells whether a child shares
//! memory.
//!
//! A forked child has a copy of every object. Behind the copies are the parent's device, mappings that the child does
//! not have, and locks that a thread of the parent may have held. So a child must neither use nor release them.
//! The question is asked at every post and poll; it costs three loads.

#![expect(
    unsafe_code,
    reason = "has the C library call back when the process forks, and a page that children have empty"
)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, Ordering};

use rustix::mm::{Advice, madvise};
use rustix::param::page_size;

use super::{AnonymousPages, WRITABLE};
use crate::error::Forked;

/// A value that only the process that made it can use and release.
///
/// Whatever touches a device, a lock or another process is kept in one, and every call asks [`get`](Self::get) or
/// [`get_mut`](Self::get_mut). In a forked child both fail, and a drop leaks the child's copy: a destructor would
/// release what the parent uses.
pub struct OwnProcess<T> {
    origin: Origin,
    value: ManuallyDrop<T>,
}

impl<T> OwnProcess<T> {
    /// Keeps `value`, which this process has just made.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { origin: Origin::here(), value: ManuallyDrop::new(value) }
    }

    /// Keeps `value` as a child has the copy of its parent's. For tests, which need no child then.
    #[must_use]
    pub fn of_another_process(value: T) -> Self {
        Self { origin: Origin::of_another_process(), value: ManuallyDrop::new(value) }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// [`Forked`] in a forked child.
    #[inline]
    pub fn get(&self) -> Result<&T, Forked> {
        if self.origin.is_here() { Ok(&self.value) } else { Err(Forked::new()) }
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// [`Forked`] in a forked child.
    #[inline]
    pub fn get_mut(&mut self) -> Result<&mut T, Forked> {
        if self.origin.is_here() { Ok(&mut self.value) } else { Err(Forked::new()) }
    }

    /// Takes the value out; it comes back in a forked child.
    ///
    /// # Errors
    ///
    /// The unchanged value in a forked child.
    pub fn into_inner(self) -> Result<T, Self> {
        if !self.origin.is_here() {
            return Err(self);
        }
        let mut kept = ManuallyDrop::new(self);
        // SAFETY: `kept` is never dropped and not used again, so the value is moved out just once.
        Ok(unsafe { ManuallyDrop::take(&mut kept.value) })
    }

    /// Returns the value, or the child's copy of it. Only for what is plain data: names, lengths, addresses.
    #[inline]
    pub fn unasked(&self) -> &T {
        &self.value
    }

    /// Returns the value, or the child's copy of it. Only for changes of plain data, which the parent does not see.
    #[inline]
    pub fn unasked_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// Returns the process that made the value.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Lets this process count as a child of the one that made the value, or as that one again.
    #[cfg(test)]
    pub(crate) fn pretend_forked(&mut self, forked: bool) {
        self.origin = if forked { Origin::of_another_process() } else { Origin::here() };
    }
}

impl<T> Drop for OwnProcess<T> {
    #[inline]
    fn drop(&mut self) {
        if self.origin.is_here() {
            // SAFETY: only this drop releases the value, and the value is not used afterwards, so it is dropped once.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<T: Clone> Clone for OwnProcess<T> {
    fn clone(&self) -> Self {
        Self { origin: self.origin, value: self.value.clone() }
    }
}

impl<T: fmt::Debug> fmt::Debug for OwnProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// The process that made something: its generation, which no child of it has.
///
/// # Invariants
///
/// [`WORD`] is not null, because only [`here`](Self::here) draws the number of an origin, after it has called [`word`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin(u64);

impl Origin {
    /// Returns this process, and draws its generation if nobody has asked before.
    ///
    /// A child draws a number above all that it has copies of, because [`LAST`] is copied too and is raised before the
    /// word is stored. Two children may have the same number, but no object ever gets from one to the other.
    pub(crate) fn here() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let word = word();
        let mut generation = word.load(Ordering::Relaxed);
        if generation == 0 {
            // Without the page the handlers alone tell of a fork. With it they are not needed, so an error is none.
            let _ = watch();
            let drawn = 1 + LAST.fetch_add(1, Ordering::SeqCst);
            generation = match word.compare_exchange(0, drawn, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => drawn,
                Err(first) => first,
            };
        }
        Self(generation)
    }

    /// Returns a process that this one is not.
    fn of_another_process() -> Self {
        let _ = Self::here();
        Self(u64::MAX)
    }

    /// Returns whether this process is the one that made the value.
    #[inline]
    pub(crate) fn is_here(self) -> bool {
        // SAFETY: by the invariant the word is there, and it is never unmapped (see `word`), so the reference is valid.
        let word = unsafe { &*WORD.load(Ordering::Relaxed) };
        word.load(Ordering::Relaxed) == self.0
    }
}

/// The process that asked first. A static may be one.
#[cfg(feature = "metrics")]
#[derive(Debug)]
pub(crate) struct FirstProcess(AtomicU64);

#[cfg(feature = "metrics")]
impl FirstProcess {
    /// A process that is not known yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes the first process one that this process is not. For tests, which need no child then.
    #[cfg(test)]
    pub(crate) fn of_another_process() -> Self {
        Self(AtomicU64::new(Origin::of_another_process().0))
    }

    /// Returns whether this process is the first one that has asked.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        // No lock, because a child that is forked during the first call would inherit it locked.
        let mut first = self.0.load(Ordering::Acquire);
        if first == 0 {
            let Origin(here) = Origin::here();
            first = match self.0.compare_exchange(0, here, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => here,
                Err(first) => first,
            };
        }
        Origin(first).is_here()
    }
}

/// The word that has the generation of this process: 0 until it is drawn, and again in a child. Null until it is made.
static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());
/// The word where the kernel cannot empty a page in children. Only the handler of the C library's `fork` empties it,
/// so a child that is made by the bare system call is not seen there.
static PLAIN_WORD: AtomicU64 = AtomicU64::new(0);

/// Returns the word. The kernel zeroes its page in every child, by whichever call the child was made.
fn word() -> &'static AtomicU64 {
    // A lock would not do here, because a child that is forked during the first call would inherit it locked.
    let mut word = WORD.load(Ordering::Acquire);
    if word.is_null() {
        let mapped = map_emptied();
        let made = mapped.as_ref().map_or(from_ref(&PLAIN_WORD).cast_mut(), |page| page.base.as_ptr().cast());
        // Two threads may map a page at the same time; the first one wins, and the other unmaps its page.
        word = match WORD.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                std::mem::forget(mapped);
                made
            }
            Err(first) => first,
        };
    }
    // SAFETY: the word is a static, or the start of a page that is aligned, zeroed by the kernel and never unmapped. It
    // is accessed only as this one atomic, so the reference is valid.
    unsafe { &*word }
}

fn map_emptied() -> Option<AnonymousPages> {
    let page = AnonymousPages::map(page_size(), WRITABLE).ok()?;
    let (base, len) = (page.base.as_ptr().cast(), page.len);
    // Some emulators accept every advice without obeying. They also accept -1, which no kernel knows, so that
    // an accepted -1 reveals them.
    // SAFETY: an unknown advice changes nothing, and only this function knows the page.
    let believes_all = unsafe { libc::madvise(base, len, -1) } == 0;
    // SAFETY: the advice affects only children, and nobody uses the page yet, so it changes nothing here.
    let is_emptied = !believes_all && unsafe { madvise(base, len, Advice::LinuxWipeOnFork) }.is_ok();
    is_emptied.then_some(page)
}

/// Forks of this process and, before it was forked itself, of its ancestors.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Has the C library count forks from now on, and empty the word in children; returns whether it does. A child that is
/// made by the bare system call is not counted.
fn watch() -> bool {
    const UNWATCHED: i32 = -1;
    // No lock, because a child would inherit it locked. Handlers that two threads install run twice, without harm.
    static WATCHED: AtomicI32 = AtomicI32::new(UNWATCHED);
    let mut installed = WATCHED.load(Ordering::Acquire);
    if installed == UNWATCHED {
        // SAFETY: `fork` calls the handlers in an arbitrary state of the process, so they must not lock or
        // allocate; each one accesses atomics only.
        installed = unsafe { libc::pthread_atfork(Some(count_one), None, Some(enter_child)) };
        WATCHED.store(installed, Ordering::Release);
    }
    installed == 0
}

/// Runs in the parent before the child exists. Counting after the fork would be too late: a child could
/// already share memory that [`Checkpoint::is_unforked`] still reports as unshared.
extern "C" fn count_one() {
    FORKS.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn enter_child() {
    let word = WORD.load(Ordering::Relaxed);
    if !word.is_null() {
        // SAFETY: a word that is not null is never unmapped (see `word`), so the reference is valid.
        unsafe { &*word }.store(0, Ordering::Relaxed);
    }
}

/// Returns the number of forks; `None` when they are not counted.
fn count() -> Option<u64> {
    watch().then(|| FORKS.load(Ordering::SeqCst))
}

/// A point in time, to ask later whether a child shares the memory that was mapped since.
#[derive(Debug, Clone, Copy)]
pub(super) struct Checkpoint {
    /// The process that made the checkpoint. A child has the value, too, but must not punch out pages that
    /// its parent uses.
    origin: Origin,
    /// `None` when forks are not counted; every later question is then answered with "forked".
    forks: Option<u64>,
}

impl Checkpoint {
    pub(super) fn now() -> Self {
        Self { origin: Origin::here(), forks: count() }
    }

    #[cfg(test)]
    pub(super) fn of_another_process() -> Self {
        Self { origin: Origin::of_another_process(), ..Self::now() }
    }

    /// Returns whether this is the process that made the checkpoint, and no child was forked since.
    pub(super) fn is_unforked(&self) -> bool {
        self.origin.is_here() && self.forks.is_some() && self.forks == count()
    }
}

#[cfg(test)]
pub(super) mod tests;
