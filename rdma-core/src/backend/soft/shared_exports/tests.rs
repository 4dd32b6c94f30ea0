//! Announcements of memory: once, until the last key goes, and only of what can be mapped.

use std::sync::Arc;

use super::super::engine::keys::Domain;
use super::*;
use crate::Access;
use crate::memory::Mapping;

fn registered(serial: u64, access: Access) -> Registered {
    Registered { domain: Domain(1), addr: 0, len: 1, access, serial }
}

#[test]
fn memory_is_announced_once_and_forgotten_with_its_last_key() {
    let (memory, mut exports) = (Mapping::allocate(1).unwrap(), SharedExports::new().unwrap());
    let backing = memory.backing().map(|backing| (backing, 0));
    assert!(exports.insert(5, registered(1, Access::LOCAL_WRITE), backing).is_none());
    assert!(exports.announced().is_empty() && !exports.is_free(5));
    assert_eq!(exports.announce(5).map(|told| told.id), backing.map(|(backing, _)| backing.id));
    assert!(exports.announce(5).is_none(), "announced twice");
    assert!(exports.insert(6, registered(2, Access::REMOTE_READ), backing).is_none());
    assert_eq!(exports.announced().len(), 1);
    assert_eq!(exports.revoke(5), None);
    assert_eq!(exports.revoke(6), backing.map(|(backing, _)| backing.id));
    assert_eq!(exports.revoke(6), None);
    assert!(
        exports.announced().is_empty() && !exports.is_free(6),
        "a writer may still be at the revoked key"
    );
    exports.forget(5);
    exports.forget(6);
    assert!(exports.is_free(6));
    // Nothing keeps the memory any more.
    assert_eq!(backing.map(|(backing, _)| Arc::strong_count(&backing.memfd)), Some(1));
}

#[test]
fn memory_that_nobody_can_map_is_not_announced() {
    let mut exports = SharedExports::new().unwrap();
    assert!(exports.insert(5, registered(1, Access::REMOTE_WRITE), None).is_none());
    assert!(exports.announce(5).is_none() && exports.announced().is_empty());
    assert_eq!(exports.revoke(5), None);
    exports.forget(5);
    assert!(exports.is_free(5));
}
