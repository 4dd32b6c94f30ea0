//! Other pages in place of those that a writer is at which does not go on.
//!
//! First its memory is paused: every registration of it gets another serial, so that whoever has found it before finds that it
//! does not stand, and a version that nobody has mapped, so that whoever comes waits. Once nobody but those that do not go on
//! is at it, what they are at gets other pages, and the registrations yet another serial and the version that peers are told
//! of. Those that go on later write to pages that nobody sees; they look whether the registration stands before they tell
//! that they are done.

#![expect(unsafe_code, reason = "vouches for memory that is registered")]

use std::ops::Range;
use std::ptr::NonNull;
use std::time::Instant;

use super::{Export, Named, SharedExports};
use crate::Access;
use crate::backend::soft::wire::{Chunk, PAUSED_VERSION, WRITER_CHUNK};
use crate::memory::{Irreplaceable, Pages, Patch};

/// Whose registration a chunk is of.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Owned {
    pub(in super::super) memory: u64,
    /// That of the registration.
    pub(in super::super) access: Access,
    /// Its owner waits for its end.
    pub(in super::super) revoked: bool,
}

impl Named {
    fn serials(&self) -> impl Iterator<Item = u64> {
        self.former.iter().copied().chain([self.export.registered.serial])
    }
}

impl SharedExports {
    /// The registration that a writer is at by that serial; `None` when it can do it no harm.
    pub(in super::super) fn owner_of(&self, serial: u64) -> Option<Owned> {
        let Named { export, revoked, .. } = self.named_by(serial)?;
        Some(Owned { memory: export.memory, access: export.registered.access, revoked: *revoked })
    }

    fn named_by(&self, serial: u64) -> Option<&Named> {
        self.named.values().find(|named| named.serials().any(|known| known == serial))
    }

    /// By which serial, and with which version of its pages, the registration of `key` is entered.
    #[cfg(test)]
    pub(in super::super) fn entered(&self, key: u32) -> (u64, u32) {
        let export = &self.named[&key].export;
        (export.registered.serial, export.version)
    }

    /// By which serials writers may be at the registration of `key`.
    pub(in super::super) fn serials(&self, key: u32) -> impl Iterator<Item = u64> {
        self.named.get(&key).into_iter().flat_map(Named::serials)
    }

    /// The memory that `key` names.
    pub(in super::super) fn memory_of(&self, key: u32) -> Option<u64> {
        self.named.get(&key).map(|named| named.export.memory)
    }

    /// Has whoever comes to a memory wait; since when they do. `None` when nobody can come.
    ///
    /// # Errors
    ///
    /// When pages of it cannot be replaced.
    pub(in super::super) fn pause(
        &mut self,
        now: Instant,
        memory: u64,
    ) -> Result<Option<Instant>, Irreplaceable> {
        let Some(known) = self.memories.get_mut(&memory) else { return Ok(None) };
        if known.paused.is_some() {
            return Ok(known.paused);
        }
        let stands = known.standing > 0;
        known.pages.check(1, !stands)?;
        if !stands {
            return Ok(None);
        }
        known.paused = Some(now);
        self.reenter(memory, PAUSED_VERSION);
        Ok(Some(now))
    }

    /// Whether whoever comes to a memory has to wait.
    pub(in super::super) fn is_paused(&self, memory: u64) -> bool {
        self.memories.get(&memory).is_some_and(|known| known.paused.is_some())
    }

    /// Lets them come again: the pages that were not replaced are what they were.
    pub(in super::super) fn resume(&mut self, memory: u64) {
        if let Some(known) = self.memories.get_mut(&memory)
            && known.paused.take().is_some()
        {
            let version = known.pages.version();
            self.reenter(memory, version);
        }
    }

    /// Replaces the pages of chunks that writers are at, all of them of the memory; what peers are to be told, if they are
    /// told of the memory. Nobody else is at it.
    ///
    /// # Errors
    ///
    /// When that cannot be. Some of them may be replaced then, and are told as well.
    pub(in super::super) fn replace(
        &mut self,
        memory: u64,
        chunks: &[Chunk],
    ) -> (Vec<Patch>, Result<(), Irreplaceable>) {
        let ranges = self.ranges(memory, chunks);
        let Some(known) = self.memories.get_mut(&memory) else { return (Vec::new(), Ok(())) };
        let before = known.pages.version();
        let of_it = self.named.values().find(|named| named.export.memory == memory);
        let base = of_it.and_then(|named| {
            let Export { registered, offset, .. } = &named.export;
            NonNull::new(std::ptr::with_exposed_provenance_mut((registered.addr - offset) as usize))
        });
        let replaced = ranges.and_then(|ranges| {
            known.pages.check(ranges.len(), true)?;
            let base = base.ok_or(Irreplaceable::Unknown)?;
            // SAFETY: a registration of the memory is known of, and it is mapped for as long. The lock of the device is
            // held, under which it is written; whoever else writes it holds its pages, or is one of those writers.
            unsafe { known.pages.replace(base, &ranges) }
        });
        let told = if known.announced { known.pages.patches(before) } else { Vec::new() };
        self.resume(memory);
        if replaced.is_ok() {
            for named in self.named.values_mut().filter(|named| named.export.memory == memory) {
                named.former.clear();
            }
        }
        (told, replaced)
    }

    /// The whole pages that the chunks are in, without overlaps.
    fn ranges(&self, memory: u64, chunks: &[Chunk]) -> Result<Vec<Range<u64>>, Irreplaceable> {
        let mut ranges = Vec::with_capacity(chunks.len());
        for Chunk { serial, begin, end } in chunks {
            let named = self.named_by(*serial);
            let registered = named.filter(|named| named.export.memory == memory).map(|it| it.export);
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

    /// Enters the registrations of a memory again, with that version of its pages. By the serials that they had writers may
    /// be at it still.
    fn reenter(&mut self, memory: u64, version: u32) {
        for named in self.named.values_mut().filter(|it| it.export.memory == memory && !it.revoked) {
            self.serials += 1;
            named.former.push(named.export.registered.serial);
            named.export.registered.serial = self.serials;
            named.export.version = version;
            self.table.renew(&named.export);
        }
    }
}
