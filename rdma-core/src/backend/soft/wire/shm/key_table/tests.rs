//! Registrations entered and removed, and tables that peers write or cut.

use super::super::segment::READ_WRITE;
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
    // No peer can write the table. One that could would only keep its own right alive.
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
    assert!(Segment::map(memfd, segment.len() as u64, READ_WRITE).is_err());
}

#[test]
fn half_a_table_is_none() {
    let segment = Arc::new(Segment::create("test", 3 * rustix::param::page_size()).unwrap());
    assert!(PeerKeyTable::new(&segment).is_none());
}
