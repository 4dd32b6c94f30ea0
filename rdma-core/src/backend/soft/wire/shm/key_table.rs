//! Which key names which memory of a device, where its peers can look it up.
//!
//! The place of a key is its lowest bits: keys are drawn from the system's random source, one that renews another but for
//! those, and one whose place is taken is drawn again. An entry stands while its serial is not 0; a writer that looked one up looks at the
//! serial again before it touches the memory (see [`writer_slot`](super::writer_slot)), which tells it as well
//! that it did not read half of one registration and half of the next: serials are never used twice, and what
//! comes next is written after the fence that follows the last one's end. Models of it run under `cfg(loom)`.

#![expect(unsafe_code, reason = "vouches for a type that is made of atomics")]

use std::io;
use std::sync::Arc;

use super::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use super::segment::{Protection, Segment};
use super::shared_slice::{Shared, SharedSlice};
use super::writer_slot::fence_after_revoke;
use crate::Access;
use crate::backend::soft::engine::keys::{Domain, Registered};
use crate::backend::soft::port::{KEY_PLACE_BITS, MAX_MR};

const ENTRIES: usize = 1 << KEY_PLACE_BITS;
/// At least half of them are free.
const _: () = assert!(ENTRIES >= 2 * MAX_MR as usize);
/// Bytes of an entry.
const ENTRY: usize = 64;
/// The version of pages that nobody has: who comes to them waits for the next.
pub(crate) const PAUSED_VERSION: u32 = u32::MAX;
/// How often an entry that changes while it is read is read again.
const READS_MAX: u32 = 16;
/// What an entry without a registration has for a serial.
const NO_SERIAL: u64 = 0;

/// A registration, and where in which memory it lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Export {
    pub(crate) key: u32,
    /// Its serial is not 0, and never used twice on the device.
    pub(crate) registered: Registered,
    /// Which memory of the process it is in; 0 is in none that can be mapped.
    pub(crate) memory: u64,
    /// Of the pages of that memory.
    pub(crate) version: u32,
    /// Where in that memory it begins.
    pub(crate) offset: u64,
}

/// An entry, written by the owner; a cache line.
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

// SAFETY: made of atomics.
unsafe impl Shared for Entry {}

impl Entry {
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
        self.serial.store(registered.serial, Ordering::Release);
    }

    /// The same registration by another serial, with other pages. Who reads the one serial with the other pages finds
    /// that it does not stand, or, of [`PAUSED`] ones, that it has not got them.
    fn renew(&self, version: u32, serial: u64) {
        self.version.store(version, Ordering::Relaxed);
        self.serial.store(serial, Ordering::Release);
        fence_after_revoke();
    }

    fn revoke(&self) {
        self.serial.store(NO_SERIAL, Ordering::Relaxed);
        fence_after_revoke();
    }

    /// What is registered, if anything is and was while it was read.
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

    #[inline]
    fn read_once(&self) -> Option<Export> {
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
        fence(Ordering::Acquire);
        Some(export)
    }

    #[inline]
    fn is_current(&self, serial: u64) -> bool {
        self.serial.load(Ordering::Relaxed) == serial
    }
}

/// The table of a device of this process.
#[derive(Debug)]
pub(crate) struct KeyTable {
    entries: SharedSlice<Entry>,
    /// The serial in each place, or [`NONE`]. What peers can see is not asked.
    serials: Vec<u64>,
}

impl KeyTable {
    /// An empty one. What it takes of memory grows with its entries.
    ///
    /// # Errors
    ///
    /// When the kernel has no memory, descriptors or mappings left.
    pub(crate) fn create() -> io::Result<Self> {
        let segment = Arc::new(Segment::create_for("rdma-keys", ENTRIES * ENTRY, Protection::Read)?);
        let entries = SharedSlice::new(&segment, 0, ENTRIES);
        let entries = entries.ok_or_else(|| io::Error::other("no room for the table of keys"))?;
        Ok(Self { entries, serials: vec![NO_SERIAL; ENTRIES] })
    }

    /// What peers map, for reading alone.
    pub(crate) fn segment(&self) -> &Arc<Segment> {
        self.entries.segment()
    }

    /// Whether the place of `key` is free; else draw another.
    pub(crate) fn is_free(&self, key: u32) -> bool {
        self.serials[index_of(key)] == NO_SERIAL
    }

    /// Enters a registration. `false` when its place is taken.
    pub(crate) fn insert(&mut self, export: &Export) -> bool {
        let free = self.is_free(export.key);
        if free {
            self.serials[index_of(export.key)] = export.registered.serial;
            self.entries.ring_entry(export.key.into()).publish(export);
        }
        free
    }

    /// Enters a registration again, with another serial and version alone: no writer begins to touch it by the one that it
    /// had, and all who look find it all the time.
    pub(crate) fn renew(&mut self, export: &Export) {
        let serials = &mut self.serials[index_of(export.key)];
        if *serials != NO_SERIAL {
            *serials = export.registered.serial;
            self.entries.ring_entry(export.key.into()).renew(export.version, export.registered.serial);
        }
    }

    /// Revokes a registration: no writer begins to touch it any more. Which do still,
    /// [`Writer::touches`](super::Writer::touches) tells of each mailbox of the device.
    pub(crate) fn remove(&mut self, key: u32, serial: u64) {
        let serials = &mut self.serials[index_of(key)];
        if *serials == serial {
            *serials = NO_SERIAL;
            self.entries.ring_entry(key.into()).revoke();
        }
    }
}

/// Where a key is entered.
fn index_of(key: u32) -> usize {
    key as usize & (ENTRIES - 1)
}

/// The table of a peer's device.
#[derive(Debug)]
pub(super) struct PeerKeyTable {
    entries: SharedSlice<Entry>,
}

/// A registration of a peer's, found by its key.
#[derive(Debug)]
pub(super) struct FoundKey<'a> {
    pub(super) export: Export,
    entry: &'a Entry,
}

impl FoundKey<'_> {
    /// Whether it is still registered.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.entry.is_current(self.export.registered.serial)
    }
}

impl PeerKeyTable {
    /// `None` when the segment is no table.
    pub(super) fn new(segment: &Arc<Segment>) -> Option<Self> {
        let entries = segment.len() / ENTRY;
        if !entries.is_power_of_two() {
            return None;
        }
        SharedSlice::new(segment, 0, entries).map(|entries| Self { entries })
    }

    /// The registration that `key` names.
    #[inline(always)]
    pub(super) fn find(&self, key: u32) -> Option<FoundKey<'_>> {
        let entry = self.entries.ring_entry(key.into());
        let export = entry.read().filter(|export| export.key == key)?;
        Some(FoundKey { export, entry })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn export(key: u32, serial: u64) -> Export {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let registered = Registered { domain: Domain(3), addr: 0x5000, len: 0x100, access, serial };
        Export { key, registered, memory: 9, version: 4, offset: 0x40 }
    }

    #[test]
    fn what_is_entered_is_found_until_it_is_removed() {
        let mut table = KeyTable::create().unwrap();
        let peer = PeerKeyTable::new(table.segment()).unwrap();
        let (key, alias) = (77, 77 + ENTRIES as u32);
        assert!(peer.find(key).is_none());
        assert!(table.insert(&export(key, 1)));
        let found = peer.find(key).unwrap();
        assert_eq!(format!("{:?}", found.export), format!("{:?}", export(key, 1)));
        assert!(peer.find(alias).is_none(), "the place alone does not make a key");
        assert!(!table.is_free(alias) && !table.insert(&export(alias, 2)));
        table.remove(key, 5);
        assert!(found.is_current(), "another registration was removed");
        table.remove(key, 1);
        assert!(!found.is_current() && peer.find(key).is_none());
        assert!(table.insert(&export(key, 3)));
        assert!(!found.is_current(), "a later registration of the same key");
    }

    #[test]
    fn what_stands_in_the_table_is_not_asked_whether_it_stands() {
        let mut table = KeyTable::create().unwrap();
        assert!(table.insert(&export(7, 1)));
        // No peer can, but one that could would keep its right.
        let entry = table.entries.ring_entry(7);
        entry.serial.store(9, Ordering::Relaxed);
        table.remove(7, 1);
        assert!(table.entries.ring_entry(7).is_current(NO_SERIAL) && table.is_free(7));
        table.entries.ring_entry(7).serial.store(9, Ordering::Relaxed);
        assert!(table.is_free(7));
    }

    #[test]
    fn peers_cannot_write_the_table() {
        let table = KeyTable::create().unwrap();
        let segment = table.segment();
        let memfd = segment.memfd().unwrap();
        assert!(Segment::map(memfd, segment.len() as u64, Protection::ReadWrite).is_err());
    }

    #[test]
    fn half_a_table_is_none() {
        let segment = Arc::new(Segment::create("test", 3 * rustix::param::page_size()).unwrap());
        assert!(PeerKeyTable::new(&segment).is_none());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn entry() -> Entry {
        let (word, long) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Entry {
            serial: long(),
            key: word(),
            access: word(),
            domain: word(),
            version: word(),
            addr: long(),
            len: long(),
            memory: long(),
            offset: long(),
        }
    }

    /// Every field tells the serial.
    fn export(serial: u64) -> Export {
        let (word, access) = (serial as u32, Access::from_bits_retain(serial as u32));
        let registered = Registered { domain: Domain(word), addr: serial, len: serial, access, serial };
        Export { key: word, registered, memory: serial, version: word, offset: serial }
    }

    #[test]
    fn loom_no_half_of_a_registration_is_read() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(|| {
            let shared = Arc::new(entry());
            shared.publish(&export(1));
            let owner = {
                let entry = Arc::clone(&shared);
                thread::spawn(move || {
                    entry.revoke();
                    entry.publish(&export(2));
                })
            };
            if let Some(read) = shared.read() {
                let whole = export(read.registered.serial);
                assert_eq!(format!("{read:?}"), format!("{whole:?}"), "two registrations in one");
            }
            owner.join().unwrap();
        });
    }
}
