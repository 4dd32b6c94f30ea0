//! An operation under way, whichever way it takes.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::memory::Expect;

use super::buffers::Buffers;
use super::direct::{Came, Direct};
use super::eager::Flat;
use super::flows::{self, Flows, Lent, copy_own};
use super::mesh::{self, Mesh};
use super::pipeline::At;
use super::plan::{Elsewhere, Plan, Way};
use super::run::{Run, With};
use super::stop::{Progress, Stop};
use crate::collective::CollectiveError;
use crate::collective::communicator::{HostGroup, Parts, RingLinks, Scratch};
use crate::collective::points::Points;
use crate::collective::schedule::{Primitive, Schedule, Step};
use crate::engine::Core;

/// How often ranks of one host that go by links look for others that do not.
const LOOK_ASIDE_EVERY: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of an operation, in its place")]
pub(super) enum Running {
    Ring(Run),
    Flat(Flat),
    Mesh(Mesh),
    Direct(Direct),
    Points(Flows),
}

impl Running {
    /// Begins what is planned as operation `sequence`; `None` when the rank is alone.
    pub(super) fn begin(plan: &Plan, parts: &Parts<'_>, sequence: u64, started: Instant) -> Option<Self> {
        let ring = parts.ring.as_deref()?;
        Some(match &plan.way {
            Way::Flat(what) => Self::Flat(Flat::new(what, sequence, started)),
            Way::Ring(steps) => Self::Ring(Self::around(ring, plan, steps, (parts.rank, sequence), started)),
            Way::Mesh(rounds) => Self::Mesh(Mesh::new(plan, rounds, ring, (parts.rank, sequence), started)),
            Way::Points(points) => Self::Points(Flows::new(points, (parts.rank, sequence), started)),
            Way::Direct(moves, _) => Self::Direct(Direct::new(moves.clone(), sequence, started)),
        })
    }

    /// What goes on when not all ranks own their memory.
    fn elsewhere<B: Buffers>(
        direct: &Direct,
        plan: &Plan,
        elsewhere: &Elsewhere,
        with: &mut With<'_, B>,
        host: &HostGroup,
    ) -> Self {
        let started = direct.started();
        match elsewhere {
            Elsewhere::Ring(steps) => {
                host.end_round();
                Self::Ring(Self::around(with.ring, plan, steps, direct.named(), started))
            }
            Elsewhere::Pieces(pieces) => {
                let mut at = At { host, buffers: with.buffers, scratch: with.scratch };
                Self::Flat(Flat::go_on(*pieces, direct.meeting(), started, &mut at))
            }
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Self::Ring(run) => run.progress(),
            Self::Flat(flat) => flat.progress(),
            Self::Mesh(mesh) => mesh.progress(),
            Self::Direct(direct) => direct.progress(),
            Self::Points(flows) => flows.progress(),
        }
    }

    fn around(ring: &RingLinks, plan: &Plan, steps: &Schedule, named: (u32, u64), started: Instant) -> Run {
        Run::new(ring, (&plan.call, steps.clone(), plan.arithmetic), named, started)
    }
}

/// A message of a rank that does not go by links wakes nobody.
fn look_aside<T>(host: Option<&HostGroup>, outcome: &Poll<T>, core: &Core) -> Option<Instant> {
    host.filter(|_| outcome.is_pending()).map(|_| core.driven() + LOOK_ASIDE_EVERY)
}

/// From now on the neighbours' silence is looked into.
pub(super) fn watch(parts: &Parts<'_>, core: &mut Core, now: Instant) {
    if let Some(ring) = &parts.ring {
        ring.watch(core, now);
    }
}

/// All that a rank does that is alone.
fn alone<B: Buffers>(plan: &Plan, buffers: &mut B, scratch: &mut Scratch) {
    match &plan.way {
        Way::Ring(steps) => {
            for step in steps.clone() {
                if let Step::Copy { span } = step {
                    buffers.copy(span, Expect::Cached);
                }
            }
        }
        Way::Mesh(rounds) => {
            for step in rounds.steps.clone() {
                if let Primitive::Copy { source, target } = step {
                    mesh::copy(buffers, [source, target], scratch);
                }
            }
        }
        Way::Points(points) => copy_own(&points.own, &mut Lent(buffers)),
        Way::Flat(_) | Way::Direct(..) => {}
    }
}

/// One look at an operation: its steps as far as they go, and its end.
pub(super) fn advance<B: Buffers>(
    running: Option<&mut Running>,
    plan: &Plan,
    parts: &mut Parts<'_>,
    core: &mut Core,
    buffers: &mut B,
) -> Poll<Result<(), CollectiveError>> {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        alone(plan, buffers, parts.scratch);
        return Poll::Ready(Ok(()));
    };
    let mut with = With { ring, host: parts.host, core, buffers, scratch: parts.scratch };
    let outcome = match (&mut *running, parts.host) {
        (Running::Ring(run), host) => {
            let outcome = run.advance(&mut with);
            *parts.look_at = look_aside(host, &outcome, with.core);
            outcome
        }
        (Running::Mesh(mesh), host) => {
            let outcome = mesh.advance(&mut with);
            *parts.look_at = look_aside(host, &outcome, with.core);
            outcome
        }
        (Running::Points(flows), _) => flows.advance(with.ring, with.core, &mut Lent(with.buffers)),
        (Running::Flat(flat), Some(host)) => {
            let outcome = flat.advance(&mut with, host);
            *parts.look_at = outcome.is_pending().then(|| flat.look_at(with.core.driven()));
            outcome
        }
        (Running::Direct(direct), Some(host)) => {
            let around = matches!(plan.way, Way::Direct(_, Elsewhere::Ring(_)));
            let outcome = direct.advance(&mut with, host, around);
            *parts.look_at = outcome.is_pending().then(|| direct.look_at(with.core.driven()));
            if let (Poll::Ready(Ok(Came::Elsewhere)), Way::Direct(_, elsewhere)) = (&outcome, &plan.way) {
                *running = Running::elsewhere(direct, plan, elsewhere, &mut with, host);
                *parts.look_at = Some(with.core.driven());
                Poll::Pending
            } else {
                outcome.map_ok(|_| ())
            }
        }
        // Nothing is planned for a group that is not there.
        (Running::Flat(_) | Running::Direct(_), None) => Poll::Pending,
    };
    let With { ring, core, .. } = with;
    conclude(running, ring, core, outcome.map_err(|stop| stop.of_its_time(parts.host)))
}

/// The same for sends and receives of memory that is borrowed.
pub(super) fn advance_points<M: flows::Memory>(
    running: Option<&mut Running>,
    points: &Points,
    parts: &mut Parts<'_>,
    core: &mut Core,
    memory: &mut M,
) -> Poll<Result<(), CollectiveError>> {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        copy_own(&points.own, memory);
        return Poll::Ready(Ok(()));
    };
    let outcome = match running {
        Running::Points(flows) => flows.advance(ring, core, memory),
        _ => Poll::Pending,
    };
    conclude(running, ring, core, outcome)
}

/// Tells the others and the caller of what has stopped it, if anything has.
fn conclude(
    running: &Running,
    ring: &mut RingLinks,
    core: &mut Core,
    outcome: Poll<Result<(), Stop>>,
) -> Poll<Result<(), CollectiveError>> {
    outcome.map(|outcome| {
        ring.unwatch(core);
        outcome.map_err(|stop| running.progress().give_up(ring, core, stop))
    })
}

/// The deadline has passed.
pub(super) fn late(running: Option<&mut Running>, parts: &mut Parts<'_>, core: &mut Core) -> CollectiveError {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        // A rank that is alone waits for nobody.
        return CollectiveError::Queued;
    };
    let awaited = match running {
        Running::Ring(run) => run.waits_for(),
        Running::Flat(flat) => flat.waits_for(ring),
        Running::Mesh(mesh) => mesh.waits_for(ring, core),
        Running::Direct(direct) => direct.waits_for(ring),
        Running::Points(flows) => flows.waits_for(ring, core),
    };
    let error = running.progress().give_up_late(ring, core, awaited);
    ring.unwatch(core);
    error
}
