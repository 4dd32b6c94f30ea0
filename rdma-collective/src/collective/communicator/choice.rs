//! Which ways the operations of a communicator go, and what it says of that.

use std::any::Any;
use std::sync::Arc;

use super::tuning::{Orders, Peers};
use super::{Algorithm, Communicator};
use crate::collective::call::Collective;
use crate::groups::Groups;

impl Communicator {
    /// How the ranks reach each other, as a [table](super::tuning) of ways has it.
    #[must_use]
    pub fn peers(&self) -> Peers {
        if self.has_host_group() { Peers::Mapped } else { Peers::Links }
    }

    /// Whether the ranks are such that operations can go that way, be it asked for or not: `flat`, `pieces` and `direct` where they map
    /// each other's memory, `hierarchical` where they are on several hosts and some of them together, unless they are
    /// [`reproducible`](super::CommunicatorOptions::reproducible), and the others anywhere.
    #[must_use]
    pub fn can(&self, way: Algorithm) -> bool {
        self.orders.have(way)
    }

    /// The ranks of each host.
    pub(crate) fn hosts(&self) -> &Arc<Groups> {
        self.hosts.groups()
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    /// What whoever carries operations out has kept of the last one, since the next is often the same.
    #[inline]
    pub(crate) fn last<T: Any>(&self) -> Option<&T> {
        self.last.as_deref()?.downcast_ref()
    }

    /// Keeps that in its place.
    pub(crate) fn set_last<T: Any + Send + Sync>(&mut self, last: T) {
        match self.last.as_deref_mut().and_then(|kept| kept.downcast_mut::<T>()) {
            Some(kept) => *kept = last,
            None => self.last = Some(Box::new(last)),
        }
    }

    /// Says at INFO, once for each power of two of bytes, which way a collective takes.
    pub(crate) fn chose(
        &mut self,
        (collective, bytes): (Collective, usize),
        way: impl FnOnce(&Orders) -> String,
    ) {
        let class = (usize::BITS - bytes.saturating_sub(1).leading_zeros()).min(usize::BITS - 1);
        let Some(said) = self.chosen.get_mut(usize::from(collective.code())) else { return };
        if *said & (1 << class) == 0 {
            *said |= 1 << class;
            self.shared.lock().say_way(collective.name(), 1 << class, &way(&self.orders));
        }
    }
}
