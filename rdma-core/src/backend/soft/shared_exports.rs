//! What of a device other processes of this host may map: its table of keys, and the memory that they name.
//!
//! A registration has a serial of its own in the table, which is another one whenever pages of its memory were replaced:
//! by that its writers are told from those that may be at the pages that were there before.

mod replace;

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use super::engine::keys::{Identity, Registered};
use super::wire::{Announcement, Export, MappedKeys};
use crate::Access;
use crate::memory::{Backing, Pages};

/// See the module.
#[derive(Debug)]
pub(super) struct SharedExports {
    table: MappedKeys,
    /// What each key names, until nobody is at it any more.
    named: HashMap<u32, Named, BuildHasherDefault<Identity>>,
    memories: HashMap<u64, Known, BuildHasherDefault<Identity>>,
    serials: u64,
}

#[derive(Debug)]
struct Named {
    export: Export,
    /// By which writers may be at it, besides its own.
    former: Vec<u64>,
    revoked: bool,
    /// Peers were told of its memory by it, and are for as long as it stands: most receives are into such.
    told: bool,
}

#[derive(Debug)]
struct Known {
    announcement: Announcement,
    pages: Arc<Pages>,
    /// Keys that name it, revoked ones included.
    keys: usize,
    /// Those of them that are not revoked.
    standing: usize,
    /// Whether peers are told of it.
    announced: bool,
    /// Since when whoever comes to it has to wait.
    paused: Option<Instant>,
}

impl SharedExports {
    /// # Errors
    ///
    /// When the kernel has no memory, descriptors or mappings left.
    pub(super) fn new() -> io::Result<Self> {
        let table = MappedKeys::create()?;
        Ok(Self { table, named: HashMap::default(), memories: HashMap::default(), serials: 0 })
    }

    /// The table's memfd and its bytes, for a peer.
    ///
    /// # Errors
    ///
    /// When the process has no descriptors left.
    pub(super) fn table(&self) -> io::Result<(OwnedFd, u64)> {
        let segment = self.table.segment();
        let memfd = segment.memfd().ok_or(io::ErrorKind::NotFound)?;
        Ok((memfd.try_clone_to_owned()?, segment.len() as u64))
    }

    /// Whether `key` may be entered; else draw another.
    pub(super) fn is_free(&self, key: u32) -> bool {
        self.table.is_free(key) && !self.named.contains_key(&key)
    }

    /// Enters a registration of all of `backing`, or of memory that nobody can map. What peers are to be told of, since it
    /// lets them in.
    pub(super) fn insert(
        &mut self,
        key: u32,
        registered: Registered,
        backing: Option<&Backing>,
    ) -> Option<Announcement> {
        let (memory, version) = backing.map_or((0, 0), |backing| (backing.id, backing.pages.version()));
        let serial = self.next_serial();
        let registered = Registered { serial, ..registered };
        let export = Export { key, registered, memory, version, offset: 0 };
        if !self.table.insert(&export) {
            tracing::error!("the place of a key that was just drawn is taken");
        }
        self.named.insert(key, Named { export, former: Vec::new(), revoked: false, told: false });
        let Backing { id, bytes, memfd, pages } = backing?;
        let known = self.memories.entry(*id).or_insert_with(|| Known {
            announcement: Announcement { id: *id, len: *bytes, memfd: memfd.clone(), patches: Vec::new() },
            pages: Arc::clone(pages),
            keys: 0,
            standing: 0,
            announced: false,
            paused: None,
        });
        known.keys += 1;
        known.standing += 1;
        if lets_in(registered.access) { self.announce(key) } else { None }
    }

    fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// A receive is posted into memory that `key` names. What peers are to be told of since it is the first time.
    pub(super) fn announce(&mut self, key: u32) -> Option<Announcement> {
        let named = self.named.get_mut(&key).filter(|named| !named.revoked && !named.told)?;
        named.told = true;
        let known = self.memories.get_mut(&named.export.memory)?;
        let first = !std::mem::replace(&mut known.announced, true);
        first.then(|| known.announcement())
    }

    /// Revokes the registration of `key`. The memory that peers are to forget, since that was the last key to it.
    ///
    /// Writers may be at it until [`forget`](Self::forget) is said, which tells that none is.
    pub(super) fn revoke(&mut self, key: u32) -> Option<u64> {
        let named = self.named.get_mut(&key).filter(|named| !named.revoked)?;
        self.table.remove(key, named.export.registered.serial);
        named.revoked = true;
        let id = named.export.memory;
        let known = self.memories.get_mut(&id)?;
        known.standing -= 1;
        (known.standing == 0 && std::mem::take(&mut known.announced)).then_some(id)
    }

    /// Nobody is at the registration of `key` any more, which was revoked.
    pub(super) fn forget(&mut self, key: u32) {
        let Some(named) = self.named.remove(&key) else { return };
        if let Some(known) = self.memories.get_mut(&named.export.memory) {
            known.keys -= 1;
            if known.keys == 0 {
                self.memories.remove(&named.export.memory);
            }
        }
    }

    /// All that peers are told of.
    pub(super) fn announced(&self) -> Vec<Announcement> {
        let known = self.memories.values().filter(|known| known.announced);
        known.map(Known::announcement).collect()
    }
}

/// Whether peers come to such a registration by themselves.
fn lets_in(access: Access) -> bool {
    access.is_remote() || access.contains(Access::WINDOW)
}

impl Known {
    fn announcement(&self) -> Announcement {
        Announcement { patches: self.pages.patches(0), ..self.announcement.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::engine::keys::Domain;
    use super::*;
    use crate::Access;
    use crate::memory::Mapping;

    fn registered(serial: u64, access: Access) -> Registered {
        Registered { domain: Domain(1), addr: 0, len: 1, access, serial }
    }

    #[test]
    fn memory_is_told_of_once_it_lets_peers_in_and_forgotten_with_its_last_key() {
        let (memory, mut exports) = (Mapping::allocate(1).unwrap(), SharedExports::new().unwrap());
        let backing = memory.backing();
        assert!(exports.insert(5, registered(1, Access::LOCAL_WRITE), backing).is_none());
        assert!(exports.announced().is_empty() && !exports.is_free(5));
        assert_eq!(exports.announce(5).map(|told| told.id), backing.map(|backing| backing.id));
        assert!(exports.announce(5).is_none(), "told twice");
        assert!(exports.insert(6, registered(2, Access::REMOTE_READ), backing).is_none());
        assert_eq!(exports.announced().len(), 1);
        assert_eq!(exports.revoke(5), None);
        assert_eq!(exports.revoke(6), backing.map(|backing| backing.id));
        assert_eq!(exports.revoke(6), None);
        assert!(exports.announced().is_empty() && !exports.is_free(6), "who is at it is not known");
        exports.forget(5);
        exports.forget(6);
        assert!(exports.is_free(6));
        // Nobody holds on to its pages.
        assert_eq!(backing.map(|backing| Arc::strong_count(&backing.memfd)), Some(1));
    }

    #[test]
    fn memory_that_nobody_can_map_is_told_to_nobody() {
        let mut exports = SharedExports::new().unwrap();
        assert!(exports.insert(5, registered(1, Access::REMOTE_WRITE), None).is_none());
        assert!(exports.announce(5).is_none() && exports.announced().is_empty());
        assert_eq!(exports.revoke(5), None);
        exports.forget(5);
        assert!(exports.is_free(5));
    }
}
