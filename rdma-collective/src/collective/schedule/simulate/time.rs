//! How long a schedule takes when a message costs `alpha + beta * bytes` and arithmetic `gamma * bytes`.
//!
//! Every rank takes its steps in order and every link has one sender, so the time does not depend on the order
//! in which ranks are looked at: they run one after the other as far as each can.

use std::collections::HashMap;

use crate::collective::schedule::Step;

/// The costs of a link and of a processor.
#[derive(Clone, Copy, Debug)]
pub(in crate::collective::schedule) struct Costs {
    /// Nanoseconds from the end of a write to its arrival, and of a credit.
    pub(in crate::collective::schedule) alpha: f64,
    /// Nanoseconds a byte on the link.
    pub(in crate::collective::schedule) beta: f64,
    /// Nanoseconds a byte to reduce or to copy.
    pub(in crate::collective::schedule) gamma: f64,
}

#[derive(Default)]
struct Link {
    idle_at: f64,
    arrivals: HashMap<u64, f64>,
    /// When the sender learns that so many messages were given back.
    credits: Vec<(u64, f64)>,
}

/// Nanoseconds until the last rank has taken its last step.
pub(in crate::collective::schedule) fn time<P: Iterator<Item = Step>>(
    programs: impl IntoIterator<Item = P>,
    slots: u16,
    costs: Costs,
) -> f64 {
    let mut programs: Vec<_> = programs.into_iter().map(Iterator::peekable).collect();
    let ranks = programs.len();
    let mut clocks = vec![0.0_f64; ranks];
    let mut links: Vec<Link> = (0..ranks).map(|_| Link::default()).collect();
    loop {
        let mut progress = false;
        for rank in 0..ranks {
            while let Some(&step) = programs[rank].peek() {
                let Some(clock) = take(step, rank, clocks[rank], &mut links, slots, costs) else { break };
                clocks[rank] = clock;
                programs[rank].next();
                progress = true;
            }
        }
        if !progress {
            assert!(programs.iter_mut().all(|program| program.peek().is_none()), "stuck");
            return clocks.into_iter().fold(0.0, f64::max);
        }
    }
}

/// The rank's clock after the step, or `None` when it has to wait for what is not yet known.
fn take(step: Step, rank: usize, clock: f64, links: &mut [Link], slots: u16, costs: Costs) -> Option<f64> {
    Some(match step {
        Step::Put { message, span, .. } => {
            let link = &mut links[rank];
            let needed = (message + 1).saturating_sub(slots.into());
            let credit = if needed == 0 {
                0.0
            } else {
                link.credits.iter().find(|(consumed, _)| *consumed >= needed)?.1
            };
            let clock = clock.max(credit);
            link.idle_at = link.idle_at.max(clock) + costs.beta * span.len as f64;
            link.arrivals.insert(message, link.idle_at + costs.alpha);
            clock
        }
        Step::WaitCount { from, message } => clock.max(*links[from as usize].arrivals.get(&message)?),
        Step::ReduceFrom { span, .. } | Step::CopyFrom { span, .. } | Step::Copy { span } => {
            clock + costs.gamma * span.len as f64
        }
        Step::Signal { to, consumed } => {
            links[to as usize].credits.push((consumed, clock + costs.alpha));
            clock
        }
    })
}
