//! Fault plans: the rules of a device, the orders it takes, and the counts of what struck.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::super::fabric::{Fabric, Silence};
use super::super::wire::DeviceRef;
use super::super::{clock, fabric};
use super::rule::{Event, Fault, Rule, Seed};
use crate::error::Forked;
use crate::memory::OwnProcess;

/// The faults of a software device. Clones are the same plan.
///
/// In a forked child a plan of the parent does nothing and counts nothing, and no device opens with it: make plans
/// after the fork.
///
/// The [module](super) has an example. Orders ([`kill`](Self::kill) and the like) reach the devices that are open at
/// that moment. When several rules strike at one message, the first one decides.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    inner: Arc<OwnProcess<Mutex<Inner>>>,
}

#[derive(Debug, Default)]
struct Inner {
    seed: Seed,
    rules: Vec<Rule>,
    counts: FaultCounts,
    devices: Vec<DeviceRef>,
}

/// How often each fault struck.
///
/// Returned by [`FaultPlan::counts`](crate::fault::FaultPlan::counts).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FaultCounts {
    /// Messages that the plan was asked about.
    pub messages: u64,
    /// Messages lost by a rule. Those lost at a killed, stopped or unplugged device are not counted.
    pub dropped: u64,
    /// Messages delivered late.
    pub delayed: u64,
    /// Messages delivered after a later one.
    pub reordered: u64,
    /// Payloads of which one byte was flipped.
    pub corrupted: u64,
    /// Requests that were told to wait as if no receive were posted.
    pub rnr: u64,
    /// Times the device was killed.
    pub killed: u64,
    /// Times the device was stopped.
    pub stopped: u64,
    /// Times the port went down.
    pub flapped: u64,
    /// Deregistrations refused.
    pub deregistrations_refused: u64,
}

impl FaultPlan {
    /// Makes a plan without rules; `seed` decides all chance.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let inner = Inner { seed: Seed::new(seed), ..Inner::default() };
        Self { inner: Arc::new(OwnProcess::new(Mutex::new(inner))) }
    }

    /// Adds a rule and returns the plan.
    #[must_use]
    pub fn with(self, rule: Rule) -> Self {
        self.add(rule);
        self
    }

    /// Adds a rule, which acts from now on.
    pub fn add(&self, rule: Rule) {
        self.with_inner(|inner| inner.rules.push(rule));
    }

    /// Removes all rules. Messages that are already delayed still arrive.
    pub fn clear(&self) {
        self.with_inner(|inner| inner.rules.clear());
    }

    /// Returns how often each fault has struck so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.with_inner(|inner| inner.counts)
    }

    /// Kills the device: it receives and answers nothing any more, for ever.
    ///
    /// The peers see `RETRY_EXC_ERR` once their retries are used up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::fault::FaultPlan;
    /// use rdma_core::{Deadline, Device, SoftOptions, Work, Segment, WorkerOptions, loopback};
    /// let faults = FaultPlan::seeded(1);
    /// let device = Device::soft(SoftOptions { faults: Some(faults.clone()), ..SoftOptions::default() });
    /// let context = device.open()?;
    /// let pd = context.alloc_pd()?;
    /// let mut worker = context.worker(WorkerOptions::default())?;
    /// let (left, right) = loopback(&mut worker, &pd)?;
    /// faults.kill();
    /// worker.post_recv(&right, Segment::Empty)?;
    /// worker.post(&left, Work::send(Segment::Empty))?;
    /// let early = worker.wait(Deadline::after(Duration::from_millis(20)));
    /// assert!(early.is_err(), "nobody answers");
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn kill(&self) {
        self.with_inner(|inner| inner.counts.killed += 1);
        self.order(|state, device| state.silence(device, Silence::Killed));
    }

    /// Stops the device until [`resume`](Self::resume); messages that arrive meanwhile are lost.
    pub fn stop(&self) {
        self.with_inner(|inner| inner.counts.stopped += 1);
        self.order(|state, device| state.silence(device, Silence::Stopped));
    }

    /// Resumes a stopped device. A killed one stays dead.
    pub fn resume(&self) {
        self.order(|state, device| state.silence(device, Silence::No));
    }

    /// Takes the port down for `time`: raises `PORT_ERR` now and `PORT_ACTIVE` afterwards.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rdma_core::fault::FaultPlan;
    /// use rdma_core::{Device, EventKind, PortNum, PortState, SoftOptions};
    /// let faults = FaultPlan::seeded(1);
    /// let device = Device::soft(SoftOptions { faults: Some(faults.clone()), ..SoftOptions::default() });
    /// let context = device.open()?;
    /// faults.flap_port(Duration::from_millis(50));
    /// assert_eq!(context.port(PortNum(1))?.state, PortState::DOWN);
    /// assert_eq!(context.next_event()?.map(|event| event.kind), Some(EventKind::PORT_ERR));
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn flap_port(&self, time: Duration) {
        self.with_inner(|inner| inner.counts.flapped += 1);
        self.order(|state, device| state.flap(clock::now(), device, time));
    }

    /// Adds a device that opens with this plan.
    pub(in super::super) fn attach(&self, device: DeviceRef) {
        self.with_inner(|inner| inner.devices.push(device));
    }

    /// Removes a device that closes.
    pub(in super::super) fn detach(&self, device: DeviceRef) {
        self.with_inner(|inner| inner.devices.retain(|it| *it != device));
    }

    /// Whether the deregistration at hand must fail.
    pub(in super::super) fn refuses_deregistration(&self) -> bool {
        self.ask(Event::Deregistration).is_some()
    }

    /// Returns the fault that strikes at `event`, with a random number for its details.
    pub(super) fn ask(&self, event: Event) -> Option<(Fault, u64)> {
        self.with_inner(|Inner { seed, rules, counts, .. }| {
            counts.messages += u64::from(event != Event::Deregistration);
            let fault = rules.iter_mut().find_map(|rule| rule.strikes(&event, seed))?;
            match fault {
                Fault::Drop => counts.dropped += 1,
                Fault::Delay(_) => counts.delayed += 1,
                Fault::Reorder => counts.reordered += 1,
                Fault::Corrupt => counts.corrupted += 1,
                Fault::Rnr => counts.rnr += 1,
                Fault::Kill => counts.killed += 1,
                Fault::Stop => counts.stopped += 1,
                Fault::FlapPort(_) => counts.flapped += 1,
                Fault::RefuseDeregistration => counts.deregistrations_refused += 1,
            }
            Some((fault, seed.next()))
        })
    }

    /// Carries out an order at every open device that has the plan.
    fn order(&self, order: impl Fn(&mut fabric::State, DeviceRef)) {
        let devices = self.with_inner(|inner| inner.devices.clone());
        if devices.is_empty() {
            return;
        }
        // Without a fabric there is no device either.
        let Ok(Ok(fabric)) = Fabric::get().map(OwnProcess::get) else { return };
        let mut guard = fabric.lock();
        for device in devices {
            order(&mut guard, device);
        }
    }

    /// Fails in a forked child of the process that made the plan.
    pub(in super::super) fn check_process(&self) -> Result<(), Forked> {
        self.inner.get().map(drop)
    }

    /// Runs `with` on the locked plan; returns the default in a forked child. The fabric's lock may be held, but must
    /// not be taken by `with`: the lock order is fabric, then plan.
    fn with_inner<T: Default>(&self, with: impl FnOnce(&mut Inner) -> T) -> T {
        let Ok(inner) = self.inner.get() else { return T::default() };
        with(&mut inner.lock())
    }
}
