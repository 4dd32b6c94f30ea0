//! What of a device other processes of this host may map: its table of keys, and the memory that they name.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;

use super::engine::keys::Registered;
use super::wire::{Announcement, Exposed, MappedKeys};
use crate::memory::Backing;

/// See the module.
#[derive(Debug)]
pub(super) struct Exposure {
    table: MappedKeys,
    /// Which memory each key names, of those that can be mapped.
    named: HashMap<u32, u64>,
    memories: HashMap<u64, Known>,
}

#[derive(Debug)]
struct Known {
    announcement: Announcement,
    /// Keys that name it.
    keys: usize,
    /// Whether peers are told of it.
    announced: bool,
}

impl Exposure {
    /// # Errors
    ///
    /// When the kernel has no memory, descriptors or mappings left.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { table: MappedKeys::create()?, named: HashMap::new(), memories: HashMap::new() })
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
        self.table.is_free(key)
    }

    /// Enters a registration of all of `backing`, or of memory that nobody can map. What peers are to be told of, since it
    /// lets them in.
    pub(super) fn insert(
        &mut self,
        key: u32,
        registered: Registered,
        backing: Option<&Backing>,
    ) -> Option<Announcement> {
        let memory = backing.map_or(0, |backing| backing.id);
        let exposed = Exposed { key, registered, memory, version: 0, offset: 0 };
        if !self.table.insert(&exposed) {
            tracing::error!("the place of a key that was just drawn is taken");
        }
        let Backing { id, bytes, memfd } = backing?;
        self.named.insert(key, *id);
        let known = self.memories.entry(*id).or_insert_with(|| Known {
            announcement: Announcement { id: *id, len: *bytes, version: 0, memfd: memfd.clone() },
            keys: 0,
            announced: false,
        });
        known.keys += 1;
        if registered.access.is_remote() { self.announce(key) } else { None }
    }

    /// A receive is posted into memory that `key` names. What peers are to be told of since it is the first time.
    pub(super) fn announce(&mut self, key: u32) -> Option<Announcement> {
        let known = self.memories.get_mut(self.named.get(&key)?)?;
        let first = !std::mem::replace(&mut known.announced, true);
        first.then(|| known.announcement.clone())
    }

    /// Revokes a registration. The memory that peers are to forget, since that was the last key to it.
    pub(super) fn remove(&mut self, key: u32, serial: u64) -> Option<u64> {
        self.table.remove(key, serial);
        let id = self.named.remove(&key)?;
        let known = self.memories.get_mut(&id)?;
        known.keys -= 1;
        if known.keys > 0 {
            return None;
        }
        let announced = known.announced;
        self.memories.remove(&id);
        announced.then_some(id)
    }

    /// All that peers are told of.
    pub(super) fn announced(&self) -> Vec<Announcement> {
        let known = self.memories.values().filter(|known| known.announced);
        known.map(|known| known.announcement.clone()).collect()
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
        let (memory, mut exposure) = (Mapping::allocate(1).unwrap(), Exposure::new().unwrap());
        let backing = memory.backing();
        assert!(exposure.insert(5, registered(1, Access::LOCAL_WRITE), backing).is_none());
        assert!(exposure.announced().is_empty() && !exposure.is_free(5));
        assert_eq!(exposure.announce(5).map(|told| told.id), backing.map(|backing| backing.id));
        assert!(exposure.announce(5).is_none(), "told twice");
        assert!(exposure.insert(6, registered(2, Access::REMOTE_READ), backing).is_none());
        assert_eq!(exposure.announced().len(), 1);
        assert_eq!(exposure.remove(5, 1), None);
        assert_eq!(exposure.remove(6, 2), backing.map(|backing| backing.id));
        assert_eq!(exposure.remove(6, 2), None);
        assert!(exposure.announced().is_empty() && exposure.is_free(6));
        // Nobody holds on to its pages.
        assert_eq!(backing.map(|backing| Arc::strong_count(&backing.memfd)), Some(1));
    }

    #[test]
    fn memory_that_nobody_can_map_is_told_to_nobody() {
        let mut exposure = Exposure::new().unwrap();
        assert!(exposure.insert(5, registered(1, Access::REMOTE_WRITE), None).is_none());
        assert!(exposure.announce(5).is_none() && exposure.announced().is_empty());
        assert_eq!(exposure.remove(5, 1), None);
        assert!(exposure.is_free(5));
    }
}
