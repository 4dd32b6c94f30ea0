//! Shared exports: the registrations of a device that other processes of this host can map.
//!
//! They are the table of keys, which peers read, and the memories that its keys name. Each entry of a key has a
//! *serial* of its own. A mapped writer names the serial in its writer slot while it copies, so this process can tell
//! which registration a writer is at.
//!
//! # Replacing pages
//!
//! A writer that is stopped in the middle of a copy could write when it resumes, after the memory was given back. So
//! its pages are replaced by others with the same bytes, in three steps:
//!
//! 1. [`pause`](SharedExports::pause): every key of the memory gets a new serial, so that a writer that has looked the
//!    key up before finds its serial stale, and the version [`PAUSED_VERSION`], which nobody has mapped, so that new
//!    writers wait.
//! 2. The caller waits until only stopped writers are at the memory.
//! 3. [`replace`](SharedExports::replace): the pages that they are at are replaced. Every key gets yet another serial,
//!    and the version of the new pages, which peers map before they go on.
//!
//! A stopped writer that resumes finishes into the old pages, which nobody reads. It checks its serial before it
//! reports completion, so it does not report this write as done.

#![expect(unsafe_code, reason = "replaces pages under memory that is registered")]

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Instant;

use super::engine::keys::{Identity, Registered};
use super::wire::{Announcement, Chunk, Export, MappedKeys, PAUSED_VERSION, WRITER_CHUNK};
use crate::Access;
use crate::memory::{Backing, Irreplaceable, Pages, Patch};

/// The keys and memories of a device that peers of this host can map.
#[derive(Debug)]
pub(super) struct SharedExports {
    /// The table that peers read.
    pub(super) table: MappedKeys,
    /// Every key, until no writer can be at its registration any more; so a revoked one, too.
    pub(super) keys: HashMap<u32, ExportedKey, BuildHasherDefault<Identity>>,
    /// Every memory that a key names, by its id.
    memories: HashMap<u64, ExportedMemory, BuildHasherDefault<Identity>>,
    /// The last serial that was given out.
    serials: u64,
}

/// A key and its registration.
#[derive(Debug)]
pub(super) struct ExportedKey {
    pub(super) export: Export,
    /// Earlier serials of the registration that writers may still be at.
    former_serials: Vec<u64>,
    /// The registration is revoked, and its owner waits for the writers.
    pub(super) revoked: bool,
    /// This key has announced its memory, which stays announced for as long as the key stands. Spares most receives the
    /// look-up of the memory.
    announced: bool,
}

/// A memory that keys name.
#[derive(Debug)]
struct ExportedMemory {
    backing: Backing,
    /// Keys that name the memory, revoked ones included.
    keys: usize,
    /// Keys that name the memory and are not revoked.
    standing: usize,
    /// Whether the memory is announced to peers.
    announced: bool,
    /// When the memory was paused: new writers wait since then.
    paused: Option<Instant>,
}

impl SharedExports {
    /// Makes an empty table.
    ///
    /// # Errors
    ///
    /// The kernel has no memory, descriptors or mappings left.
    pub(super) fn new() -> io::Result<Self> {
        let table = MappedKeys::create()?;
        Ok(Self { table, keys: HashMap::default(), memories: HashMap::default(), serials: 0 })
    }

    /// Whether `key` may be inserted. If it may not, the caller must draw another: two keys never share a slot of the
    /// table.
    pub(super) fn is_free(&self, key: u32) -> bool {
        self.table.is_free(key) && !self.keys.contains_key(&key)
    }

    /// Adds a registration of the bytes of `backing` from that offset on, or, without one, of memory that nobody can
    /// map.
    ///
    /// Returns the memory to be announced to peers, if the registration grants them a right and is the first of its
    /// memory to do so.
    pub(super) fn insert(
        &mut self,
        key: u32,
        registered: Registered,
        backing: Option<(&Backing, u64)>,
    ) -> Option<Announcement> {
        let (memory, version, offset) =
            backing.map_or((0, 0, 0), |(backing, offset)| (backing.id, backing.pages.version(), offset));
        self.serials += 1;
        let registered = Registered { serial: self.serials, ..registered };
        let export = Export { key, registered, memory, version, offset };
        if !self.table.insert(&export) {
            crate::log::error!("a key was drawn whose slot of the key table is taken; peers cannot use it");
        }
        self.keys.insert(
            key,
            ExportedKey { export, former_serials: Vec::new(), revoked: false, announced: false },
        );
        let (backing, _) = backing?;
        let record = self.memories.entry(backing.id).or_insert_with(|| ExportedMemory {
            backing: backing.clone(),
            keys: 0,
            standing: 0,
            announced: false,
            paused: None,
        });
        record.keys += 1;
        record.standing += 1;
        let grants_peers = registered.access.is_remote() || registered.access.contains(Access::WINDOW);
        if grants_peers { self.announce(key) } else { None }
    }

    /// Notes that peers need the memory of `key`, for instance because a receive was posted into it. Returns the
    /// memory to be announced, the first time.
    pub(super) fn announce(&mut self, key: u32) -> Option<Announcement> {
        let entry = self.keys.get_mut(&key).filter(|entry| !entry.revoked && !entry.announced)?;
        entry.announced = true;
        let record = self.memories.get_mut(&entry.export.memory)?;
        let first = !std::mem::replace(&mut record.announced, true);
        first.then(|| record.announcement())
    }

    /// Revokes the registration of `key`. Returns the memory that peers must forget, if this was its last key.
    ///
    /// Writers may still be at the registration; its entry stays until the caller knows that none is and calls
    /// [`forget`](Self::forget).
    pub(super) fn revoke(&mut self, key: u32) -> Option<u64> {
        let entry = self.keys.get_mut(&key).filter(|entry| !entry.revoked)?;
        self.table.remove(key, entry.export.registered.serial);
        entry.revoked = true;
        let id = entry.export.memory;
        let record = self.memories.get_mut(&id)?;
        record.standing -= 1;
        (record.standing == 0 && std::mem::take(&mut record.announced)).then_some(id)
    }

    /// Removes the entry of the revoked `key`, because no writer is at its registration any more.
    pub(super) fn forget(&mut self, key: u32) {
        let Some(entry) = self.keys.remove(&key) else { return };
        if let Some(record) = self.memories.get_mut(&entry.export.memory) {
            record.keys -= 1;
            if record.keys == 0 {
                self.memories.remove(&entry.export.memory);
            }
        }
    }

    /// Returns every announced memory, for a new peer.
    pub(super) fn announced(&self) -> Vec<Announcement> {
        let record = self.memories.values().filter(|record| record.announced);
        record.map(ExportedMemory::announcement).collect()
    }
}

impl ExportedMemory {
    /// The announcement for a new peer, with every page replacement so far.
    fn announcement(&self) -> Announcement {
        let Backing { id, bytes, memfd, pages } = &self.backing;
        Announcement { id: *id, len: *bytes, memfd: Arc::clone(memfd), patches: pages.patches(0) }
    }
}

impl ExportedKey {
    /// Every serial under which a writer may be at the registration.
    fn serials(&self) -> impl Iterator<Item = u64> {
        self.former_serials.iter().copied().chain([self.export.registered.serial])
    }
}

impl SharedExports {
    /// Finds the key whose registration has, or had, this serial; `None` if there is none, so that a writer with this
    /// serial can do no harm.
    pub(super) fn owner_of(&self, serial: u64) -> Option<&ExportedKey> {
        self.keys.values().find(|entry| entry.serials().any(|record| record == serial))
    }

    /// Every serial under which a writer may be at the registration of `key`; none where no writer can map the memory,
    /// so that nobody waits for one that only says that it is there.
    pub(super) fn serials(&self, key: u32) -> impl Iterator<Item = u64> {
        let mapped = self.keys.get(&key).filter(|entry| entry.export.memory != 0);
        mapped.into_iter().flat_map(ExportedKey::serials)
    }

    /// The id of the memory that `key` names.
    pub(super) fn memory_of(&self, key: u32) -> Option<u64> {
        self.keys.get(&key).map(|entry| entry.export.memory)
    }

    /// Pauses a memory, so that new writers wait. Returns since when it is paused; `None` when no standing key lets a
    /// writer in anyway.
    ///
    /// # Errors
    ///
    /// The pages of the memory cannot be replaced, so that pausing would lead nowhere.
    pub(super) fn pause(&mut self, now: Instant, memory: u64) -> Result<Option<Instant>, Irreplaceable> {
        let Some(record) = self.memories.get_mut(&memory) else { return Ok(None) };
        if record.paused.is_some() {
            return Ok(record.paused);
        }
        let stands = record.standing > 0;
        record.backing.pages.check(1, !stands)?;
        if !stands {
            return Ok(None);
        }
        record.paused = Some(now);
        self.reenter(memory, PAUSED_VERSION);
        Ok(Some(now))
    }

    /// Whether a memory is paused.
    pub(super) fn is_paused(&self, memory: u64) -> bool {
        self.memories.get(&memory).is_some_and(|record| record.paused.is_some())
    }

    /// Ends the pause of a memory: writers may come again, to the pages of the current version.
    pub(super) fn resume(&mut self, memory: u64) {
        if let Some(record) = self.memories.get_mut(&memory)
            && record.paused.take().is_some()
        {
            let version = record.backing.pages.version();
            self.reenter(memory, version);
        }
    }

    /// Replaces the pages of the chunks that stopped writers are at, all of one memory, and ends its pause. The caller
    /// has made sure that no other writer is at the memory.
    ///
    /// Returns the patches that peers must map, if the memory is announced.
    ///
    /// # Errors
    ///
    /// Some pages could not be replaced. Others may have been: the patches are valid in any case, and must be sent.
    pub(super) fn replace(
        &mut self,
        memory: u64,
        chunks: &[Chunk],
    ) -> (Vec<Patch>, Result<(), Irreplaceable>) {
        let ranges = self.ranges(memory, chunks);
        let Some(record) = self.memories.get_mut(&memory) else { return (Vec::new(), Ok(())) };
        let before = record.backing.pages.version();
        let any_key = self.keys.values().find(|entry| entry.export.memory == memory);
        let base = any_key.and_then(|entry| {
            let Export { registered, offset, .. } = &entry.export;
            NonNull::new(std::ptr::with_exposed_provenance_mut((registered.addr - offset) as usize))
        });
        let replaced = ranges.and_then(|ranges| {
            let owned = record.standing == 0;
            record.backing.pages.check(ranges.len(), owned)?;
            let base = base.ok_or(Irreplaceable::Unknown)?;
            // SAFETY: a key of the memory is in `keys`, so the memory is registered and stays mapped at `base` for the
            // call. The caller holds the fabric's lock, under which this process writes it; a copy into a `Region`
            // holds the lock of `pages`, and so does the first use of a part as a slice that can be written. The only
            // other writers are the stopped ones, whose pages these are.
            unsafe { record.backing.pages.replace(base, &ranges, owned) }
        });
        let told = if record.announced { record.backing.pages.patches(before) } else { Vec::new() };
        self.resume(memory);
        if replaced.is_ok() {
            for entry in self.keys.values_mut().filter(|entry| entry.export.memory == memory) {
                entry.former_serials.clear();
            }
        }
        (told, replaced)
    }

    /// The whole pages that the chunks lie in, sorted and without overlaps.
    ///
    /// A chunk is read from a slot that the peer wrote, so a range that no honest writer names is refused.
    fn ranges(&self, memory: u64, chunks: &[Chunk]) -> Result<Vec<Range<u64>>, Irreplaceable> {
        let mut ranges = Vec::with_capacity(chunks.len());
        for Chunk { serial, begin, end } in chunks {
            let entry = self.owner_of(*serial);
            let registered = entry.filter(|entry| entry.export.memory == memory).map(|it| it.export);
            let within = registered.and_then(|Export { registered, offset, .. }| {
                let start = begin.checked_sub(registered.addr)?;
                let end = end.checked_sub(registered.addr)?;
                let sound = start < end && end <= registered.len && end - start <= WRITER_CHUNK;
                sound.then_some(start + offset..end + offset)
            });
            ranges.push(Pages::around(within.ok_or(Irreplaceable::Unknown)?));
        }
        ranges.sort_by_key(|range| range.start);
        ranges.dedup_by(|next, range| {
            let meet = next.start <= range.end;
            range.end = if meet { range.end.max(next.end) } else { range.end };
            meet
        });
        Ok(ranges)
    }

    /// Gives every standing key of a memory a new serial and this version. Writers may still be at the old serials.
    fn reenter(&mut self, memory: u64, version: u32) {
        for entry in self.keys.values_mut().filter(|it| it.export.memory == memory && !it.revoked) {
            self.serials += 1;
            entry.former_serials.push(entry.export.registered.serial);
            entry.export.registered.serial = self.serials;
            entry.export.version = version;
            self.table.renew(&entry.export);
        }
    }
}

#[cfg(test)]
mod tests;
