//! The services of an engine, and which of them a drive advances, so that idle ones cost nothing.
//!
//! A service that is registered *for a lane* is advanced only for a cause. Each cause has its mark:
//!
//! | cause                                               | noticed by                                               |
//! |-----------------------------------------------------|----------------------------------------------------------|
//! | message, credits, or a request done: room regained  | `take_from`, at each completion of the lane              |
//! | end of the lane: CLOSE, a failed request, violation | `take_from`; otherwise the next flush, once for each end |
//! | end of the lane: silence, or death of the peer      | `keep_alive`                                             |
//! | end of the lane: its device has failed              | `fail`                                                   |
//! | end of the lane: a fence                            | `fence_lane`                                             |
//! | its deadline, also while `known_until` is before it | [`Deadlines`]: at each drive, until the deadline moves   |
//! | its wish to go on at once                           | a deadline that has passed                               |
//! | change by a caller that finds the lock free         | [`Engine::attend`](super::Engine::attend) advances it    |
//! | change by a caller that does not                    | [`Asked`], which the next drive takes                    |
//! | it has just acted, so that more may follow          | `advance_one`: once more at the next drive               |
//! | it is new: its lane may have messages               | registration                                             |
//!
//! Wakers need no cause: a service wakes tasks at the end of the advance by which their operations end. The device's
//! slices need none either, because copied bytes show as completions.
//!
//! All other services are advanced by each drive. A communicator must be, because messages in shared memory wake
//! nobody.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use super::deadlines::Deadlines;
use super::{EngineState, LaneId, Service};

/// The name of a service that was registered for a lane. Once the service is gone, another may have the name: it is
/// then advanced for nothing, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServiceId(usize);

type Strong = Arc<Mutex<dyn Service>>;

/// The services of an engine.
#[derive(Default)]
pub(super) struct Services {
    each_drive: Vec<Weak<Mutex<dyn Service>>>,
    for_lanes: Vec<ForLane>,
    /// Services for lanes that have a cause to act, each once.
    due: Vec<usize>,
    /// Services for lanes that have just acted, each once; the next drive advances them once more.
    acted: Vec<usize>,
    /// The deadlines of the services for lanes, as of their last advance.
    deadlines: Deadlines,
    pub(super) asked: Arc<Asked>,
    /// Scratch, kept so that a drive allocates nothing.
    driving: Vec<(Option<ServiceId>, Strong)>,
}

/// A service that was registered for a lane.
struct ForLane {
    service: Weak<Mutex<dyn Service>>,
    /// Whether the service is in the list of those that are due.
    is_due: bool,
    /// Whether the service is in the list of those that have acted.
    has_acted: bool,
}

impl ForLane {
    /// Adds the service, which is number `number`, to the `due` ones.
    fn call(&mut self, number: usize, due: &mut Vec<usize>) {
        if !std::mem::replace(&mut self.is_due, true) {
            due.push(number);
        }
    }
}

/// Services that callers have changed while another thread had the engine.
#[derive(Debug, Default)]
pub(super) struct Asked {
    services: Mutex<HashSet<usize>>,
    /// Whether there are any, so that a drive need not take the lock.
    any: AtomicBool,
}

impl Asked {
    /// Has the next drive advance a service.
    pub(super) fn ask(&self, service: ServiceId) {
        let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
        services.insert(service.0);
        self.any.store(true, Ordering::Release);
    }

    fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn take(&self, each: impl FnMut(usize)) {
        if self.any() {
            let mut services = self.services.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::Release);
            services.drain().for_each(each);
        }
    }
}

impl Services {
    /// Adds a service that each drive advances.
    fn add(&mut self, service: Weak<Mutex<dyn Service>>) {
        self.each_drive.push(service);
    }

    /// Adds a service that is advanced for a cause, in the place of one that is gone if there is any.
    fn add_for_lane(&mut self, service: Weak<Mutex<dyn Service>>) -> ServiceId {
        let gone = |known: &ForLane| known.service.strong_count() == 0;
        let number = self.for_lanes.iter().position(gone).unwrap_or(self.for_lanes.len());
        match self.for_lanes.get_mut(number) {
            Some(place) => place.service = service,
            None => self.for_lanes.push(ForLane { service, is_due: false, has_acted: false }),
        }
        self.deadlines.set(number, None);
        self.call(ServiceId(number));
        ServiceId(number)
    }

    /// Has the next drive advance a service, because there may be something for it.
    pub(super) fn call(&mut self, id: ServiceId) {
        if let Some(known) = self.for_lanes.get_mut(id.0) {
            known.call(id.0, &mut self.due);
        }
    }

    /// Takes the services to advance now. Strong references for the time of the drive: a service may drop others, and
    /// with them their entries here.
    fn take_driving(&mut self, now: Instant) -> Vec<(Option<ServiceId>, Strong)> {
        let Self { each_drive, for_lanes, due, acted, deadlines, asked, driving } = self;
        let mut driving = std::mem::take(driving);
        each_drive.retain(|service| service.upgrade().map(|service| driving.push((None, service))).is_some());
        asked.take(|number| for_lanes[number].call(number, due));
        deadlines.due(now).for_each(|number| for_lanes[number].call(number, due));
        for number in acted.drain(..) {
            for_lanes[number].has_acted = false;
            for_lanes[number].call(number, due);
        }
        for number in due.drain(..) {
            let known = &mut for_lanes[number];
            known.is_due = false;
            match known.service.upgrade() {
                Some(service) => driving.push((Some(ServiceId(number)), service)),
                None => deadlines.set(number, None),
            }
        }
        driving
    }

    /// The first deadline of the services. Of one that callers have changed it is not known, so it is `now`.
    pub(super) fn next_deadline(&self, now: Instant) -> Option<Instant> {
        if self.asked.any() || !self.due.is_empty() {
            return Some(now);
        }
        let each_drive = self.each_drive.iter().filter_map(Weak::upgrade);
        each_drive.filter_map(|service| lock(&service).next_deadline()).chain(self.deadlines.first()).min()
    }

    /// Whether a service has something pending that is not its caller's beyond `now`.
    pub(super) fn is_engaged(&self, now: Option<Instant>) -> bool {
        let mut each_drive = self.each_drive.iter().filter_map(Weak::upgrade);
        let engaged = |service: Strong| {
            let service = lock(&service);
            let left = service.caller_owned_until().is_some_and(|until| now.is_none_or(|now| now < until));
            !left && service.next_deadline().is_some()
        };
        self.asked.any()
            || !self.due.is_empty()
            || self.deadlines.first().is_some()
            || each_drive.any(engaged)
    }
}

impl EngineState {
    /// Has each drive advance `service` from now on. The engine keeps a weak reference, so the service ends when its
    /// owner drops it.
    pub(crate) fn register<S: Service + 'static>(&mut self, service: &Arc<Mutex<S>>) {
        let service: Weak<Mutex<S>> = Arc::downgrade(service);
        self.services.add(service);
    }

    /// Has drives advance `service` when there is a cause on `lane`, from now on. Whoever changes the service by
    /// another way must [attend](super::Engine::attend) to it.
    pub(crate) fn register_for<S: Service + 'static>(
        &mut self,
        lane: LaneId,
        service: &Arc<Mutex<S>>,
    ) -> ServiceId {
        let service: Weak<Mutex<S>> = Arc::downgrade(service);
        let id = self.services.add_for_lane(service);
        self.set_service(lane, id);
        id
    }

    /// Lets the services act that have to, and returns how many did something.
    pub(super) fn advance_services(&mut self, now: Instant) -> usize {
        let mut driving = self.services.take_driving(now);
        let mut acted = 0;
        for (id, service) in driving.drain(..) {
            acted += usize::from(self.advance_one(id, &service, now));
        }
        self.services.driving = driving;
        acted
    }

    /// Lets a service act that its caller has changed.
    pub(super) fn advance(&mut self, id: ServiceId, now: Instant) {
        let known = self.services.for_lanes.get(id.0);
        if let Some(service) = known.and_then(|known| known.service.upgrade()) {
            self.advance_one(Some(id), &service, now);
        }
    }

    fn advance_one(&mut self, id: Option<ServiceId>, service: &Strong, now: Instant) -> bool {
        let mut service = lock(service);
        let acted = service.advance(self, now);
        if let Some(ServiceId(number)) = id {
            let Services { for_lanes, acted: list, deadlines, .. } = &mut self.services;
            // Under the service's lock, so that a caller that changes the service after this asks for another advance.
            deadlines.set(number, service.next_deadline());
            if acted && !std::mem::replace(&mut for_lanes[number].has_acted, true) {
                list.push(number);
            }
        }
        acted
    }

    /// The first deadline of the services; `None` while none has anything pending.
    pub(super) fn next_pending(&self) -> Option<Instant> {
        self.services.next_deadline(self.now())
    }
}

fn lock<'a>(service: &'a Strong) -> MutexGuard<'a, dyn Service + 'static> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
