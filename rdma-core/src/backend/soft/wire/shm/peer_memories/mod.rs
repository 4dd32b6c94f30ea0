//! The memories of one peer that are mapped here, by the identifiers that the peer gave them.

#![expect(unsafe_code, reason = "vouches for addresses that another thread may use")]

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ptr::NonNull;
use std::sync::Arc;

use super::segment::Segment;
use crate::backend::soft::engine::keys::Identity;

/// The mapped memories of one peer.
#[derive(Debug, Default)]
pub(crate) struct PeerMemories {
    by_id: HashMap<u64, Arc<Segment>, BuildHasherDefault<Identity>>,
    /// The mapping that was found last. Requests use the same memory again and again, and this saves the hash lookup.
    /// [`add`](Self::add) and [`remove`](Self::remove) must clear it.
    last: Cell<Option<(u64, CachedMapping)>>,
}

/// Address, length and access of a mapping, copied so that a hit follows no pointer.
#[derive(Debug, Clone, Copy)]
struct CachedMapping {
    /// Version of the pages when the mapping was found; the pages may be later ones by now.
    version: u32,
    base: NonNull<u8>,
    len: u64,
    writable: bool,
}

// SAFETY: the pointer is into a mapping that `PeerMemories` keeps, which has no thread affinity, so it may move to
// another thread with it.
unsafe impl Send for CachedMapping {}

impl PeerMemories {
    /// Adds a memory, and returns the one that had the same identifier before.
    pub(crate) fn add(&mut self, id: u64, segment: Arc<Segment>) -> Option<Arc<Segment>> {
        self.last.set(None);
        self.by_id.insert(id, segment)
    }

    /// Returns the memory of that identifier.
    pub(crate) fn get(&self, id: u64) -> Option<&Arc<Segment>> {
        self.by_id.get(&id)
    }

    /// Removes the memory of that identifier, and returns it.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Arc<Segment>> {
        self.last.set(None);
        self.by_id.remove(&id)
    }

    /// Whether the memory is mapped, with that version of its pages or a later one.
    ///
    /// A later version also serves a request that names an earlier one: the owner announces a version only once it
    /// has those pages itself and no registration of an earlier version is current. So
    /// [`WriterSlot::enter`](super::writer_slot::WriterSlot::enter) turns away a writer that found such a
    /// registration before it touches a byte.
    pub(super) fn has(&self, id: u64, version: u32) -> bool {
        self.by_id.get(&id).is_some_and(|segment| segment.version() >= version)
    }

    /// Returns the address of `len` bytes from `offset` on in that version of the memory; `None` if they are not
    /// mapped, or if they are to be `written` and the mapping is read-only.
    #[inline(always)]
    pub(super) fn locate(
        &self,
        (id, version): (u64, u32),
        offset: u64,
        len: u32,
        written: bool,
    ) -> Option<NonNull<u8>> {
        let mapping = self.find(id, version)?;
        // Checked: `offset` is computed from a table that the peer writes, and may be any number.
        let end = offset.checked_add(u64::from(len))?;
        if end > mapping.len || written && !mapping.writable {
            return None;
        }
        // `offset` is at most the mapping's length, so it fits a `usize`, and the address is not 0.
        NonNull::new(mapping.base.as_ptr().wrapping_add(offset as usize))
    }

    /// Finds the memory with that version of its pages or a later one.
    #[inline(always)]
    fn find(&self, id: u64, version: u32) -> Option<CachedMapping> {
        match self.last.get() {
            // A cached version that is too old is looked up again: patches do not clear the cache.
            Some((last, mapping)) if last == id && mapping.version >= version => Some(mapping),
            _ => self.find_slow(id, version),
        }
    }

    /// Looks the memory up in the table, and caches it.
    #[inline(never)]
    fn find_slow(&self, id: u64, version: u32) -> Option<CachedMapping> {
        let segment = self.by_id.get(&id).filter(|segment| segment.version() >= version)?;
        let (base, len, writable) = (segment.as_ptr(), segment.len() as u64, segment.is_writable());
        let mapping = CachedMapping { version: segment.version(), base, len, writable };
        self.last.set(Some((id, mapping)));
        Some(mapping)
    }
}

#[cfg(test)]
mod tests;
