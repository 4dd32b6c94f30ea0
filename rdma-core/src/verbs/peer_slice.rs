//! [`PeerSlice`], memory of a peer on this host, accessed without requests. The checks and the copies are in
//! `backend`.

use std::fmt;
use std::time::Instant;

use crate::backend::dispatch::AnyWorker;
use crate::backend::worker::{InPlaceWork, PeerOp, QpHandle, WorkerCore};
use crate::error::{RangeError, ReachError};
use crate::memory::{Backoff, CacheHint, InPlace, OwnProcess, Pause};
use crate::{Deadline, Flag, Region, RemoteMemory};

/// Bytes that a reduction copies at a time: 16 KiB, half of a typical 32 KiB L1 data cache, so that the copy
/// and the reducer's own operand both fit.
const SCRATCH_BYTES: usize = 16 << 10;
/// Bytes of the scratch buffer for short reductions. The buffer is zeroed first, and zeroing 16 KiB would
/// take longer than reducing 512 bytes.
const SMALL_SCRATCH_BYTES: usize = 512;

/// A stack buffer, aligned to 64 bytes so that no number of any element type straddles its begin.
#[repr(align(64))]
struct Scratch<const BYTES: usize>([u8; BYTES]);

/// Memory of a peer that is [mapped](crate::PeerAccess::Mapped) into this process: the calling thread reads,
/// writes, reduces and polls it directly, without posting a request.
///
/// [`Worker::peer_slice`](crate::Worker::peer_slice) makes one; every operation on it ends by the deadline
/// given there.
///
/// Bounds and rights are checked as for a request. Memory that the peer deregistered is neither read nor
/// written: the call returns an error, and the peer hears nothing of it. The peer may write at the same time,
/// so a `&[u8]` of this memory never exists. Bytes are copied, and may be torn unless a flag says that they
/// are complete.
///
/// The trap: these operations and posted requests are not ordered. An operation here does not wait for
/// requests that were posted before, and requests do not wait for it.
///
/// [Faults](crate::fault) that drop or delay messages do not apply here. A device that is stopped or whose
/// port is down does not answer here either.
///
/// Cost: one copy of the bytes. For each 256 KiB (16 KiB in a reduction) and for each flag, the lock of all
/// software devices of the process and two memory fences. While a chunk is copied, no other thread of the
/// process can post.
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
    core: &'w mut OwnProcess<WorkerCore<AnyWorker>>,
    qp: QpHandle,
    memory: RemoteMemory,
    deadline: Deadline,
    hint: CacheHint,
}

impl<'w> PeerSlice<'w> {
    pub(crate) fn new(
        core: &'w mut OwnProcess<WorkerCore<AnyWorker>>,
        qp: QpHandle,
        memory: RemoteMemory,
        deadline: Deadline,
    ) -> Self {
        Self { core, qp, memory, deadline, hint: CacheHint::Cached }
    }

    /// Sets the cache hint of the copies (default [`CacheHint::Cached`]).
    ///
    /// If this copy is one of many that together exceed the caches, pass [`CacheHint::of_total`] of all their
    /// bytes. The copies then store around the caches. That is faster for long lists of copies, and slower
    /// for a few copies or for bytes that are read again at once.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use rdma_core::{Access, Deadline, Device, SoftOptions, WorkerOptions, loopback};
    /// use rdma_core::memory::CacheHint;
    /// # let context = Device::soft(SoftOptions::default()).open()?;
    /// # let (pd, mut worker) = (context.alloc_pd()?, context.worker(WorkerOptions::default())?);
    /// # let (left, _right) = loopback(&mut worker, &pd)?;
    /// # let deadline = Deadline::after(Duration::from_secs(5));
    /// let theirs = pd.alloc_region(64 << 10, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    /// let parts = vec![1; theirs.len()];
    /// let all = CacheHint::of_total(1024 * theirs.len());
    /// let mut peer = worker.peer_slice(&left, theirs.remote(), deadline).with_cache_hint(all);
    /// // … one of 1024 of them …
    /// peer.copy_in(0, &parts)?;
    /// # let mut came = vec![0; parts.len()];
    /// # theirs.copy_out(0, &mut came)?;
    /// # assert_eq!(came, parts);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    #[must_use]
    pub fn with_cache_hint(mut self, hint: CacheHint) -> Self {
        self.hint = hint;
        self
    }

    /// Waits until the memory is mapped, and checks that the peer registered all of it and grants some right
    /// to it.
    ///
    /// Call it once before a series of small operations, so that the first of them does not pay for the
    /// mapping.
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
    /// - [`NotMapped`](ReachError::NotMapped), [`NotShared`](ReachError::NotShared) and
    ///   [`Unmapped`](ReachError::Unmapped): the memory cannot be mapped; the message says why. Post requests
    ///   instead.
    /// - [`Revoked`](ReachError::Revoked), [`ForeignDomain`](ReachError::ForeignDomain),
    ///   [`OutOfRange`](ReachError::OutOfRange) and [`AccessDenied`](ReachError::AccessDenied): the peer
    ///   registered no such memory, or does not grant the right.
    /// - [`PeerGone`](ReachError::PeerGone) and [`Failed`](ReachError::Failed): the connection has ended;
    ///   connect again.
    /// - [`DeadlineExceeded`](ReachError::DeadlineExceeded): the peer did not answer in time.
    /// - [`ForeignWorker`](ReachError::ForeignWorker): the queue pair belongs to another worker.
    pub fn ready(&mut self) -> Result<(), ReachError> {
        let mut backoff = Backoff::without_spins(self.deadline);
        while !self.look()? {
            backoff.pause()?;
        }
        Ok(())
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.memory.len
    }

    /// Returns whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// Copies `bytes` to `offset` of the peer's memory; the peer must grant `REMOTE_WRITE`.
    ///
    /// # Errors
    ///
    /// The errors of [`ready`](Self::ready), and [`ReachError::Range`]. Nothing is copied when the range does
    /// not fit or the peer does not grant the right. Some bytes may be copied when the peer revokes the right
    /// meanwhile, or when the deadline passes, which is checked after each 256 KiB: the error says how many
    /// bytes were done.
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) -> Result<(), ReachError> {
        self.reach(offset, bytes.len(), PeerOp::Write(bytes)).map(drop)
    }

    /// Copies `bytes.len()` bytes from `offset` of the peer's memory; the peer must grant `REMOTE_READ`.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in).
    pub fn copy_out(&mut self, offset: usize, bytes: &mut [u8]) -> Result<(), ReachError> {
        self.reach(offset, bytes.len(), PeerOp::Read(bytes)).map(drop)
    }

    /// Copies `len` bytes from `start` of `source` to `offset` of the peer's memory in one pass, without a
    /// buffer between.
    ///
    /// The trap: the ranges must not overlap, otherwise the bytes are mixed. They can overlap when the peer
    /// is in this process.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in).
    pub fn copy_from(
        &mut self,
        offset: usize,
        len: usize,
        source: &Region,
        start: usize,
    ) -> Result<(), ReachError> {
        self.reach(offset, len, PeerOp::WriteFrom(source, start)).map(drop)
    }

    /// Copies `len` bytes from `offset` of the peer's memory to `start` of `target` in one pass. The ranges
    /// must not overlap.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in), with `REMOTE_READ` as the right.
    pub fn copy_to(
        &mut self,
        offset: usize,
        len: usize,
        target: &Region,
        start: usize,
    ) -> Result<(), ReachError> {
        self.reach(offset, len, PeerOp::ReadTo(target, start)).map(drop)
    }

    /// Passes `len` bytes from `offset` of the peer's memory to `reduce`, in order and in parts, each with
    /// its offset from `offset`. [`PeerSlice`] has an example.
    ///
    /// Each part is a private copy, so no peer writes it. It is aligned to 64 bytes, and all but the last are
    /// a multiple of 64 bytes long, so no number is split between two parts. No lock is held while `reduce`
    /// runs.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_out`](Self::copy_out). Parts that were passed before an error stay reduced.
    pub fn reduce_from(
        &mut self,
        offset: usize,
        len: usize,
        reduce: impl FnMut(usize, &[u8]),
    ) -> Result<(), ReachError> {
        if len <= SMALL_SCRATCH_BYTES {
            self.reduce_by(offset, len, &mut Scratch([0; SMALL_SCRATCH_BYTES]), reduce)
        } else {
            self.reduce_by(offset, len, &mut Scratch([0; SCRATCH_BYTES]), reduce)
        }
    }

    fn reduce_by<const BYTES: usize>(
        &mut self,
        offset: usize,
        len: usize,
        scratch: &mut Scratch<BYTES>,
        mut reduce: impl FnMut(usize, &[u8]),
    ) -> Result<(), ReachError> {
        RangeError::check(offset as u64, len as u64, self.memory.len)?;
        // A reduction of one part is short, so it reads no clock.
        let begun = (len > BYTES).then(Instant::now);
        for begin in (0..len).step_by(BYTES) {
            if let Some(begun) = begun.filter(|_| begin > 0 && self.deadline.expired()) {
                return Err(ReachError::DeadlineExceeded { waited: begun.elapsed(), done: begin as u64 });
            }
            let part = &mut scratch.0[..BYTES.min(len - begin)];
            self.copy_out(offset + begin, part).map_err(|error| error.after(begin))?;
            reduce(begin, part);
        }
        Ok(())
    }

    /// Runs `work` on `len` bytes from `offset` in place, without copying them; the peer must grant the
    /// rights that `work` [needs](InPlace::NEEDS).
    ///
    /// [`InPlace`] has an example.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in). Bytes that `work` changed before an error stay changed.
    pub fn run<W: InPlace>(&mut self, offset: usize, len: usize, work: &mut W) -> Result<(), ReachError> {
        self.reach(offset, len, PeerOp::InPlace(InPlaceWork::new(work))).map(drop)
    }

    /// Stores a flag at `offset`. Whoever sees the flag also sees all that this thread wrote before, to this
    /// peer or to another one. The peer must grant `REMOTE_WRITE`.
    ///
    /// The trap: use flags that only grow. The peer may replace pages of the region because another process
    /// is stopped while it accesses them; a flag may then be stored a second time a moment later.
    ///
    /// # Errors
    ///
    /// The errors of [`copy_in`](Self::copy_in), and [`ReachError::Unaligned`] unless the flag's address in
    /// the peer's memory is a multiple of its length.
    pub fn store<F: Flag>(&mut self, offset: usize, flag: F) -> Result<(), ReachError> {
        self.reach(offset, F::LEN as usize, PeerOp::Store(flag.into())).map(drop)
    }

    /// Loads a flag from `offset`. Everything that was written before the flag is then visible. The peer must
    /// grant `REMOTE_READ`.
    ///
    /// # Errors
    ///
    /// The errors of [`store`](Self::store).
    pub fn load<F: Flag>(&mut self, offset: usize) -> Result<F, ReachError> {
        self.reach(offset, F::LEN as usize, PeerOp::Load).map(F::from_bits)
    }

    /// Waits until `enough` accepts the flag at `offset`, and returns it.
    ///
    /// The thread spins first (some microseconds), then yields, then sleeps up to 1 ms at a time.
    ///
    /// # Errors
    ///
    /// The errors of [`store`](Self::store). [`DeadlineExceeded`](ReachError::DeadlineExceeded),
    /// [`PeerGone`](ReachError::PeerGone) and [`Revoked`](ReachError::Revoked) end the wait as soon as they
    /// are noticed.
    pub fn wait<F: Flag>(&mut self, offset: usize, enough: impl FnMut(F) -> bool) -> Result<F, ReachError> {
        Backoff::new(self.deadline).until(|| self.load(offset), enough)
    }

    /// Waits for a flag that the peer stores into `own`, this side's region.
    ///
    /// Unlike [`Region::wait`] the wait also ends when the peer is gone or revokes the memory of this slice.
    /// A flag that the peer stored before still counts.
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
    /// The errors of [`ready`](Self::ready); for `own`, [`ReachError::Range`] and [`ReachError::Unaligned`].
    pub fn wait_own<F: Flag>(
        &mut self,
        own: &Region,
        offset: usize,
        mut enough: impl FnMut(F) -> bool,
    ) -> Result<F, ReachError> {
        let mut backoff = Backoff::new(self.deadline);
        // `ended` is reported one round late: a peer may store its last flag and then leave, so the flag must
        // be loaded once more after the peer was found gone.
        let mut ended = Ok(());
        loop {
            let flag = own.load(offset)?;
            if enough(flag) {
                return Ok(flag);
            }
            ended?;
            ended = match backoff.pause()? {
                Pause::Spun => Ok(()),
                Pause::Rested => self.look().map(drop),
            };
        }
    }

    /// Returns whether the memory is mapped by now and the peer grants some right to it.
    fn look(&mut self) -> Result<bool, ReachError> {
        self.core.get_mut()?.is_reachable(self.qp, self.memory)
    }

    fn reach(&mut self, offset: usize, len: usize, reach: PeerOp<'_>) -> Result<u64, ReachError> {
        let core = self.core.get_mut()?;
        core.access_peer(self.qp, self.memory, (offset, len), (reach, self.hint), self.deadline)
    }
}

impl fmt::Debug for PeerSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerSlice").field("memory", &self.memory).finish_non_exhaustive()
    }
}
