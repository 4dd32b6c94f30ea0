//! The executor of an operation under way, whichever algorithm and protocol its plan chose.
//!
//! This file dispatches to the executor of the protocol, and reports how an operation ended. Each executor has a file
//! of its own: `link_exec`, `eager` and `zero_copy`.

use std::task::Poll;
use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::eager::ShmExec;
use super::link_exec::{self, ExecContext, LinkExec};
use super::pipeline::ShmContext;
use super::plan::{ExecutionPlan, Fallback, Participants, Plan};
use super::stop::{Progress, Stop};
use super::zero_copy::{Outcome, ZeroCopy};
use crate::collective::CollectiveError;
use crate::collective::communicator::{CommContext, HostGroup, Links, Scratch};
use crate::collective::schedule::{Schedule, Step};
use crate::engine::EngineState;

/// How often an operation over links looks for ranks of its host that chose shared memory instead. Only a
/// mismatch of calls leads there, so a late look delays no operation that can succeed.
const LOOK_ASIDE_EVERY: Duration = Duration::from_millis(20);

/// The executor of one operation.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of an operation, in its place")]
pub(super) enum Exec {
    Links(LinkExec),
    Shm(ShmExec),
    ZeroCopy(ZeroCopy),
}

impl Exec {
    /// Makes the executor of `plan`, as operation `sequence`; `None` in a communicator of one rank, and for a group of
    /// no transfers.
    pub(super) fn begin(
        plan: &Plan,
        parts: &CommContext<'_>,
        sequence: u64,
        started: Instant,
    ) -> Option<Self> {
        parts.links.as_deref()?;
        Some(match &plan.execution {
            ExecutionPlan::Shm(plan) => Self::Shm(ShmExec::new(plan, sequence, started)),
            ExecutionPlan::Links(over) => {
                Self::Links(LinkExec::new(plan, over, (parts.rank, sequence), started))
            }
            ExecutionPlan::SendRecv(set) => {
                Self::Links(LinkExec::of_set(plan, set, (parts.rank, sequence), started)?)
            }
            ExecutionPlan::ZeroCopy(moves, _) => {
                Self::ZeroCopy(ZeroCopy::new(moves.clone(), sequence, started))
            }
        })
    }

    /// The executor that continues a zero-copy operation when some rank's memory is borrowed.
    ///
    /// All ranks have read the same adverts in the header exchange, so all of them fall back.
    fn elsewhere<B: Buffers>(
        direct: &ZeroCopy,
        plan: &Plan,
        elsewhere: &Fallback,
        with: &mut ExecContext<'_, B>,
        host: &HostGroup,
    ) -> Self {
        let started = direct.started();
        match elsewhere {
            Fallback::Ring(around) => {
                // The ring does not use the round of the header exchange, so nobody else would end it.
                host.end_round();
                Self::Links(LinkExec::new(plan, around, direct.named(), started))
            }
            Fallback::Pipelined(pieces) => {
                let mut at = ShmContext { host, buffers: with.buffers, scratch: with.scratch };
                Self::Shm(ShmExec::after_fallback(*pieces, direct.headers(), started, &mut at))
            }
        }
    }

    fn progress(&self) -> Progress {
        match self {
            Self::Links(exec) => exec.progress(),
            Self::Shm(exchange) => exchange.progress(),
            Self::ZeroCopy(direct) => direct.progress(),
        }
    }
}

/// The time of the next look at the windows of the host, if the operation is not done. A message in a window wakes
/// nobody, so the engine would otherwise sleep until its deadline.
fn look_aside<T>(host: Option<&HostGroup>, outcome: &Poll<T>, core: &EngineState) -> Option<Instant> {
    host.filter(|_| outcome.is_pending()).map(|_| core.now() + LOOK_ASIDE_EVERY)
}

/// Starts to check that the peers are alive.
pub(super) fn watch(parts: &CommContext<'_>, core: &mut EngineState, now: Instant) {
    if let Some(links) = &parts.links {
        links.watch(core, now);
    }
}

/// Carries out the plan of a communicator of one rank: only copies from input to output are left.
fn alone<B: Buffers>(plan: &Plan, (buffers, more): (&mut B, &mut [B]), scratch: &mut Scratch) {
    let mut copy = |steps: Schedule, index| {
        let buffers = link_exec::buffers_at(index, buffers, more);
        for step in steps {
            if let Step::Copy { source, target } = step {
                link_exec::copy(buffers, [source, target], scratch);
            }
        }
    };
    match &plan.execution {
        ExecutionPlan::Links(over) => copy(over.steps.clone(), 0),
        ExecutionPlan::SendRecv(set) => {
            set.strands.values().flatten().for_each(|point| copy(point.steps(), point.buffer));
        }
        // Both need a second rank on the host, so neither is planned for one rank.
        ExecutionPlan::Shm(_) | ExecutionPlan::ZeroCopy(..) => {}
    }
}

/// Advances an operation as far as it can go now, and reports its end. Of a group of transfers, `more` are the buffers
/// behind the first one.
pub(super) fn advance<B: Buffers>(
    running: Option<&mut Exec>,
    plan: &Plan,
    parts: &mut CommContext<'_>,
    core: &mut EngineState,
    (buffers, more): (&mut B, &mut [B]),
) -> Poll<Result<(), CollectiveError>> {
    // Without an executor or links the communicator has one rank, and the operation ends at once.
    let (Some(running), Some(links)) = (running, parts.links.as_deref_mut()) else {
        alone(plan, (buffers, more), parts.scratch);
        return Poll::Ready(Ok(()));
    };
    // Sends and receives are apart from what the windows of the host tell.
    let host = parts.host.filter(|_| plan.execution.participants() == Participants::All);
    let mut with = ExecContext { links, host, core, buffers, more, scratch: parts.scratch };
    let outcome = match (&mut *running, host) {
        (Exec::Links(exec), host) => {
            let outcome = exec.advance(&mut with);
            *parts.look_at = look_aside(host, &outcome, with.core);
            outcome
        }
        (Exec::Shm(exchange), Some(host)) => {
            let outcome = exchange.advance(&mut with, host);
            *parts.look_at = outcome.is_pending().then(|| exchange.look_at(with.core.now()));
            outcome
        }
        (Exec::ZeroCopy(direct), Some(host)) => {
            let around = matches!(plan.execution, ExecutionPlan::ZeroCopy(_, Fallback::Ring(_)));
            let outcome = direct.advance(&mut with, host, around);
            *parts.look_at = outcome.is_pending().then(|| direct.look_at(with.core.now()));
            if let (Poll::Ready(Ok(Outcome::Fallback)), ExecutionPlan::ZeroCopy(_, elsewhere)) =
                (&outcome, &plan.execution)
            {
                // Replaced in place: the operation keeps its sequence number, start and deadline.
                *running = Exec::elsewhere(direct, plan, elsewhere, &mut with, host);
                // The new executor has done nothing yet, and nothing would wake the engine to drive it.
                *parts.look_at = Some(with.core.now());
                Poll::Pending
            } else {
                outcome.map_ok(|_| ())
            }
        }
        // No such plan is made without a host group.
        (Exec::Shm(_) | Exec::ZeroCopy(_), None) => Poll::Pending,
    };
    let ExecContext { links, core, .. } = with;
    // A mismatch may be with an earlier operation of this rank; the error must name what was called then.
    let outcome = outcome.map_err(|stop| stop.of_its_time(parts.host, links));
    conclude(running, links, core, outcome)
}

/// Ends the wait for the peers if the operation has ended; a failure is passed on to them and returned to the caller.
fn conclude(
    running: &Exec,
    links: &mut Links,
    core: &mut EngineState,
    outcome: Poll<Result<(), Stop>>,
) -> Poll<Result<(), CollectiveError>> {
    outcome.map(|outcome| {
        // The peers' silence must not count between operations: a peer may compute for long before its next call.
        links.unwatch(core);
        outcome.map_err(|stop| running.progress().give_up(links, core, stop))
    })
}

/// Ends an operation whose deadline has passed: tells the other ranks, and returns the error with the late rank.
pub(super) fn late(
    running: Option<&mut Exec>,
    parts: &mut CommContext<'_>,
    core: &mut EngineState,
) -> CollectiveError {
    let (Some(running), Some(links)) = (running, parts.links.as_deref_mut()) else {
        // A rank that is alone waits for nobody, so only the queue can have made it late.
        return CollectiveError::Queued;
    };
    let awaited = match running {
        Exec::Links(exec) => exec.waits_for(links, core),
        Exec::Shm(exchange) => exchange.waits_for(links),
        Exec::ZeroCopy(direct) => direct.waits_for(links),
    };
    let error = running.progress().give_up_late(links, core, awaited);
    // Only now: `give_up_late` finds the late rank in the wait graph, which `unwatch` clears.
    links.unwatch(core);
    error
}
