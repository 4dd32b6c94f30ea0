//! The keys by which the peer of a link reaches a pool: keys of the link alone where the device makes them cheaply, and
//! those of the regions elsewhere.

use rdma_core::error::{CloseError, RegisterError};
use rdma_core::{Access, Deadline, Exported, ProtectionDomain, RemoteMemory};

use super::{Pieces, Pool, PoolUse};

/// The keys of one link over the bytes of its pool. They end with [`end`](Self::end), or when they are dropped.
#[derive(Debug)]
pub(in crate::kv) struct LinkKeys {
    /// The keys that have not ended; none where the peer has those of the regions, or no key at all.
    left: Vec<Exported>,
    /// Whether the peer has the keys of the regions, which other links and pools share and no link ends.
    shared: bool,
}

/// The memory of a pool as its peer names it, if the peer may use it, and the keys by which it does so.
pub(in crate::kv) type Opened = (Option<Pieces<RemoteMemory>>, LinkKeys);

impl PoolUse {
    /// The rights of the peer of a link to a pool of this use; `None` when the peer has no business there.
    fn of_the_peer(self) -> Option<Access> {
        match self {
            Self::Source => None,
            Self::SourceToPull => Some(Access::REMOTE_READ),
            Self::Destination => Some(Access::LOCAL_WRITE | Access::REMOTE_WRITE),
        }
    }
}

impl Pool {
    /// Opens the pool to the peer of a new link in that domain.
    ///
    /// Tensors that lie side by side in one region have one key together, so that a pool takes as few as it can.
    ///
    /// # Errors
    ///
    /// The device has no key left. No key is left behind then.
    pub(in crate::kv) fn open_to_peer(&self, pd: &ProtectionDomain) -> Result<Opened, RegisterError> {
        let Some(rights) = self.purpose().of_the_peer() else { return Ok((None, LinkKeys::none())) };
        let memory = self.remote().with_lengths(self.layout());
        if pd.export_pins() {
            return Ok((Some(memory), LinkKeys { left: Vec::new(), shared: true }));
        }
        let (mut keys, mut opened) = (LinkKeys::none(), Vec::with_capacity(memory.iter().len()));
        let pieces: Vec<_> = self.inner.memory.iter().zip(memory.iter()).collect();
        // A key names one region, so two pieces with one key lie in the same region.
        for run in
            pieces.chunk_by(|(_, one), (_, next)| one.rkey == next.rkey && one.addr + one.len == next.addr)
        {
            let Some(((region, start), _)) = run.first() else { continue };
            // The cast is exact: a pool has at most `isize::MAX` bytes.
            let len = run.iter().map(|(_, piece)| piece.len).sum::<u64>() as usize;
            let key = pd.export_range(region, *start..start + len, rights)?;
            let rkey = key.remote().rkey;
            opened.extend(run.iter().map(|(_, piece)| RemoteMemory { rkey, ..**piece }));
            keys.left.push(key);
        }
        Ok((Some(memory.with(opened)), keys))
    }

    /// The remote addresses of the pieces, and the keys of their regions.
    fn remote(&self) -> Pieces<RemoteMemory> {
        self.inner.memory.map(|(region, start)| {
            let remote = region.remote();
            RemoteMemory { addr: remote.addr + *start as u64, ..remote }
        })
    }
}

impl LinkKeys {
    /// No keys, for a peer that may not use the pool, and for a link whose keys another value has.
    pub(in crate::kv) fn none() -> Self {
        Self { left: Vec::new(), shared: false }
    }

    /// Whether all that the peer may do with the pool ends with the link.
    pub(in crate::kv) fn are_own(&self) -> bool {
        !self.shared
    }

    /// Ends the keys: after `Ok` no access by one of them is under way, and none comes later.
    ///
    /// # Errors
    ///
    /// The device refused, or a stopped peer is at the memory. Those keys stay, and the call can be repeated.
    pub(in crate::kv) fn end(&mut self, deadline: Deadline) -> Result<(), CloseError> {
        let mut ended = Ok(());
        let left = std::mem::take(&mut self.left).into_iter();
        self.left = left
            .filter_map(|key| key.revoke(deadline).err())
            .map(|refused| {
                ended = Err(refused.error);
                refused.object
            })
            .collect();
        ended
    }
}
