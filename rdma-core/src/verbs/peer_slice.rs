//! Memory of a peer that is mapped here, used as if it were near.

use std::fmt;
use std::time::Instant;

use crate::backend::dispatch::AnyWorker;
use crate::backend::worker::{Core, QpHandle, Reach, Run};
use crate::error::{RangeError, ReachError};
use crate::memory::{Expect, InPlace, Patience, Pause};
use crate::{Deadline, Flag, Region, RemoteMemory};

/// Bytes that a reduction looks at at a time: half of what a processor's first cache holds.
const NEAR: usize = 16 << 10;
/// The same for a reduction of no more than that, which is not to clear more.
const NEAR_SMALL: usize = 512;

/// A place of the stack, as aligned as any number that is reduced.
#[repr(align(64))]
struct Near<const BYTES: usize>([u8; BYTES]);

/// A peer's memory that is [mapped](crate::PeerAccess::Mapped) here: read, written, reduced and waited for by this thread, at
/// once and without a request. Made by [`Worker::peer_slice`](crate::Worker::peer_slice) for as long as its deadline.
///
/// The bounds are checked, and the peer's rights as for a request: what it deregistered is neither read nor written any
/// more, and an error, of which the peer hears nothing. The peer may write at the same time, so there is never a slice of
/// it: bytes are copied, and may be torn unless a flag says that they are whole. Nothing here waits for requests that were
/// posted before, nor the other way round.
///
/// Faults that are injected into messages do not meet it; a device that is stopped, or down, does not answer here either.
///
/// What it costs: a copy of the bytes, and for each 256 KiB (16 KiB in a reduction) and each flag the lock of all software
/// devices of the process, and two fences. While it copies a chunk the other threads of the process cannot post.
///
/// ```
/// use std::time::Duration;
/// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
/// let context = Device::soft(SoftOptions::default()).open()?;
/// let pd = context.alloc_pd()?;
/// let mut worker = context.worker(WorkerOptions::default())?;
/// let (left, _right) = loopback(&mut worker, &pd)?;
/// let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
/// let theirs = pd.alloc_region(4096, open)?;
///
/// let deadline = Deadline::after(Duration::from_secs(5));
/// let mut peer = worker.peer_slice(&left, theirs.remote(), deadline);
/// peer.copy_in(64, &[1, 2, 3])?;
/// peer.store(0, 1_u64)?;
/// let mut sum = 0;
/// peer.reduce_from(64, 3, |_, bytes| sum += bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>())?;
/// assert_eq!((sum, theirs.load::<u64>(0)?), (6, 1));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct PeerSlice<'w> {
    core: &'w mut Core<AnyWorker>,
    qp: QpHandle,
    memory: RemoteMemory,
    deadline: Deadline,
    expect: Expect,
}

impl<'w> PeerSlice<'w> {
    pub(crate) fn new(
        core: &'w mut Core<AnyWorker>,
        qp: QpHandle,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Self {
        Self { core, qp, memory, deadline, expect: Expect::Cached }
    }

    /// Says where the bytes of its copies are expected to be: of one of many that move more than the caches hold,
    /// [`Expect::of_total`] of all their bytes. What is copied is then stored around the caches, which is faster for those, and
    /// slower for a few, or for what is read again at once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
    /// use rdma_core::memory::Expect;
    /// # let context = Device::soft(SoftOptions::default()).open()?;
    /// # let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// # let (left, _right) = loopback(&mut worker, &pd)?;
    /// # let deadline = Deadline::after(Duration::from_secs(5));
    /// let theirs = pd.alloc_region(64 << 10, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let parts = vec![1; theirs.len()];
    /// let all = Expect::of_total(1024 * theirs.len());
    /// let mut peer = worker.peer_slice(&left, theirs.remote(), deadline).expecting(all);
    /// // … one of 1024 of them …
    /// peer.copy_in(0, &parts)?;
    /// # let mut came = vec![0; parts.len()];
    /// # theirs.copy_out(0, &mut came)?;
    /// # assert_eq!(came, parts);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    pub fn expecting(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// Waits until it is mapped, and checks that the peer has registered all of it, and allows something to be done with it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, error::ReachError, loopback};
    /// # let context = Device::soft(SoftOptions::default()).open()?;
    /// # let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// # let (left, _right) = loopback(&mut worker, &pd)?;
    /// # let deadline = Deadline::after(Duration::from_secs(5));
    /// let theirs = pd.alloc_region(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let told = theirs.remote();
    /// worker.peer_slice(&left, told, deadline).ready()?;
    /// theirs.deregister()?;
    /// let gone = worker.peer_slice(&left, told, deadline).ready();
    /// assert!(matches!(gone, Err(ReachError::Revoked)));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`NotMapped`](ReachError::NotMapped), [`NotShared`](ReachError::NotShared) and [`Unmapped`](ReachError::Unmapped):
    ///   it cannot be, and why; post requests instead.
    /// - [`Revoked`](ReachError::Revoked), [`ForeignDomain`](ReachError::ForeignDomain),
    ///   [`OutOfRange`](ReachError::OutOfRange) and [`AccessDenied`](ReachError::AccessDenied): the peer registered no such
    ///   memory, or does not let this side in.
    /// - [`PeerGone`](ReachError::PeerGone) and [`Failed`](ReachError::Failed): connect again.
    /// - [`DeadlineExceeded`](ReachError::DeadlineExceeded): the peer did not answer in time.
    /// - [`ForeignWorker`](ReachError::ForeignWorker) when the queue pair is of another one.
    pub fn ready(&mut self) -> Result<(), ReachError> {
        let mut patience = Patience::without_spins(self.deadline);
        while !self.look()? {
            patience.pause()?;
        }
        Ok(())
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// Copies `bytes` to `offset` of it; the peer must allow `REMOTE_WRITE`.
    ///
    /// # Errors
    ///
    /// Those of [`ready`](Self::ready), and [`ReachError::Range`]. Nothing is copied when the range does not fit, or the peer
    /// does not allow it; some may be when it takes its right back meanwhile, and when the deadline passes, which is looked at
    /// after each 256 KiB: the error tells how much.
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        self.reach(offset, bytes.len(), Reach::Write(bytes)).map(drop)
    }

    /// Copies `bytes.len()` bytes from `offset` of it; the peer must allow `REMOTE_READ`.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    pub fn copy_out(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), ReachError> {
        self.reach(offset, bytes.len(), Reach::Read(bytes)).map(drop)
    }

    /// Copies `len` bytes from `start` of `source` to `offset` of it, in one pass. The two may not overlap, as they can when
    /// the peer is of this process: the bytes would be mixed.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    pub fn copy_from(
        &mut self,
        offset: usize,
        len: usize,
        source: &Region,
        start: usize,
    ) -> Result<(), ReachError> {
        self.reach(offset, len, Reach::WriteFrom(source, start)).map(drop)
    }

    /// Copies `len` bytes from `offset` of it to `start` of `target`, in one pass. The two may not overlap.
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in).
    pub fn copy_to(
        &mut self,
        offset: usize,
        len: usize,
        target: &Region,
        start: usize,
    ) -> Result<(), ReachError> {
        self.reach(offset, len, Reach::ReadTo(target, start)).map(drop)
    }

    /// Hands `len` bytes from `offset` of it to `reduce`, in order and in parts, each with where it begins among them.
    ///
    /// A part is a copy that no peer writes, aligned to 64 bytes and, but for the last, a multiple of 64 bytes long: no number
    /// is in two of them. `reduce` is called with nothing held.
    ///
    /// # Errors
    ///
    /// As for [`copy_out`](Self::copy_out); parts that were handed over before stay so.
    pub fn reduce_from(
        &mut self,
        offset: usize,
        len: usize,
        reduce: impl FnMut(usize, &[u8]),
    ) -> Result<(), ReachError> {
        if len <= NEAR_SMALL {
            self.reduce_by(offset, len, &mut Near([0; NEAR_SMALL]), reduce)
        } else {
            self.reduce_by(offset, len, &mut Near([0; NEAR]), reduce)
        }
    }

    fn reduce_by<const BYTES: usize>(
        &mut self,
        offset: usize,
        len: usize,
        near: &mut Near<BYTES>,
        mut reduce: impl FnMut(usize, &[u8]),
    ) -> Result<(), ReachError> {
        RangeError::check(offset as u64, len as u64, self.memory.len)?;
        let begun = (len > BYTES).then(Instant::now);
        for begin in (0..len).step_by(BYTES) {
            if let Some(begun) = begun.filter(|_| begin > 0 && self.deadline.expired()) {
                return Err(ReachError::DeadlineExceeded { waited: begun.elapsed(), done: begin as u64 });
            }
            let part = &mut near.0[..BYTES.min(len - begin)];
            self.copy_out(offset + begin, part).map_err(|error| error.after(begin))?;
            reduce(begin, part);
        }
        Ok(())
    }

    /// Has `len` bytes from `offset` of it worked on where they lie, in one pass; the peer must allow what that
    /// [needs](InPlace::NEEDS).
    ///
    /// # Errors
    ///
    /// As for [`copy_in`](Self::copy_in); what was worked on before stays so.
    pub fn run<W: InPlace>(&mut self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        self.reach(offset, len, Reach::Run(Run::new(work))).map(drop)
    }

    /// Stores a flag at `offset`, after all that this thread wrote before, to this peer or another: who sees the flag sees
    /// that. The peer must allow `REMOTE_WRITE`.
    ///
    /// Let flags grow: one may be stored again a moment later, when the peer replaces pages of the region since another process
    /// is stopped at them.
    ///
    /// # Errors
    ///
    /// Those of [`copy_in`](Self::copy_in), and [`ReachError::Unaligned`] unless the address of the flag in the peer's memory
    /// is a multiple of its length.
    pub fn store<F: Flag>(&mut self, offset: usize, flag: F) -> Result<(), ReachError> {
        self.reach(offset, F::LEN as usize, Reach::Store(flag.to_bits())).map(drop)
    }

    /// Loads a flag from `offset`; what was written before it is there to be read. The peer must allow `REMOTE_READ`.
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store).
    pub fn load<F: Flag>(&mut self, offset: usize) -> Result<F, ReachError> {
        self.reach(offset, F::LEN as usize, Reach::Load).map(F::from_bits)
    }

    /// Waits until `enough` says so of a flag at `offset`, and gives it: spins, lets others run, then sleeps, a millisecond at
    /// most.
    ///
    /// # Errors
    ///
    /// As for [`store`](Self::store); [`DeadlineExceeded`](ReachError::DeadlineExceeded), [`PeerGone`](ReachError::PeerGone)
    /// and [`Revoked`](ReachError::Revoked) end it as they come.
    pub fn wait<F: Flag>(&mut self, offset: usize, enough: impl FnMut(F) -> bool) -> Result<F, ReachError> {
        Patience::new(self.deadline).until(|| self.load(offset), enough)
    }

    /// Waits for a flag that the peer stores into `own`, as [`Region::wait`] does, and ends as well when the peer goes, or
    /// takes back the memory that this is a slice of: what it stored before counts.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
    /// # let context = Device::soft(SoftOptions::default()).open()?;
    /// # let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// # let (left, _right) = loopback(&mut worker, &pd)?;
    /// # let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    /// let (theirs, own) = (pd.alloc_region(4096, open)?, pd.alloc_region(64, open)?);
    /// # own.store(0, 1_u64)?;
    /// let mut peer = worker.peer_slice(&left, theirs.remote(), Deadline::after(Duration::from_secs(5)));
    /// peer.copy_in(64, b"a question")?;
    /// peer.store(0, 1_u64)?;
    /// // … the peer, which waits for that, answers by a flag in turn …
    /// assert_eq!(peer.wait_own(&own, 0, |flag: u64| flag >= 1)?, 1);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`ready`](Self::ready), and, of `own`, [`ReachError::Range`] and [`ReachError::Unaligned`].
    pub fn wait_own<F: Flag>(
        &mut self,
        own: &Region,
        offset: usize,
        mut enough: impl FnMut(F) -> bool,
    ) -> Result<F, ReachError> {
        let mut patience = Patience::new(self.deadline);
        let mut ended = Ok(());
        loop {
            let flag = own.load(offset)?;
            if enough(flag) {
                return Ok(flag);
            }
            ended?;
            ended = match patience.pause()? {
                Pause::Spun => Ok(()),
                Pause::Rested => self.look().map(drop),
            };
        }
    }

    /// Whether the peer is there by now, and lets this side in.
    fn look(&mut self) -> Result<bool, ReachError> {
        self.core.is_reachable(self.qp, self.memory)
    }

    fn reach(&mut self, offset: usize, len: usize, reach: Reach<'_>) -> Result<u64, ReachError> {
        self.core.reach(self.qp, self.memory, (offset, len), (reach, self.expect), self.deadline)
    }
}

impl fmt::Debug for PeerSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSlice").field("memory", &self.memory).finish_non_exhaustive()
    }
}
