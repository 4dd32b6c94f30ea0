//! An operation under way, whichever way it takes.

use std::task::Poll;
use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::flat::Flat;
use super::run::{Run, With};
use super::{Plan, Way};
use crate::collective::schedule::Step;
use crate::comm::{Core, Parts};
use crate::error::CollectiveError;

/// How often ranks of one host that go around the ring look for others that do not.
const LOOK_ASIDE_EVERY: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one of an operation, in its place")]
pub(super) enum Running {
    Ring(Run),
    Flat(Flat),
}

impl Running {
    /// Begins what is planned as operation `sequence`; `None` when the rank is alone.
    pub(super) fn begin(plan: &Plan, parts: &Parts<'_>, sequence: u64, started: Instant) -> Option<Self> {
        let ring = parts.ring.as_deref()?;
        Some(match &plan.way {
            Way::Flat(exchange) => Self::Flat(Flat::new(*exchange, sequence, started)),
            Way::Ring(steps) => {
                let planned = (&plan.call, steps.clone(), plan.arithmetic);
                Self::Ring(Run::new(ring, planned, (parts.rank, sequence), started))
            }
        })
    }
}

/// From now on the neighbours' silence is looked into.
pub(super) fn watch(parts: &Parts<'_>, core: &mut Core, now: Instant) {
    if let Some(ring) = &parts.ring {
        ring.watch(core, now);
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
        // All that a rank does that is alone.
        if let Way::Ring(steps) = &plan.way {
            for step in steps.clone() {
                if let Step::Copy { span } = step {
                    buffers.copy(span);
                }
            }
        }
        return Poll::Ready(Ok(()));
    };
    let mut with = With { ring, host: parts.host, core, buffers, scratch: parts.scratch };
    let outcome = match (&mut *running, parts.host) {
        (Running::Ring(run), host) => {
            let outcome = run.advance(&mut with);
            // A message of a rank that does not go around the ring wakes nobody.
            *parts.look_at =
                host.filter(|_| outcome.is_pending()).map(|_| with.core.driven() + LOOK_ASIDE_EVERY);
            outcome
        }
        (Running::Flat(flat), Some(host)) => {
            let outcome = flat.advance(&mut with, host);
            *parts.look_at = outcome.is_pending().then(|| flat.look_at(with.core.driven()));
            outcome
        }
        // Nothing is planned for a group that is not there.
        (Running::Flat(_), None) => Poll::Pending,
    };
    let With { ring, core, .. } = with;
    outcome.map(|outcome| {
        ring.unwatch(core);
        outcome.map_err(|stop| match running {
            Running::Ring(run) => run.progress().give_up(ring, core, stop),
            Running::Flat(flat) => flat.progress().give_up(ring, core, stop),
        })
    })
}

/// The deadline has passed.
pub(super) fn late(running: Option<&mut Running>, parts: &mut Parts<'_>, core: &mut Core) -> CollectiveError {
    let (Some(running), Some(ring)) = (running, parts.ring.as_deref_mut()) else {
        // A rank that is alone waits for nobody.
        return CollectiveError::Queued;
    };
    let (progress, awaited) = match running {
        Running::Ring(run) => (run.progress(), run.waits_for()),
        Running::Flat(flat) => (flat.progress(), flat.waits_for(ring)),
    };
    let error = progress.give_up_late(ring, core, awaited);
    ring.unwatch(core);
    error
}
