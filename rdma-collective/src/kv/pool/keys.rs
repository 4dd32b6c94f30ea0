//! The keys by which the peer of a link reaches a pool: keys of the link alone where the device makes them cheaply, and
//! those of the regions elsewhere. The peer of a strict link has keys of its grants alone.

use std::ops::Range;
use std::time::Duration;

use rdma_core::error::{CloseError, RegisterError};
use rdma_core::{Access, Deadline, Exported, ProtectionDomain, Region, RemoteKey, RemoteMemory};

use super::{Pieces, Pool, PoolUse};
use crate::kv::layout::Extent;

/// The keys of one link over the bytes of its pool, or of one grant over those of its blocks. They end with
/// [`end`](Self::end), or when they are dropped.
#[derive(Debug)]
pub(in crate::kv) struct PeerKeys {
    /// The keys that have not ended; none where the peer has those of the regions, or no key at all.
    left: Vec<Exported>,
    /// Whether the peer has the keys of the regions, which other links and pools share and no link ends.
    shared: bool,
}

/// The memory of a pool as its peer names it, if the peer may use it, and the keys by which it does so.
pub(in crate::kv) type Opened = (Option<Pieces<RemoteMemory>>, PeerKeys);

/// The bytes of some blocks in all layers, by the region that has them.
#[derive(Debug)]
pub(in crate::kv) struct BlockBytes(Vec<(Region, Vec<Range<usize>>)>);

/// Time that a peer which is just at the memory may take before its pages are replaced, or the blocks are quarantined:
/// 10 ms, which is short for whoever waits for the engine. A writer that runs leaves a chunk of 256 KiB in a fraction
/// of a millisecond.
const WITHIN: Duration = Duration::from_millis(10);

/// The rights of a peer that writes blocks.
const WRITTEN_BY_PEER: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

/// The key of a piece that the peer may not use. No device gives it.
const NO_KEY: RemoteKey = RemoteKey(0);

impl PoolUse {
    /// The rights of the peer of a link whose end uses its pool so; `None` when the peer has no business there.
    fn of_the_peer(self) -> Option<Access> {
        match self {
            Self::SourceToPull => Some(Access::REMOTE_READ),
            Self::Destination => Some(WRITTEN_BY_PEER),
            // No end of a link has a use for both.
            Self::Source | Self::Both | Self::BothToPull => None,
        }
    }
}

impl Pool {
    /// Opens the pool to the peer of a new link in that domain, whose end uses it so.
    ///
    /// Tensors that lie side by side in one region have one key together, so that a pool takes as few as it can.
    ///
    /// # Errors
    ///
    /// The device has no key left. No key is left behind then.
    pub(in crate::kv) fn open_to_peer(
        &self,
        pd: &ProtectionDomain,
        purpose: PoolUse,
    ) -> Result<Opened, RegisterError> {
        let Some(rights) = purpose.of_the_peer() else { return Ok((None, PeerKeys::none())) };
        let memory = self.remote(pd).with_lengths(self.layout());
        if pd.export_pins() {
            return Ok((Some(memory), PeerKeys { left: Vec::new(), shared: true }));
        }
        let (mut keys, mut opened) = (PeerKeys::none(), Vec::with_capacity(memory.iter().len()));
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

    /// Where the pool is, for the peer of a strict link, which gets its keys with each grant.
    pub(in crate::kv) fn without_keys(&self, pd: &ProtectionDomain) -> Pieces<RemoteMemory> {
        let memory = self.remote(pd).with_lengths(self.layout());
        memory.map(|piece| RemoteMemory { rkey: NO_KEY, ..*piece })
    }

    /// The bytes of blocks in all layers. Blocks that the pool does not have are left out.
    pub(in crate::kv) fn bytes_of(&self, blocks: &[u32]) -> BlockBytes {
        let mut regions: Vec<(Region, Vec<Range<usize>>)> = Vec::new();
        for Extent { offset, len } in self.layout().extents_of(blocks) {
            let Ok((region, at)) = self.place(offset) else { continue };
            // The cast is exact: a pool has at most `isize::MAX` bytes.
            let range = at..at + len as usize;
            let known = regions.iter_mut().rev().find(|(known, _)| known.rkey() == region.rkey());
            match known.map(|(_, ranges)| ranges) {
                Some(ranges) => match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                },
                None => regions.push((region.clone(), vec![range])),
            }
        }
        BlockBytes(regions)
    }

    /// Opens blocks, and nothing else of the pool, to the peer of a strict link: one key for each region. Returns the
    /// keys, and the number of the key of each piece of the pool.
    ///
    /// # Errors
    ///
    /// The device has no key left. No key is left behind then.
    pub(in crate::kv) fn open_blocks(
        &self,
        pd: &ProtectionDomain,
        bytes: BlockBytes,
    ) -> Result<(PeerKeys, Vec<u32>), RegisterError> {
        let (mut keys, mut by_region) = (PeerKeys::none(), Vec::with_capacity(bytes.0.len()));
        for (region, ranges) in bytes.0 {
            let key = pd.export_ranges(&region, ranges, WRITTEN_BY_PEER)?;
            by_region.push((region.rkey(), key.remote().rkey));
            keys.left.push(key);
        }
        let key = |(region, _): &(Region, usize)| {
            let found = by_region.iter().find(|(of, _)| *of == region.rkey());
            found.map_or(NO_KEY, |(_, key)| *key).0
        };
        Ok((keys, self.inner.memory.iter().map(key).collect()))
    }

    /// The remote addresses of the pieces, and the keys that their regions have in that domain.
    fn remote(&self, pd: &ProtectionDomain) -> Pieces<RemoteMemory> {
        self.inner.memory.map(|(region, start)| {
            let RemoteMemory { addr, len, .. } = region.remote();
            // Memory of an engine is registered in all its domains.
            let rkey = pd.remote(region).map_or(NO_KEY, |memory| memory.rkey);
            RemoteMemory { addr: addr + *start as u64, len, rkey }
        })
    }
}

impl PeerKeys {
    /// No keys, for a peer that may not use the pool, and for an owner whose keys another value has.
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
    pub(in crate::kv) fn end(&mut self) -> Result<(), CloseError> {
        let (mut ended, deadline) = (Ok(()), Deadline::after(WITHIN));
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
