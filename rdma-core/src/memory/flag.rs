//! Words by which two sides of shared memory tell each other how far they are.

#![expect(unsafe_code, reason = "accesses words that others change")]

#[cfg(target_arch = "x86_64")]
use std::arch::asm;
use std::ptr::NonNull;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Region;
use crate::Deadline;
use crate::error::ReachError;

/// How often a word is looked at before the processor is offered to others; some microseconds.
const SPINS: u32 = 512;
/// And then, before the thread sleeps.
const YIELDS: u32 = 64;
/// How long it sleeps at first, and at most.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);
/// The deadline is looked at once in so many spins.
const SPINS_PER_LOOK: u32 = 64;

mod sealed {
    pub trait Word: Copy {
        const LEN: u32;
        fn to_bits(self) -> u64;
        fn from_bits(bits: u64) -> Self;
    }
}

pub(crate) use sealed::Word;

/// What a flag may be: `u32` or `u64`.
///
/// All flags of one place are to be of one size, on both sides: of one that was stored in the other size a part may be seen
/// before the rest.
pub trait Flag: Word {}

impl Flag for u32 {}
impl Flag for u64 {}

impl Word for u32 {
    const LEN: u32 = 4;

    fn to_bits(self) -> u64 {
        self.into()
    }

    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

impl Word for u64 {
    const LEN: u32 = 8;

    fn to_bits(self) -> u64 {
        self
    }

    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// Stores a word of `len` bytes, 4 or 8, after all that this thread has stored or copied before.
///
/// As with copies, it is not Rust that does where that can be: a thread that takes it for one of another size, or for bytes,
/// would make a data race of it.
///
/// # Safety
///
/// `at` is a multiple of `len`, and valid for reads and writes of as many bytes for the whole call; no reference to them is
/// used meanwhile.
pub(crate) unsafe fn store(at: *mut u8, len: u32, bits: u64) {
    // SAFETY: aligned and valid by the caller's promise. On this architecture an aligned move is whole, and comes after the
    // stores before it; that the compiler leaves the order as it is, is what `asm!` does that may access memory.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        match len {
            4 => {
                asm!("mov [{at}], {bits:e}", at = in(reg) at, bits = in(reg) bits, options(nostack, preserves_flags))
            }
            _ => {
                asm!("mov [{at}], {bits}", at = in(reg) at, bits = in(reg) bits, options(nostack, preserves_flags))
            }
        }
    }
    // SAFETY: aligned and valid by the caller's promise; others use it as a device does.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        match len {
            4 => AtomicU32::from_ptr(at.cast()).store(bits as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(at.cast()).store(bits, Ordering::Release),
        }
    }
}

/// Loads a word, before all that this thread looks at afterwards.
///
/// # Safety
///
/// As for [`store`].
pub(crate) unsafe fn load(at: *mut u8, len: u32) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let bits: u64;
        // SAFETY: as in `store`; it comes before the loads after it, and clears the upper half where it fills the lower.
        unsafe {
            match len {
                4 => {
                    asm!("mov {bits:e}, [{at}]", at = in(reg) at, bits = out(reg) bits, options(nostack, preserves_flags))
                }
                _ => {
                    asm!("mov {bits}, [{at}]", at = in(reg) at, bits = out(reg) bits, options(nostack, preserves_flags))
                }
            }
        }
        bits
    }
    // SAFETY: as in `store`.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        match len {
            4 => AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire).into(),
            _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
        }
    }
}

impl Region {
    /// Stores a flag, after all that this thread wrote before: whoever sees it sees that, too.
    ///
    /// ```
    /// use rdma_core::{Access, Device, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    /// region.copy_in(8, b"ready")?;
    /// // A peer that loads 1 finds the bytes.
    /// region.store(0, 1_u64)?;
    /// assert_eq!(region.load::<u64>(0)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when the region has fewer bytes; [`ReachError::Unaligned`] unless its address is a multiple of
    /// its length.
    pub fn store<F: Flag>(&self, offset: usize, flag: F) -> Result<(), ReachError> {
        let at = self.flag_at::<F>(offset)?;
        let _held = self.memory().hold();
        // SAFETY: inside of the region, which is alive, and aligned.
        unsafe { store(at.as_ptr(), F::LEN, flag.to_bits()) };
        Ok(())
    }

    /// Loads a flag that a peer may store: what it wrote before that is there to be read.
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store).
    pub fn load<F: Flag>(&self, offset: usize) -> Result<F, ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: as in `store`.
        Ok(F::from_bits(unsafe { load(at.as_ptr(), F::LEN) }))
    }

    /// Waits until `enough` says so of a flag that a peer stores here, and gives it. Between looks the thread spins, then lets
    /// others run, then sleeps, a millisecond at most.
    ///
    /// To end as well when the peer is gone, wait by [`PeerSlice::wait_own`](crate::PeerSlice::wait_own).
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::{Access, Deadline, Device, SoftOptions, error::ReachError};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let other = region.clone();
    /// std::thread::spawn(move || other.store(8, 3_u64));
    /// assert_eq!(region.wait(8, |flag: u64| flag >= 3, Deadline::after(Duration::from_secs(60)))?, 3);
    /// let late = region.wait(8, |flag: u64| flag > 3, Deadline::after(Duration::from_millis(1)));
    /// assert!(matches!(late, Err(ReachError::DeadlineExceeded { .. })));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store), and [`ReachError::DeadlineExceeded`].
    pub fn wait<F: Flag>(
        &self,
        offset: usize,
        enough: impl FnMut(F) -> bool,
        deadline: Deadline,
    ) -> Result<F, ReachError> {
        Backoff::new(deadline).until(|| self.load(offset), enough)
    }

    fn flag_at<F: Flag>(&self, offset: usize) -> Result<NonNull<u8>, ReachError> {
        let (at, len) = (self.address_of(offset, F::LEN as usize)?, F::LEN as usize);
        if !at.as_ptr().addr().is_multiple_of(len) {
            return Err(ReachError::Unaligned { address: at.as_ptr().addr() as u64, len });
        }
        Ok(at)
    }
}

/// How a thread waits for what another one stores.
#[derive(Debug)]
pub(crate) struct Backoff {
    begin: Instant,
    deadline: Deadline,
    looks: u32,
    nap: Duration,
}

/// What was done between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    Spun,
    /// Some microseconds at least: it pays to look whether the other side is still there.
    Rested,
}

impl Backoff {
    pub(crate) fn new(deadline: Deadline) -> Self {
        Self { begin: Instant::now(), deadline, looks: 0, nap: NAP_MIN }
    }

    /// For what takes system calls to look at.
    pub(crate) fn without_spins(deadline: Deadline) -> Self {
        Self { looks: SPINS, ..Self::new(deadline) }
    }

    /// Looks until `enough` says so of what there is.
    pub(crate) fn until<F: Flag>(
        mut self,
        mut look: impl FnMut() -> Result<F, ReachError>,
        mut enough: impl FnMut(F) -> bool,
    ) -> Result<F, ReachError> {
        loop {
            let flag = look()?;
            if enough(flag) {
                return Ok(flag);
            }
            self.pause()?;
        }
    }

    /// Lets some time pass.
    ///
    /// # Errors
    ///
    /// [`ReachError::DeadlineExceeded`]; there was a look since the deadline passed.
    pub(crate) fn pause(&mut self) -> Result<Pause, ReachError> {
        self.looks = self.looks.saturating_add(1);
        if self.looks < SPINS && !self.looks.is_multiple_of(SPINS_PER_LOOK) {
            std::hint::spin_loop();
            return Ok(Pause::Spun);
        }
        let remaining = self.deadline.remaining();
        if remaining.is_zero() {
            return Err(ReachError::DeadlineExceeded { waited: self.begin.elapsed(), done: 0 });
        }
        if self.looks < SPINS {
            return Ok(Pause::Spun);
        }
        if self.looks < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(self.nap.min(remaining));
            self.nap = (self.nap * 2).min(NAP_MAX);
        }
        Ok(Pause::Rested)
    }
}
