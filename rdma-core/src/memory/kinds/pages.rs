//! Which pages of a memory were replaced, and who writes it in this process meanwhile.
//!
//! A peer's process that is stopped in the midst of a write keeps the pages that it has mapped. So that what it writes
//! once it goes on is seen by nobody, the memory has other pages there from then on, at the same addresses, with the
//! same bytes.

#![expect(unsafe_code, reason = "maps pages over pages of a memory")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use rustix::mm::{MapFlags, ProtFlags};

use super::Backing;

/// Ranges of a memory that may be replaced; each keeps a descriptor, and takes two mappings here and at each peer.
const PATCHES_MAX: usize = 64;

/// A range whose pages were replaced.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    /// 1 for the first of its memory, and so on.
    pub(crate) version: u32,
    /// Where in the memory it begins; whole pages, as is its length.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// All of it is what is mapped there.
    pub(crate) memfd: Arc<OwnedFd>,
}

/// Why pages are not replaced.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Irreplaceable {
    #[error("something else in this process may be writing it")]
    Shared,
    #[error("pages of the memory were replaced {PATCHES_MAX} times")]
    TooOften,
    #[error("the peer does not say which they are")]
    Unknown,
    #[error("there is no memory, descriptor or mapping left for others: {0}")]
    System(#[source] io::Error),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Of the memory; whole pages.
    bytes: u64,
    /// In the order of their versions.
    patches: Mutex<Vec<Patch>>,
    /// Held shared by a copy of this process into the memory: between the copy of a page and its replacement no byte
    /// may be written to it.
    written: RwLock<()>,
    /// Some are being replaced, with `patches` locked.
    replaced: AtomicBool,
    /// Parts of it are lent as slices while others are with a device.
    split: AtomicBool,
    /// Somebody writes it who tells nobody.
    lent: AtomicBool,
}

impl Pages {
    /// Of a memory that has `bytes` bytes, in whole pages.
    pub(super) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            patches: Mutex::default(),
            written: RwLock::default(),
            replaced: AtomicBool::new(false),
            split: AtomicBool::new(false),
            lent: AtomicBool::new(false),
        }
    }

    /// No page is replaced while the result is held: for whoever writes the memory, and has not the lock of the device.
    ///
    /// Not for long: whoever replaces some waits for it with that lock.
    pub(crate) fn hold(&self) -> RwLockReadGuard<'_, ()> {
        if self.replaced.load(Ordering::Relaxed) {
            // By itself the lock goes to those who come back for it at once.
            drop(self.patches.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.written.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on parts of it may be in several hands.
    pub(crate) fn split(&self) {
        self.split.store(true, Ordering::Relaxed);
    }

    /// From now on somebody may write it at any moment who does not [`hold`](Self::hold) it.
    pub(super) fn lend(&self) {
        self.lent.store(true, Ordering::Relaxed);
    }

    /// What was replaced after that version, in order.
    pub(crate) fn patches(&self, after: u32) -> Vec<Patch> {
        let patches = self.patches.lock().unwrap_or_else(PoisonError::into_inner);
        patches.iter().skip(after as usize).cloned().collect()
    }

    /// How often pages were replaced.
    pub(crate) fn version(&self) -> u32 {
        self.patches.lock().unwrap_or_else(PoisonError::into_inner).len() as u32
    }

    /// Whether `count` ranges may be replaced, of a memory that nobody else `owns`, or may.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) fn check(&self, count: usize, owned: bool) -> Result<(), Irreplaceable> {
        if self.lent.load(Ordering::Relaxed) || !owned && self.split.load(Ordering::Relaxed) {
            return Err(Irreplaceable::Shared);
        }
        if self.version() as usize + count > PATCHES_MAX {
            return Err(Irreplaceable::TooOften);
        }
        Ok(())
    }

    /// Replaces ranges of whole pages that do not overlap. After an error some may be replaced:
    /// [`patches`](Self::patches) tells.
    ///
    /// # Safety
    ///
    /// The memory is mapped at `base`, and what writes it during the call holds it (see [`hold`](Self::hold)), or loses
    /// nothing when that is lost.
    pub(crate) unsafe fn replace(
        &self,
        base: NonNull<u8>,
        ranges: &[Range<u64>],
    ) -> Result<(), Irreplaceable> {
        let mut patches = self.patches.lock().unwrap_or_else(PoisonError::into_inner);
        self.replaced.store(true, Ordering::Relaxed);
        let _alone = self.written.write().unwrap_or_else(PoisonError::into_inner);
        self.replaced.store(false, Ordering::Relaxed);
        for Range { start, end } in ranges {
            if start >= end || *end > self.bytes {
                return Err(Irreplaceable::Unknown);
            }
            let (offset, bytes) = (*start, end - start);
            // SAFETY: within the memory, and else by the caller's promise; what is mapped has a length that fits.
            let memfd = unsafe { replace_one(base.add(offset as usize), bytes as usize) };
            let memfd = memfd.map_err(Irreplaceable::System)?;
            let version = patches.len() as u32 + 1;
            patches.push(Patch { version, offset, bytes, memfd });
        }
        Ok(())
    }

    /// The whole pages that hold `range`, in bytes of the memory.
    pub(crate) fn around(range: Range<u64>) -> Range<u64> {
        let page = rustix::param::page_size() as u64;
        range.start / page * page..range.end.next_multiple_of(page)
    }
}

/// # Safety
///
/// As for [`Pages::replace`], of `len` bytes at `at`, which are whole pages of the memory.
unsafe fn replace_one(at: NonNull<u8>, len: usize) -> io::Result<Arc<OwnedFd>> {
    let Backing { memfd, .. } =
        Backing::create(len as u64).map_err(|denied| io::Error::from(denied.errno))?;
    let at = at.as_ptr();
    let mut done = 0;
    while done < len {
        // SAFETY: within the pages, which are readable; it is the kernel that reads, whoever else writes.
        let written =
            unsafe { libc::pwrite(memfd.as_raw_fd(), at.add(done).cast(), len - done, done as libc::off_t) };
        match written {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written @ 1.. => done += written as usize,
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: replaces pages of the memory by pages of the same bytes, in one step for whoever looks: the kernel
    // lets no access in between. Its length stays, and it is unmapped as a whole as before.
    unsafe { rustix::mm::mmap(at.cast(), len, protection, flags, &memfd, 0) }?;
    Ok(memfd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Mapping;

    const PAGE: usize = 4096;

    fn memory(pages: usize) -> (Mapping, Arc<Pages>) {
        let memory = Mapping::allocate(pages * PAGE).unwrap();
        let pages = Arc::clone(&memory.backing().unwrap().pages);
        (memory, pages)
    }

    fn bytes(memory: &Mapping) -> Vec<u8> {
        let mut bytes = vec![0; memory.len()];
        // SAFETY: all of a memory of this test alone.
        unsafe { memory.as_ptr().as_ptr().copy_to(bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }

    fn fill(memory: &Mapping, with: u8) {
        // SAFETY: as above.
        unsafe { memory.as_ptr().as_ptr().write_bytes(with, memory.len()) };
    }

    fn page() -> u64 {
        rustix::param::page_size() as u64
    }

    #[test]
    fn other_pages_have_the_same_bytes_and_what_is_written_to_the_old_ones_is_not_seen() {
        let (memory, pages) = memory(4 * page() as usize / PAGE);
        fill(&memory, 7);
        // SAFETY: nobody writes it meanwhile.
        unsafe { pages.replace(memory.as_ptr(), &[page()..2 * page(), 3 * page()..4 * page()]) }.unwrap();
        assert!(bytes(&memory).iter().all(|byte| *byte == 7));
        assert_eq!(pages.version(), 2);
        rustix::io::pwrite(&*memory.backing().unwrap().memfd, &vec![9; memory.len()], 0).unwrap();
        let seen: Vec<u8> = bytes(&memory).chunks(page() as usize).map(|page| page[0]).collect();
        assert_eq!(seen, [9, 7, 9, 7]);
        let told = pages.patches(1);
        assert_eq!((told.len(), told[0].version, told[0].offset), (1, 2, 3 * page()));
        rustix::io::pwrite(&*told[0].memfd, &[5], 0).unwrap();
        assert_eq!(
            bytes(&memory)[3 * page() as usize],
            5,
            "the pages that are told are those that are there"
        );
    }

    #[test]
    fn what_cannot_be_replaced_says_why() {
        let (memory, pages) = memory(1);
        // SAFETY: nobody writes it meanwhile.
        let refused = |range| unsafe { pages.replace(memory.as_ptr(), &[range]) }.unwrap_err();
        assert!(matches!(refused(0..2 * page()), Irreplaceable::Unknown));
        assert!(matches!(refused(page()..page()), Irreplaceable::Unknown));
        assert_eq!(pages.version(), 0);
        pages.check(PATCHES_MAX, false).unwrap();
        assert!(matches!(pages.check(PATCHES_MAX + 1, true), Err(Irreplaceable::TooOften)));
        pages.split();
        assert!(matches!(pages.check(1, false), Err(Irreplaceable::Shared)));
        pages.check(1, true).unwrap();
        pages.lend();
        assert!(matches!(pages.check(1, true), Err(Irreplaceable::Shared)));
    }

    #[test]
    fn whoever_holds_the_pages_is_waited_for() {
        let (memory, pages) = memory(1);
        let held = pages.hold();
        let at = memory.as_ptr().as_ptr() as usize;
        std::thread::scope(|scope| {
            let replaced = scope.spawn(|| {
                let whole = 0..page();
                // SAFETY: what writes it holds it.
                unsafe {
                    let base = NonNull::new(std::ptr::with_exposed_provenance_mut(at)).unwrap();
                    pages.replace(base, std::slice::from_ref(&whole))
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!replaced.is_finished());
            fill(&memory, 3);
            drop(held);
            replaced.join().unwrap().unwrap();
        });
        assert!(bytes(&memory).iter().all(|byte| *byte == 3));
    }
}
