//! Flags: words in shared memory by which two sides tell each other how far they are; and the backoff of a
//! waiter.

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

/// Looks without a pause before the thread yields. 512 looks take some microseconds, so a flag that arrives
/// soon costs no system call.
const SPINS: u32 = 512;
/// Looks with a yield in between, before the thread sleeps.
const YIELDS: u32 = 64;
/// The first and the longest sleep. 1 ms bounds the delay of a flag that arrives while the waiter sleeps.
const NAP_MIN: Duration = Duration::from_micros(50);
const NAP_MAX: Duration = Duration::from_millis(1);
/// Spins between two checks of the deadline, because reading the clock takes longer than a look at the flag.
const SPINS_PER_LOOK: u32 = 64;

mod sealed {
    pub trait Word: Copy + Into<u64> {
        const LEN: u32 = size_of::<Self>() as u32;
        fn from_bits(bits: u64) -> Self;
    }
}

pub(crate) use sealed::Word;

/// A type that a flag may have: `u32` or `u64`.
///
/// The trap: both sides must use one size for all flags at an address. A load of another size may see a part
/// of a flag before the rest. [`Region::wait`] has an example.
pub trait Flag: Word {}

impl Flag for u32 {}
impl Flag for u64 {}

impl Word for u32 {
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

impl Word for u64 {
    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// Stores a word of 4 or 8 bytes (`len`), ordered after everything that this thread stored or copied before.
///
/// On x86-64 the store is an instruction in `asm!`, like those of copies. A Rust atomic would be a data race
/// with a thread that accesses these bytes in another size, or copies them.
///
/// # Safety
///
/// `at` is a multiple of `len`, and is valid for reads and writes of `len` bytes during the whole call.
/// During the call, nobody uses a reference to those bytes.
pub(crate) unsafe fn store(at: *mut u8, len: u32, bits: u64) {
    // SAFETY: the caller promises an aligned, valid address. An aligned `mov` stores all bytes at once, and
    // x86-64 orders it after earlier stores. The compiler keeps the order, too, because `asm!` without
    // `nomem` may access any memory.
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
    // SAFETY: the caller promises an aligned, valid address; others access the word only as a device does.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        match len {
            4 => AtomicU32::from_ptr(at.cast()).store(bits as u32, Ordering::Release),
            _ => AtomicU64::from_ptr(at.cast()).store(bits, Ordering::Release),
        }
    }
}

/// Loads a word, ordered before everything that this thread loads afterwards.
///
/// # Safety
///
/// The promises of [`store`].
pub(crate) unsafe fn load(at: *mut u8, len: u32) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let bits: u64;
        // SAFETY: the caller promises an aligned, valid address. x86-64 orders the load before later loads,
        // and a 4-byte `mov` clears the upper half of its register, so all of `bits` is defined.
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
    // SAFETY: the caller promises an aligned, valid address; others access the word only as a device does.
    #[cfg(not(target_arch = "x86_64"))]
    unsafe {
        match len {
            4 => AtomicU32::from_ptr(at.cast()).load(Ordering::Acquire).into(),
            _ => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
        }
    }
}

impl Region {
    /// Stores a flag. Whoever sees the flag also sees everything that this thread wrote before.
    ///
    /// ```
    /// use rdma_core::{Access, Device, SoftOptions};
    /// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
    /// let region = pd.alloc_region(64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    /// region.copy_in(8, b"ready")?;
    /// // A peer that loads 1 finds the bytes.
    /// region.store(0, 1_u64)?;
    /// assert_eq!(region.load::<u64>(0)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReachError::Range`] when the flag reaches beyond the region, [`ReachError::Unaligned`] unless its
    /// address is a multiple of its length.
    pub fn store<F: Flag>(&self, offset: usize, flag: F) -> Result<(), ReachError> {
        let at = self.flag_at::<F>(offset)?;
        let _held = self.memory().hold();
        // SAFETY: `flag_at` checked range and alignment, and `self` keeps the region mapped. `_held` keeps
        // its pages from being replaced, so the store cannot get lost.
        unsafe { store(at.as_ptr(), F::LEN, flag.into()) };
        Ok(())
    }

    /// Loads a flag that a peer may store. Everything that the peer wrote before the flag is then visible.
    ///
    /// # Errors
    ///
    /// The errors of [`store`](Self::store).
    pub fn load<F: Flag>(&self, offset: usize) -> Result<F, ReachError> {
        let at = self.flag_at::<F>(offset)?;
        // SAFETY: `flag_at` checked range and alignment, and `self` keeps the region mapped because it is
        // borrowed.
        Ok(F::from_bits(unsafe { load(at.as_ptr(), F::LEN) }))
    }

    /// Waits until `enough` accepts a flag that a peer stores here, and returns it.
    ///
    /// The thread spins first (some microseconds), then yields, then sleeps up to 1 ms at a time.
    ///
    /// The trap: the wait does not notice that the peer is gone.
    /// [`PeerSlice::wait_own`](crate::PeerSlice::wait_own) does.
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
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The errors of [`store`](Self::store), and [`ReachError::DeadlineExceeded`].
    pub fn wait<F: Flag>(
        &self,
        offset: usize,
        enough: impl FnMut(F) -> bool,
        deadline: Deadline,
    ) -> Result<F, ReachError> {
        Backoff::new(deadline).until(|| self.load(offset), enough)
    }

    fn flag_at<F: Flag>(&self, offset: usize) -> Result<NonNull<u8>, ReachError> {
        check_aligned(self.address_of(offset, F::LEN as usize)?, F::LEN as usize)
    }
}

/// Returns the address of a flag of `len` bytes, a power of two, or fails unless it is a multiple of `len`.
#[inline]
pub(super) fn check_aligned(at: NonNull<u8>, len: usize) -> Result<NonNull<u8>, ReachError> {
    let address = at.addr().get();
    // Not a division, because a processor takes longer for one than for the rest of a look at a flag.
    if address & (len - 1) == 0 {
        Ok(at)
    } else {
        Err(ReachError::Unaligned { address: address as u64, len })
    }
}

/// Backoff of a thread that waits for a word that another one stores: spin, then yield, then sleep.
#[derive(Debug)]
pub(crate) struct Backoff {
    begin: Instant,
    deadline: Deadline,
    looks: u32,
    nap: Duration,
}

/// The kind of pause between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pause {
    Spun,
    /// Some microseconds have passed at least, so that a check whether the peer is still there costs
    /// comparatively little.
    Rested,
}

impl Backoff {
    pub(crate) fn new(deadline: Deadline) -> Self {
        Self { begin: Instant::now(), deadline, looks: 0, nap: NAP_MIN }
    }

    /// Starts with yields, for looks that are system calls and so too expensive to spin on.
    pub(crate) fn without_spins(deadline: Deadline) -> Self {
        Self { looks: SPINS, ..Self::new(deadline) }
    }

    /// Calls `look` until `enough` accepts what it returns.
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

    /// Pauses once, a little longer each time.
    ///
    /// # Errors
    ///
    /// [`ReachError::DeadlineExceeded`]. The caller has looked at least once since the deadline passed,
    /// because the clock is read after the look.
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
