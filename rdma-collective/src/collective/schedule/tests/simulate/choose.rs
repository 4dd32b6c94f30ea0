//! Choosers of the next action in a [`World`]: chance, adversaries, or exhaustive search.

use std::collections::HashSet;

use super::{Action, World};
use crate::collective::schedule::{Staging, Step};

/// Stagings so small that few elements already make rounds, chunks and wrapping slots.
pub(in crate::collective::schedule) const STAGINGS: [Staging; 5] = [
    Staging { slots: 1, slot_bytes: 4, chunk_bytes_min: 1 },
    Staging { slots: 2, slot_bytes: 8, chunk_bytes_min: 1 },
    Staging { slots: 3, slot_bytes: 64, chunk_bytes_min: 8 },
    Staging { slots: 4, slot_bytes: 8, chunk_bytes_min: 1 },
    Staging { slots: 8, slot_bytes: 12, chunk_bytes_min: 4 },
];

/// The deterministic choosers, each of which delays something as long as it can.
pub(in crate::collective::schedule) const ADVERSARIES: [fn(&[Action]) -> usize; 3] =
    [steps_first, deliveries_first, newest_first];

/// Runs to the end, always taking what `choose` picks of the actions that are possible.
pub(in crate::collective::schedule) fn run<P: Iterator<Item = Step> + Clone>(
    world: &mut World<P>,
    mut choose: impl FnMut(&[Action]) -> usize,
) {
    let mut actions = Vec::new();
    loop {
        actions.clear();
        actions.extend(world.actions());
        if actions.is_empty() {
            return;
        }
        world.act(actions[choose(&actions)]);
    }
}

/// Small numbers from a seed; good enough to pick actions.
pub(in crate::collective::schedule) fn random(mut seed: u64) -> impl FnMut(&[Action]) -> usize {
    move |actions| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % actions.len() as u64) as usize
    }
}

/// Nothing arrives as long as a rank can go on, and low ranks go first.
fn steps_first(_: &[Action]) -> usize {
    0
}

/// Everything arrives before a rank goes on, and high ranks go first.
fn deliveries_first(actions: &[Action]) -> usize {
    actions.len() - 1
}

/// The newest message arrives first, and credits arrive as late as possible.
fn newest_first(actions: &[Action]) -> usize {
    actions.iter().rposition(|action| matches!(action, Action::Arrive(..))).unwrap_or(0)
}

/// Every reachable state, by depth-first search; `check` holds each end. Returns how many states there are.
pub(in crate::collective::schedule) fn explore<P: Iterator<Item = Step> + Clone>(
    start: World<P>,
    check: impl Fn(&World<P>),
) -> usize {
    let mut seen = HashSet::from([start.key()]);
    let mut stack = vec![start];
    while let Some(world) = stack.pop() {
        let actions: Vec<Action> = world.actions().collect();
        if actions.is_empty() {
            check(&world);
        }
        for action in actions {
            let mut next = world.clone();
            next.act(action);
            if seen.insert(next.key()) {
                stack.push(next);
            }
        }
    }
    seen.len()
}
