//! Attached regions: the regions that a worker holds for its requests, with a count of requests in flight.
//!
//! The count replaces an `Arc` a request: only the worker's thread touches it, so it is a plain integer.

use super::super::work::{Attached, AttachedRange};
use crate::error::{DetachError, RangeError};
use crate::memory::{Keys, PdId};
use crate::{Access, Region};

/// An attached region. The copied fields do not change while it is registered; reading them here saves following the
/// region's pointers at each post.
pub(super) struct AttachedRegion {
    region: Region,
    in_flight: u32,
    len: usize,
    addr: u64,
    pub(super) lkey: u32,
    pub(super) pd: PdId,
    pub(super) access: Access,
}

/// An index of the table. The generation distinguishes a detached region from its successor at the index.
#[derive(Default)]
struct RegionEntry {
    generation: u32,
    region: Option<AttachedRegion>,
}

/// The attached regions of a worker, by index.
#[derive(Default)]
pub(super) struct Regions {
    entries: Vec<RegionEntry>,
}

impl AttachedRegion {
    fn new(region: Region) -> Self {
        let memory = region.memory();
        let (addr, len) = (memory.as_ptr().as_ptr() as u64, region.len());
        let (lkey, pd, access) = (region.lkey().0, memory.pd(), memory.access());
        Self { region, in_flight: 0, len, addr, lkey, pd, access }
    }

    /// Returns the address of a range, whose bounds it checks.
    #[inline]
    pub(super) fn address_of(&self, range: &AttachedRange) -> Result<u64, RangeError> {
        RangeError::check(range.offset as u64, range.len as u64, self.len as u64)?;
        Ok(self.addr + range.offset as u64)
    }

    /// Returns the keys of the region in another domain than its first.
    pub(super) fn keys_in(&self, pd: PdId) -> Option<Keys> {
        self.region.memory().keys_in(pd)
    }

    /// Counts one more request in flight; [`Regions::end`] counts it off.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
    }
}

impl Regions {
    /// Takes a region, and returns its name.
    pub(super) fn attach(&mut self, worker: u32, region: Region) -> Attached {
        let attached = AttachedRegion::new(region);
        let free = self.entries.iter().position(|entry| entry.region.is_none());
        let index = free.unwrap_or(self.entries.len());
        if index == self.entries.len() {
            self.entries.push(RegionEntry::default());
        }
        let entry = &mut self.entries[index];
        entry.region = Some(attached);
        // The cast is exact: 2^32 attached regions do not fit into memory.
        Attached { worker, index: index as u32, generation: entry.generation }
    }

    /// Gives a region back, unless requests that use it are in flight: the device may still access it then.
    pub(super) fn detach(&mut self, attached: Attached) -> Result<Region, DetachError> {
        let entry = self.entries.get_mut(attached.index as usize);
        let entry = entry.filter(|entry| entry.generation == attached.generation);
        let entry = entry.ok_or(DetachError::NotAttached)?;
        match entry.region.take() {
            None => Err(DetachError::NotAttached),
            Some(region) if region.in_flight > 0 => {
                let requests = region.in_flight;
                entry.region = Some(region);
                Err(DetachError::InFlight { requests })
            }
            Some(region) => {
                entry.generation = entry.generation.wrapping_add(1);
                Ok(region.region)
            }
        }
    }

    /// Returns the attached region of that name; `None` once it was detached.
    #[inline]
    pub(super) fn get(&mut self, attached: Attached) -> Option<&mut AttachedRegion> {
        let entry = self.entries.get_mut(attached.index as usize)?;
        entry.region.as_mut().filter(|_| entry.generation == attached.generation)
    }

    /// Counts one request off that used the region at `index`.
    #[inline]
    pub(super) fn end(&mut self, index: u32) {
        if let Some(region) = self.entries.get_mut(index as usize).and_then(|entry| entry.region.as_mut()) {
            region.in_flight = region.in_flight.saturating_sub(1);
        }
    }

    /// Leaks every region with requests in flight: it stays mapped and registered for ever, because a device that could
    /// not be stopped may still access it.
    pub(super) fn leak(&mut self) {
        for entry in &mut self.entries {
            if entry.region.as_ref().is_some_and(|region| region.in_flight > 0) {
                std::mem::forget(entry.region.take());
            }
        }
    }
}
