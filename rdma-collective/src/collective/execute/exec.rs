//! An operation under way, whichever way it takes.

use std::task::Poll;
use std::time::{Duration, Instant};

use rdma_core::memory::CacheHint;

use super::buffers::Buffers;
use super::eager::EagerExchange;
use super::p2p::{self, P2pExec};
use super::pipeline::ShmContext;
use super::plan::{ExecutionPlan, Fallback, Plan};
use super::ring_exec::{ExecContext, RingExec};
use super::send_recv::{self, Lent, SendRecvExec, copy_own};
use super::stop::{Progress, Stop};
use super::zero_copy::{Outcome, ZeroCopy};
use crate::collective::CollectiveError;
use crate::collective::communicator::{CommContext, HostGroup, RingLinks, Scratch};
use crate::collective::schedule::{Primitive, Schedule, Step};
use crate::collective::send_recv_set::SendRecvSet;
use crate::engine::EngineState;

/// How often ranks of one host that go by links look for others that do not.
const LOOK_ASIDE_EVERY: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of an operation, in its place")]
pub(super) enum Exec {
    Ring(RingExec),
    Shm(EagerExchange),
    P2p(P2pExec),
    ZeroCopy(ZeroCopy),
    SendRecv(SendRecvExec),
}

impl Exec {
    /// Begins what is planned as operation `sequence`; `None` when the rank is alone.
    pub(super) fn begin(
        plan: &Plan,
        parts: &CommContext<'_>,
        sequence: u64,
        started: Instant,
    ) -> Option<Self> {
        let ring = parts.ring.as_deref()?;
        Some(match &plan.execution {
            ExecutionPlan::Shm(what) => Self::Shm(EagerExchange::new(what, sequence, started)),
            ExecutionPlan::Ring(steps) => {
                Self::Ring(Self::around(ring, plan, steps, (parts.rank, sequence), started))
            }
            ExecutionPlan::P2p(rounds) => {
                Self::P2p(P2pExec::new(plan, rounds, ring, (parts.rank, sequence), started))
            }
            ExecutionPlan::SendRecv(points) => {
                Self::SendRecv(SendRecvExec::new(points, (parts.rank, sequence), started))
            }
            ExecutionPlan::ZeroCopy(moves, _) => {
                Self::ZeroCopy(ZeroCopy::new(moves.clone(), sequence, started))
            }
        })
    }

    /// What goes on when not all ranks own their memory.
    fn elsewhere<B: Buffers>(
        direct: &ZeroCopy,
        plan: &Plan,
        elsewhere: &Fallback,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Self {
        let started = direct.started();
        match elsewhere {
            Fallback::Ring(steps) => {
                host.end_round();
                Self::Ring(Self::around(with.ring, plan, steps, direct.named(), started))
            }
            Fallback::Pipelined(pieces) => {
                let mut at = ShmContext { host, buffers: with.buffers, scratch: with.scratch };
                Self::Shm(EagerExchange::go_on(*pieces, direct.meeting(), started, &mut at))
            }
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Self::Ring(run) => run.progress(),
            Self::Shm(flat) => flat.progress(),
            Self::P2p(mesh) => mesh.progress(),
            Self::ZeroCopy(direct) => direct.progress(),
            Self::SendRecv(flows) => flows.progress(),
        }
    }

    fn around(
        ring: &RingLinks,
        plan: &Plan,
        steps: &Schedule,
        named: (u32, u64),
        started: Instant,
    ) -> RingExec {
        RingExec::new(ring, (&plan.call, steps.clone(), plan.arithmetic), named, started)
    }
}

/// A message of a rank that does not go by links wakes nobody.
fn look_aside<T>(host: Option<&HostGroup>, outcome: &Poll<T>, core: &EngineState) -> Option<Instant> {
    host.filter(|_| outcome.is_pending()).map(|_| core.now() + LOOK_ASIDE_EVERY)
}

/// From now on the neighbours' silence is looked into.
pub(super) fn watch(parts: &CommContext<'_>, core: &mut EngineState, now: Instant) {
    if let Some(ring) = &parts.ring {
        ring.watch(core, now);
    }
}

/// All that a rank does that is alone.
fn alone<B: Buffers>(plan: &Plan, buffers: &mut B, scratch: &mut Scratch) {
    match &plan.execution {
        ExecutionPlan::Ring(steps) => {
            for step in steps.clone() {
                if let Step::Copy { span } = step {
                    buffers.copy(span, CacheHint::Cached);
                }
            }
        }
        ExecutionPlan::P2p(rounds) => {
            for step in rounds.steps.clone() {
                if let Primitive::Copy { source, target } = step {
                    p2p::copy(buffers, [source, target], scratch);
                }
            }
        }
        ExecutionPlan::SendRecv(points) => copy_own(&points.own, &mut Lent(buffers)),
        ExecutionPlan::Shm(_) | ExecutionPlan::ZeroCopy(..) => {}
    }
}

/// One look at an operation: its steps as far as they go, and its end.
pub(super) fn advance<B: Buffers>(
    running: Option<&mut Exec>,
    plan: &Plan,
    parts: &mut CommContext<'_>,
    core: &mut EngineState,
    buffers: &mut B,
) -> Poll<Result<(), CollectiveError>> {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        alone(plan, buffers, parts.scratch);
        return Poll::Ready(Ok(()));
    };
    let mut with = ExecContext { ring, host: parts.host, core, buffers, scratch: parts.scratch };
    let outcome = match (&mut *running, parts.host) {
        (Exec::Ring(run), host) => {
            let outcome = run.advance(&mut with);
            *parts.look_at = look_aside(host, &outcome, with.core);
            outcome
        }
        (Exec::P2p(mesh), host) => {
            let outcome = mesh.advance(&mut with);
            *parts.look_at = look_aside(host, &outcome, with.core);
            outcome
        }
        (Exec::SendRecv(flows), _) => flows.advance(with.ring, with.core, &mut Lent(with.buffers)),
        (Exec::Shm(flat), Some(host)) => {
            let outcome = flat.advance(&mut with, host);
            *parts.look_at = outcome.is_pending().then(|| flat.look_at(with.core.now()));
            outcome
        }
        (Exec::ZeroCopy(direct), Some(host)) => {
            let around = matches!(plan.execution, ExecutionPlan::ZeroCopy(_, Fallback::Ring(_)));
            let outcome = direct.advance(&mut with, host, around);
            *parts.look_at = outcome.is_pending().then(|| direct.look_at(with.core.now()));
            if let (Poll::Ready(Ok(Outcome::Fallback)), ExecutionPlan::ZeroCopy(_, elsewhere)) =
                (&outcome, &plan.execution)
            {
                *running = Exec::elsewhere(direct, plan, elsewhere, &mut with, host);
                *parts.look_at = Some(with.core.now());
                Poll::Pending
            } else {
                outcome.map_ok(|_| ())
            }
        }
        // Nothing is planned for a group that is not there.
        (Exec::Shm(_) | Exec::ZeroCopy(_), None) => Poll::Pending,
    };
    let ExecContext { ring, core, .. } = with;
    conclude(running, ring, core, outcome.map_err(|stop| stop.of_its_time(parts.host)))
}

/// The same for sends and receives of memory that is borrowed.
pub(super) fn advance_points<M: send_recv::SendRecvBuffers>(
    running: Option<&mut Exec>,
    points: &SendRecvSet,
    parts: &mut CommContext<'_>,
    core: &mut EngineState,
    memory: &mut M,
) -> Poll<Result<(), CollectiveError>> {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        copy_own(&points.own, memory);
        return Poll::Ready(Ok(()));
    };
    let outcome = match running {
        Exec::SendRecv(flows) => flows.advance(ring, core, memory),
        _ => Poll::Pending,
    };
    conclude(running, ring, core, outcome)
}

/// Tells the others and the caller of what has stopped it, if anything has.
fn conclude(
    running: &Exec,
    ring: &mut RingLinks,
    core: &mut EngineState,
    outcome: Poll<Result<(), Stop>>,
) -> Poll<Result<(), CollectiveError>> {
    outcome.map(|outcome| {
        ring.unwatch(core);
        outcome.map_err(|stop| running.progress().give_up(ring, core, stop))
    })
}

/// The deadline has passed.
pub(super) fn late(
    running: Option<&mut Exec>,
    parts: &mut CommContext<'_>,
    core: &mut EngineState,
) -> CollectiveError {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        // A rank that is alone waits for nobody.
        return CollectiveError::Queued;
    };
    let awaited = match running {
        Exec::Ring(run) => run.waits_for(),
        Exec::Shm(flat) => flat.waits_for(ring),
        Exec::P2p(mesh) => mesh.waits_for(ring, core),
        Exec::ZeroCopy(direct) => direct.waits_for(ring),
        Exec::SendRecv(flows) => flows.waits_for(ring, core),
    };
    let error = running.progress().give_up_late(ring, core, awaited);
    ring.unwatch(core);
    error
}
