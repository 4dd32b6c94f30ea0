//! The life of a pool's memory: allocated, handed over by the caller or part of a region; attached to the worker
//! once; given back by `close`.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use rdma_core::error::RegisterError;
use rdma_core::memory::OwnProcess;
use rdma_core::{Access, Attached, AttachedRange, Deadline, Memory, ProtectionDomain, Refused, Region};

use super::{Inner, Pieces, Pool, PoolUse};
use crate::engine::{Engine, EngineState};
use crate::kv::PoolError;
use crate::kv::layout::Layout;
use crate::kv::lease::Holds;
use crate::link::AttachedOnRails;
use crate::log::Held;

/// Pause between two looks at a pool that is being closed: 1 ms, short for the caller and little work for the
/// processor.
const CLOSE_PAUSE: Duration = Duration::from_millis(1);

/// The attachment of a pool to the engine's worker, and its number of users.
#[derive(Debug, Default)]
pub(super) struct Attachments {
    attached: Option<Pieces<(AttachedOnRails, usize)>>,
    users: usize,
}

/// An attached pool, from which writes and into which reads are posted.
#[derive(Debug, Clone)]
pub(in crate::kv) struct AttachedPool(Pieces<(Attached, usize)>);

impl PoolUse {
    /// The access rights that a region needs for a pool of this use.
    ///
    /// [`Pool::allocate`] and [`Pool::register`] give memory of the software device `LOCAL_WRITE` alone, because each
    /// link has keys of its own there: until a link needs it, no peer of this host maps such memory.
    #[must_use]
    pub fn access(self) -> Access {
        match self {
            Self::Source => Access::LOCAL_WRITE,
            Self::SourceToPull => Access::LOCAL_WRITE | Access::REMOTE_READ,
            Self::Destination | Self::Both => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Self::BothToPull => Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        }
    }
}

impl PoolUse {
    /// The access rights of memory that a pool registers by itself: none for peers where links have keys of their own.
    pub(super) fn access_on(self, engine: &Engine) -> Access {
        if engine.pds().any(ProtectionDomain::export_pins) { self.access() } else { Access::LOCAL_WRITE }
    }

    /// The use of such a pool at the prefill end of a link: [`Source`](Self::Source) or
    /// [`SourceToPull`](Self::SourceToPull); `None` when no blocks leave it.
    pub(in crate::kv) fn at_prefill(self) -> Option<Self> {
        match self {
            Self::Source | Self::Both => Some(Self::Source),
            Self::SourceToPull | Self::BothToPull => Some(Self::SourceToPull),
            Self::Destination => None,
        }
    }

    /// The use of such a pool at the decode end of a link: [`Destination`](Self::Destination); `None` when no blocks
    /// come to it.
    pub(in crate::kv) fn at_decode(self) -> Option<Self> {
        match self {
            Self::Destination | Self::Both | Self::BothToPull => Some(Self::Destination),
            Self::Source | Self::SourceToPull => None,
        }
    }

    /// The number of the use in blobs, which tell the use at one end of a link. No end has a use for both, so these
    /// have no number, and 0 is refused by whoever reads it.
    pub(in crate::kv) fn code(self) -> u8 {
        match self {
            Self::Source => 1,
            Self::Destination => 2,
            Self::SourceToPull => 3,
            Self::Both | Self::BothToPull => 0,
        }
    }

    /// The use of that number.
    pub(in crate::kv) fn from_code(code: u8) -> Option<Self> {
        [Self::Source, Self::Destination, Self::SourceToPull]
            .into_iter()
            .find(|purpose| purpose.code() == code)
    }
}

impl Pool {
    /// Registers zeroed memory for `layout` on the engine's device.
    ///
    /// # Errors
    ///
    /// [`PoolError::Register`] when the memory cannot be allocated, or a limit of the system or of the device
    /// refuses; the error names the limit.
    pub fn allocate(engine: &Engine, layout: &Layout, purpose: PoolUse) -> Result<Self, PoolError> {
        // The cast is exact: a layout has at most `isize::MAX` bytes.
        let memory = Memory::allocate(layout.bytes() as usize)?;
        Self::register(engine, memory, layout, purpose).map_err(|refused| refused.error)
    }

    /// Registers memory of the caller for `layout` on the engine's device. Bytes behind the layout stay unused.
    ///
    /// The blocks hold what the memory holds. [`close`](Self::close) gives the memory back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_collective::engine::{Engine, EngineOptions};
    /// use rdma_collective::kv::layout::{Layout, Model, Order};
    /// use rdma_collective::kv::{Pool, PoolUse};
    /// use rdma_core::{Deadline, Device, Memory, SoftOptions};
    ///
    /// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 2, Order::LayerBlockPart))?;
    /// let cache = vec![7_u8; layout.bytes() as usize];
    /// let pool = Pool::register(&engine, Memory::from(cache), &layout, PoolUse::Source)?;
    /// let mut byte = [0];
    /// pool.read(60, 1, 9, &mut byte)?;
    /// assert_eq!(byte, [7]);
    /// let mut regions = pool.close(Deadline::after(Duration::from_secs(1)))?;
    /// let region = regions.pop().expect("it has one");
    /// let cache: Vec<u8> = region.deregister()?.into_owner().expect("it was a Vec");
    /// assert_eq!(cache.len() as u64, layout.bytes());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The memory comes back with [`PoolError::Layout`] when it is shorter than the layout, and with
    /// [`PoolError::Register`] when a limit of the system or of the device refuses; the error names the limit.
    pub fn register(
        engine: &Engine,
        memory: Memory,
        layout: &Layout,
        purpose: PoolUse,
    ) -> Result<Self, Refused<Memory, PoolError>> {
        if let Err(error) = layout.check_memory(memory.len() as u64) {
            return Err(Refused { object: memory, error: error.into() });
        }
        let region = engine
            .register(memory, purpose.access_on(engine))
            .map_err(|refused| refused.map_err(Into::into))?;
        Ok(Self::new(Pieces::one((region, 0)), layout, purpose))
    }

    /// Makes a pool in memory that is already [registered](Engine::register) on the engine, from byte `offset` of the
    /// region on.
    ///
    /// Several pools fit into one region, for example those of a draft model and its target. Registrations are
    /// limited on some devices and slow on all. Pools that overlap overwrite each other; nothing checks that.
    ///
    /// ```
    /// use rdma_collective::engine::{Engine, EngineOptions};
    /// use rdma_collective::kv::layout::{Layout, Model, Order};
    /// use rdma_collective::kv::{Pool, PoolUse};
    /// use rdma_core::{Device, Memory, SoftOptions};
    ///
    /// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// let layout = Layout::new(Model::DEEPSEEK_V3.shape(16, 2, Order::LayerBlockPart))?;
    /// let bytes = layout.bytes() as usize;
    /// let region = engine.register(Memory::allocate(2 * bytes)?, PoolUse::Destination.access())?;
    /// let target = Pool::in_region(&engine, &region, 0, &layout, PoolUse::Destination)?;
    /// let draft = Pool::in_region(&engine, &region, bytes, &layout, PoolUse::Destination)?;
    /// assert!(Pool::in_region(&engine, &region, bytes + 1, &layout, PoolUse::Destination).is_err());
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`PoolError::Layout`] when the layout does not fit behind `offset`, [`PoolError::Access`] when the region
    /// lacks a right that the use needs, [`PoolError::OtherEngine`] when another engine registered the region.
    pub fn in_region(
        engine: &Engine,
        region: &Region,
        offset: usize,
        layout: &Layout,
        purpose: PoolUse,
    ) -> Result<Self, PoolError> {
        layout.check_memory(region.len().saturating_sub(offset) as u64)?;
        check_region(engine, region, purpose)?;
        Ok(Self::new(Pieces::one((region.clone(), offset)), layout, purpose))
    }

    pub(super) fn new(memory: Pieces<(Region, usize)>, layout: &Layout, purpose: PoolUse) -> Self {
        let layout = layout.clone();
        let holds = OwnProcess::new(RwLock::new(Holds::new(layout.clone())));
        let attachments = Mutex::new(Attachments::default());
        Self { inner: Arc::new(Inner { memory, attachments, layout, purpose, holds }) }
    }

    /// Closes the pool and returns its regions, each of which [gives its memory back](Region::deregister): one, unless
    /// the pool was made of [tensors](Self::register_tensors) or of [several regions](Self::in_regions).
    ///
    /// The call waits until nothing uses the pool any more: other handles, [shares](Self::share), the ends of links
    /// that were made with it, and their transfers. Drop those first.
    ///
    /// [Quarantined](super::HoldKind::Quarantined) blocks do not keep the pool open. Deregister the region then, and
    /// do not make a pool of it again, since the device may still write those blocks.
    ///
    /// # Errors
    ///
    /// The pool comes back with [`PoolError::InUse`] when something still uses it at the deadline.
    pub fn close(self, deadline: Deadline) -> Result<Vec<Region>, Refused<Self, PoolError>> {
        if let Err(forked) = self.inner.holds.get() {
            return Err(Refused { object: self, error: RegisterError::from(forked).into() });
        }
        let mut inner = self.inner;
        loop {
            match Arc::try_unwrap(inner) {
                Ok(inner) => return Ok(inner.regions()),
                Err(shared) if deadline.expired() => {
                    let users = Arc::strong_count(&shared).saturating_sub(1);
                    return Err(Refused {
                        object: Self { inner: shared },
                        error: PoolError::InUse { users },
                    });
                }
                Err(shared) => inner = shared,
            }
            std::thread::sleep(CLOSE_PAUSE.min(deadline.remaining()));
        }
    }

    /// Attaches the pool to the workers on first use, and names it at that of a rail. Call [`detach`](Self::detach)
    /// once for each call.
    pub(in crate::kv) fn attach(&self, core: &mut EngineState, rail: usize) -> AttachedPool {
        let mut attachments = self.attachments();
        attachments.users += 1;
        let memory = &self.inner.memory;
        let attached = attachments
            .attached
            .get_or_insert_with(|| memory.map(|(region, start)| (core.attach(region), *start)));
        AttachedPool(attached.map(|(attached, start)| (attached.on(rail), *start)))
    }

    /// Takes back one [`attach`](Self::attach). The worker forgets the memory with the last user.
    pub(in crate::kv) fn detach(&self, core: &mut EngineState) {
        let mut attachments = self.attachments();
        attachments.users = attachments.users.saturating_sub(1);
        if attachments.users == 0
            && let Some(attached) = attachments.attached.take()
        {
            attached.iter().for_each(|(attached, _)| _ = core.detach(*attached));
        }
    }

    /// Whether the pool is registered in the protection domain of this engine.
    pub(in crate::kv) fn is_of(&self, engine: &Engine) -> bool {
        self.inner.memory.iter().all(|(region, _)| engine.pd().owns(region))
    }

    fn attachments(&self) -> Held<MutexGuard<'_, Attachments>> {
        Held::lock(|| self.inner.attachments.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    /// The regions, each once.
    fn regions(self) -> Vec<Region> {
        let mut seen = HashSet::new();
        let regions = self.memory.iter().map(|(region, _)| region);
        let name = |region: &Region| {
            let remote = region.remote();
            (remote.addr, remote.len, remote.rkey.0)
        };
        regions.filter(|region| seen.insert(name(region))).cloned().collect()
    }
}

/// Fails unless a region is one of the engine's and has the rights that the use needs.
pub(super) fn check_region(engine: &Engine, region: &Region, purpose: PoolUse) -> Result<(), PoolError> {
    let (needed, given) = (purpose.access(), region.access());
    if !given.contains(needed) {
        return Err(PoolError::Access { purpose, needed, given });
    }
    if !engine.pd().owns(region) {
        return Err(PoolError::OtherEngine);
    }
    Ok(())
}

impl AttachedPool {
    /// A range of the pool; the plan has checked that it is in bounds.
    #[inline]
    pub(in crate::kv) fn range(&self, offset: u64, len: u64) -> Option<AttachedRange> {
        let ((attached, start), at) = self.0.at(offset)?;
        // The casts are exact: a pool has at most `isize::MAX` bytes.
        Some(attached.range(start + at as usize, len as usize))
    }
}
