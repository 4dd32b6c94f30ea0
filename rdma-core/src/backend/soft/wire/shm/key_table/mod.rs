//! The table of a device's registrations, where its peers look keys up.
//!
//! A key's index is its lowest bits. Keys are drawn from the system's random source, all but the low bits of a key
//! that renews another, and a key whose entry is taken is drawn again. An entry is valid while its serial is not 0.
//!
//! Readers take no lock. A writer that looked an entry up checks its serial once more before it touches the memory
//! (see [`writer_slot`](super::writer_slot)). The same check tells that it did not read half of one registration and
//! half of the next (a seqlock): serials are never used twice, and the next registration is written only after the
//! fence that follows the end of the last one. Models of it run under `cfg(loom)`.

#![expect(unsafe_code, reason = "vouches for a type that is made of atomics")]

use std::io;
use std::sync::Arc;

use rustix::mm::ProtFlags;

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use super::segment::Segment;
use super::shared_slice::{Shared, SharedSlice};
use super::writer_slot::fence_after_revoke;
use crate::Access;
use crate::backend::soft::engine::keys::{Domain, Registered};
use crate::backend::soft::limits::{KEY_PLACE_BITS, MAX_MR};

/// Entries of a table; a power of two, so that the low bits of a key are its index.
const ENTRIES: usize = 1 << KEY_PLACE_BITS;
/// At least half of the entries are free, so that drawing a key again ends soon.
const _: () = assert!(ENTRIES >= 2 * MAX_MR as usize);
/// Bytes of an entry: one cache line, so that a lookup costs one miss.
const ENTRY: usize = 64;
/// Version of pages that nobody can have mapped. A writer that finds it must wait for the next version, so nobody
/// begins to touch the memory while its pages are replaced.
pub(crate) const PAUSED_VERSION: u32 = u32::MAX;
/// Reads of an entry that changes while it is read. Only a peer that changes entries without end exceeds this; its
/// keys then name nothing.
const READS_MAX: u32 = 16;
/// Serial of an entry without a registration; zeroed memory is an empty table.
const NO_SERIAL: u64 = 0;

/// A registration as peers see it: its key, rights and range, and the position of its bytes in a memory that can be
/// mapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Export {
    pub(crate) key: u32,
    /// Rights, range and serial. The serial is not 0, and never used twice on the device.
    pub(crate) registered: Registered,
    /// Identifier of the memory within the owner's process; 0 for memory that cannot be mapped.
    pub(crate) memory: u64,
    /// Version of that memory's pages which a writer needs to have mapped.
    pub(crate) version: u32,
    /// Offset of the registration's first byte in that memory.
    pub(crate) offset: u64,
}

/// An entry of the table, written by the owner alone.
#[derive(Debug)]
#[repr(C, align(64))]
struct Entry {
    serial: AtomicU64,
    key: AtomicU32,
    access: AtomicU32,
    domain: AtomicU32,
    version: AtomicU32,
    addr: AtomicU64,
    len: AtomicU64,
    memory: AtomicU64,
    offset: AtomicU64,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(size_of::<Entry>() == ENTRY);

// SAFETY: every field is an integer atomic, so any bytes that a peer's segment holds are a valid value.
unsafe impl Shared for Entry {}

impl Entry {
    /// Publishes a registration in an empty entry.
    fn publish(&self, export: &Export) {
        let Export { key, registered, memory, version, offset } = export;
        self.key.store(*key, Ordering::Relaxed);
        self.access.store(registered.access.bits(), Ordering::Relaxed);
        self.domain.store(registered.domain.0, Ordering::Relaxed);
        self.version.store(*version, Ordering::Relaxed);
        self.addr.store(registered.addr, Ordering::Relaxed);
        self.len.store(registered.len, Ordering::Relaxed);
        self.memory.store(*memory, Ordering::Relaxed);
        self.offset.store(*offset, Ordering::Relaxed);
        // Last, and Release: a reader that sees this serial also sees the fields above.
        self.serial.store(registered.serial, Ordering::Release);
    }

    /// Publishes the registration under another serial, for another version of its pages. The entry is never empty
    /// meanwhile, because a writer that found it empty would refuse the request.
    ///
    /// A reader may combine the old serial with the new version. It then finds that the old serial is not current, or
    /// that it has not mapped that version.
    fn renew(&self, version: u32, serial: u64) {
        self.version.store(version, Ordering::Relaxed);
        self.serial.store(serial, Ordering::Release);
        fence_after_revoke();
    }

    /// Empties the entry: no writer is admitted to the registration any more.
    fn revoke(&self) {
        // The fence after this store also keeps the fields of the next registration behind it: a reader that sees one
        // of them and has its own fence then sees that the old serial is gone.
        self.serial.store(NO_SERIAL, Ordering::Relaxed);
        fence_after_revoke();
    }

    /// Reads the registration; `None` if there is none, or if it never stayed the same for as long as reading took.
    #[inline(always)]
    fn read(&self) -> Option<Export> {
        for _ in 0..READS_MAX {
            let export = self.read_once()?;
            if self.is_current(export.registered.serial) {
                return Some(export);
            }
        }
        None
    }

    /// Reads the entry without checking that it stayed the same meanwhile.
    #[inline]
    fn read_once(&self) -> Option<Export> {
        // Acquire pairs with the Release store of `publish`: the fields below are those of this serial or of a later
        // one, never of an earlier one.
        let serial = self.serial.load(Ordering::Acquire);
        if serial == NO_SERIAL {
            return None;
        }
        let registered = Registered {
            domain: Domain(self.domain.load(Ordering::Relaxed)),
            addr: self.addr.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
            access: Access::from_bits_retain(self.access.load(Ordering::Relaxed)),
            serial,
        };
        let export = Export {
            key: self.key.load(Ordering::Relaxed),
            registered,
            memory: self.memory.load(Ordering::Relaxed),
            version: self.version.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
        };
        // Keeps the second read of the serial, in `is_current`, behind the reads of the fields. An Acquire load there
        // would not: it orders only what comes after it.
        fence(Ordering::Acquire);
        Some(export)
    }

    #[inline]
    fn is_current(&self, serial: u64) -> bool {
        self.serial.load(Ordering::Relaxed) == serial
    }
}

/// The key table of a device of this process.
#[derive(Debug)]
pub(crate) struct KeyTable {
    entries: SharedSlice<Entry>,
    /// The serial of each entry, or [`NO_SERIAL`]: the owner's private copy. The shared words are never read back, so
    /// that a peer that managed to write them could not free or take a key.
    serials: Vec<u64>,
}

impl KeyTable {
    /// Creates an empty table. Its memory use grows with the entries that are used, because untouched pages are not
    /// allocated.
    ///
    /// # Errors
    ///
    /// The kernel has no memory, descriptors or mappings left.
    pub(crate) fn create() -> io::Result<Self> {
        let segment = Arc::new(Segment::create_for("rdma-keys", ENTRIES * ENTRY, ProtFlags::READ)?);
        let entries = SharedSlice::new(&segment, 0, ENTRIES);
        let entries = entries.ok_or_else(|| io::Error::other("no room for the table of keys"))?;
        Ok(Self { entries, serials: vec![NO_SERIAL; ENTRIES] })
    }

    /// Returns the segment that peers map, for reading alone.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.entries.segment()
    }

    /// Whether the entry of `key` is free; otherwise draw another key.
    pub(crate) fn is_free(&self, key: u32) -> bool {
        self.serials[index_of(key)] == NO_SERIAL
    }

    /// Adds a registration; `false` when its entry is taken.
    pub(crate) fn insert(&mut self, export: &Export) -> bool {
        let free = self.is_free(export.key);
        if free {
            self.serials[index_of(export.key)] = export.registered.serial;
            self.entries.ring_entry(export.key.into()).publish(export);
        }
        free
    }

    /// Changes the serial and the version of a registration. No writer is admitted under the former serial any more,
    /// and every lookup finds the registration all the time.
    pub(crate) fn renew(&mut self, export: &Export) {
        let serials = &mut self.serials[index_of(export.key)];
        if *serials != NO_SERIAL {
            *serials = export.registered.serial;
            self.entries.ring_entry(export.key.into()).renew(export.version, export.registered.serial);
        }
    }

    /// Revokes a registration: no writer is admitted to it any more. [`Writer::touches`](super::Writer::touches)
    /// tells, for each mailbox of the device, whether its writer is still in a chunk of it.
    pub(crate) fn remove(&mut self, key: u32, serial: u64) {
        let serials = &mut self.serials[index_of(key)];
        if *serials == serial {
            *serials = NO_SERIAL;
            self.entries.ring_entry(key.into()).revoke();
        }
    }
}

/// Returns the index of a key's entry.
fn index_of(key: u32) -> usize {
    key as usize & (ENTRIES - 1)
}

/// The key table of a peer's device, mapped for reading.
#[derive(Debug)]
pub(super) struct PeerKeyTable {
    entries: SharedSlice<Entry>,
}

/// A registration of a peer, found by its key, with the entry to check it against.
#[derive(Debug)]
pub(crate) struct FoundKey<'a> {
    pub(super) export: Export,
    entry: &'a Entry,
}

impl FoundKey<'_> {
    /// Whether the registration is current: neither revoked nor renewed since it was found.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.entry.is_current(self.export.registered.serial)
    }
}

impl PeerKeyTable {
    /// Interprets a segment as a table; `None` when its number of entries is not a power of two.
    pub(super) fn new(segment: &Arc<Segment>) -> Option<Self> {
        let entries = segment.len() / ENTRY;
        if !entries.is_power_of_two() {
            return None;
        }
        SharedSlice::new(segment, 0, entries).map(|entries| Self { entries })
    }

    /// Returns the registration that `key` names.
    #[inline(always)]
    pub(super) fn find(&self, key: u32) -> Option<FoundKey<'_>> {
        let entry = self.entries.ring_entry(key.into());
        // The whole key is compared, because the index is only its lowest bits: a stale or guessed key must not name
        // the registration that has the entry now.
        let export = entry.read().filter(|export| export.key == key)?;
        Some(FoundKey { export, entry })
    }
}

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod models;
