//! The regions that a worker holds for its requests.

use super::super::work::{Attached, AttachedRange, check_range};
use crate::error::{DetachError, PostError};
use crate::memory::PdId;
use crate::{Access, Region};

struct Held {
    region: Region,
    in_flight: u32,
}

/// Attached regions, by index; the generation tells a detached one from its successor.
#[derive(Default)]
pub(super) struct Regions {
    places: Vec<(u32, Option<Held>)>,
}

/// What a range of an attached region stands for.
pub(super) struct Resolved {
    pub(super) index: u32,
    pub(super) addr: u64,
    pub(super) lkey: u32,
    pub(super) pd: PdId,
    pub(super) access: Access,
}

impl Regions {
    pub(super) fn attach(&mut self, worker: u32, region: Region) -> Attached {
        let held = Held { region, in_flight: 0 };
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

    #[inline]
    pub(super) fn resolve(&self, range: &AttachedRange) -> Result<Resolved, PostError> {
        let (generation, place) =
            self.places.get(range.region.index as usize).ok_or(PostError::NotAttached)?;
        let held = place
            .as_ref()
            .filter(|_| *generation == range.region.generation)
            .ok_or(PostError::NotAttached)?;
        check_range(range, held.region.len())?;
        let memory = held.region.memory();
        Ok(Resolved {
            index: range.region.index,
            addr: memory.as_ptr().as_ptr() as u64 + range.offset as u64,
            lkey: held.region.lkey().0,
            pd: memory.pd(),
            access: memory.access(),
        })
    }

    #[inline]
    pub(super) fn begin(&mut self, index: u32) {
        if let Some((_, Some(held))) = self.places.get_mut(index as usize) {
            held.in_flight += 1;
        }
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
