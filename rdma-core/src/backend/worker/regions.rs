//! The regions that a worker holds for its requests.

use super::super::work::{Attached, AttachedRange, check_range};
use crate::error::{DetachError, RangeError};
use crate::memory::PdId;
use crate::{Access, Region};

/// A region, and what its ranges are resolved by, which does not change while it is registered.
pub(super) struct Held {
    region: Region,
    in_flight: u32,
    len: usize,
    addr: u64,
    lkey: u32,
    pd: PdId,
    access: Access,
}

/// Attached regions, by index; the generation tells a detached one from its successor.
#[derive(Default)]
pub(super) struct Regions {
    places: Vec<(u32, Option<Held>)>,
}

/// What a range of an attached region stands for.
#[derive(Clone, Copy)]
pub(super) struct Resolved {
    pub(super) addr: u64,
    pub(super) lkey: u32,
    pub(super) pd: PdId,
    pub(super) access: Access,
}

impl Held {
    fn new(region: Region) -> Self {
        let memory = region.memory();
        let (addr, len) = (memory.as_ptr().as_ptr() as u64, region.len());
        let (lkey, pd, access) = (region.lkey().0, memory.pd(), memory.access());
        Self { region, in_flight: 0, len, addr, lkey, pd, access }
    }

    /// What that range of it stands for.
    #[inline]
    pub(super) fn resolve(&self, range: &AttachedRange) -> Result<Resolved, RangeError> {
        check_range(range, self.len)?;
        let Self { lkey, pd, access, .. } = *self;
        Ok(Resolved { addr: self.addr + range.offset as u64, lkey, pd, access })
    }

    /// A request is about to use it.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.in_flight += 1;
    }
}

impl Regions {
    pub(super) fn attach(&mut self, worker: u32, region: Region) -> Attached {
        let held = Held::new(region);
        let index = self.places.iter().position(|(_, place)| place.is_none()).unwrap_or(self.places.len());
        if index == self.places.len() {
            self.places.push((0, None));
        }
        let (generation, place) = &mut self.places[index];
        *place = Some(held);
        // More than 2^32 attached regions do not fit into memory.
        Attached { worker, index: index as u32, generation: *generation }
    }

    pub(super) fn detach(&mut self, attached: Attached) -> Result<Region, DetachError> {
        let Some((generation, place)) = self.places.get_mut(attached.index as usize) else {
            return Err(DetachError::NotAttached);
        };
        match place.take() {
            Some(held) if *generation == attached.generation && held.in_flight == 0 => {
                *generation = generation.wrapping_add(1);
                Ok(held.region)
            }
            Some(held) => {
                let stale = *generation != attached.generation;
                let in_flight = held.in_flight;
                *place = Some(held);
                Err(if stale {
                    DetachError::NotAttached
                } else {
                    DetachError::InFlight { requests: in_flight }
                })
            }
            None => Err(DetachError::NotAttached),
        }
    }

    /// The region of that name, if it is attached.
    #[inline]
    pub(super) fn held(&mut self, attached: Attached) -> Option<&mut Held> {
        let (generation, place) = self.places.get_mut(attached.index as usize)?;
        place.as_mut().filter(|_| *generation == attached.generation)
    }

    #[inline]
    pub(super) fn end(&mut self, index: u32) {
        if let Some((_, Some(held))) = self.places.get_mut(index as usize) {
            held.in_flight = held.in_flight.saturating_sub(1);
        }
    }

    /// Keeps every region with requests in flight mapped and registered for ever.
    pub(super) fn leak(&mut self) {
        for (_, place) in &mut self.places {
            if place.as_ref().is_some_and(|held| held.in_flight > 0) {
                std::mem::forget(place.take());
            }
        }
    }
}
