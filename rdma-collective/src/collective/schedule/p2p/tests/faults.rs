//! Planted faults: the checks must catch each wrong schedule.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::call::{Call, world};
use crate::collective::schedule::tests::simulate::Action;
use crate::collective::schedule::tests::simulate::choose::{ADVERSARIES, random, run};
use crate::collective::schedule::{Staging, Step};

const STAGING: Staging = Staging { slots: 2, slot_bytes: 8, chunk_bytes_min: 1 };

/// Whether one of the interleavings tried shows that the steps are wrong.
fn is_caught(call: Call, programs: &[Vec<Step>], count: usize, in_place: bool) -> bool {
    let ranks = programs.len() as u32;
    let ends_right = |choose: &mut dyn FnMut(&[_]) -> usize| {
        let programs: Vec<_> = programs.iter().map(|steps| steps.clone().into_iter()).collect();
        let mut world = world(call, programs, count, STAGING, in_place);
        run(&mut world, choose);
        call.assert_ended(&world, ranks, count);
    };
    let ends_right = |choose: &mut dyn FnMut(&[Action]) -> usize| {
        catch_unwind(AssertUnwindSafe(|| ends_right(choose))).is_ok()
    };
    let adversaries = ADVERSARIES.into_iter().all(|mut choose| ends_right(&mut choose));
    // Each link in turn delivers nothing as long as anything else may happen.
    let mut links = (0..programs.len()).flat_map(|from| (0..programs.len()).map(move |to| (from, to)));
    let late = |link: (usize, usize)| {
        let other = |action: &Action| !matches!(action, Action::Arrive(on, _) if *on == link);
        ends_right(&mut |actions: &[Action]| actions.iter().position(other).unwrap_or(0))
    };
    !(adversaries && links.all(late) && (1..300).all(|seed| ends_right(&mut random(seed))))
}

fn steps(call: Call, ranks: u32, count: usize) -> Vec<Vec<Step>> {
    call.programs(ranks, count, STAGING).into_iter().map(Iterator::collect).collect()
}

/// Every way to change one step of one rank, as far as `change` does.
fn changed(steps: &[Vec<Step>], change: impl Fn(&mut Vec<Step>, usize) -> bool) -> Vec<Vec<Vec<Step>>> {
    let places = steps.iter().enumerate().flat_map(|(rank, own)| (0..own.len()).map(move |at| (rank, at)));
    let change = |(rank, at): (usize, usize)| {
        let mut wrong = steps.to_vec();
        change(&mut wrong[rank], at).then_some(wrong)
    };
    places.filter_map(change).collect()
}

/// Calls of some ranks and elements, with their steps, which are right.
fn right_ones() -> Vec<(Call, usize, Vec<Vec<Step>>)> {
    let right = |ranks| Call::all(ranks).into_iter().map(move |call| (call, 3, steps(call, ranks, 3)));
    let all: Vec<_> = [3, 4].into_iter().flat_map(right).collect();
    for (call, count, steps) in &all {
        assert!(
            !is_caught(*call, steps, *count, true) && !is_caught(*call, steps, *count, false),
            "{call:?}"
        );
    }
    all
}

#[test]
fn a_step_that_is_left_out() {
    for (call, count, steps) in right_ones() {
        // Out of place, since a copy in place does nothing.
        let wrong = changed(&steps, |steps, at| {
            let gone = steps.remove(at);
            let Step::Signal { to, .. } = gone else { return true };
            // A later one gives back the same slots.
            !steps[at..].iter().any(|step| matches!(step, Step::Signal { to: later, .. } if *later == to))
        });
        for wrong in wrong {
            assert!(is_caught(call, &wrong, count, false), "{call:?} as {wrong:?}");
        }
    }
}

#[test]
fn a_message_to_another_rank() {
    for (call, count, steps) in right_ones() {
        let ranks = steps.len() as u32;
        let wrong = changed(&steps, |steps, at| {
            let Step::Put { to, .. } = &mut steps[at] else { return false };
            *to = (*to + 1) % ranks;
            true
        });
        assert!(!wrong.is_empty());
        for wrong in wrong {
            assert!(is_caught(call, &wrong, count, false), "{call:?} as {wrong:?}");
        }
    }
}

#[test]
fn a_source_that_is_changed_before_its_message_has_arrived() {
    // Bruck's, and what others keep of one piece when they do the next.
    let two_trees = Call::TwoTrees { root: 0, reduces: true };
    let doubling = Call::Halving { halvings: 0 };
    let others = [Call::Bruck, Call::Reduce { root: 0 }, Call::Gather { root: 0 }, Call::ReduceScatter];
    for call in others.into_iter().chain([Call::Pairs, two_trees, doubling]) {
        let (count, steps) = (20, steps(call, 4, 20));
        let early = steps.iter().map(|steps| {
            let not_copied = |step: &Step| match *step {
                Step::Put { to, message, source, .. } => Step::Put { to, message, source, copied: false },
                other => other,
            };
            steps.iter().map(not_copied).collect()
        });
        assert!(is_caught(call, &early.collect::<Vec<_>>(), count, true), "{call:?}");
    }
}

#[test]
fn a_slot_that_is_given_back_before_it_was_read() {
    for (call, count, steps) in right_ones() {
        let wrong = changed(&steps, |steps, at| {
            let early = matches!(steps[at], Step::Signal { .. }) && at > 0;
            if early {
                steps.swap(at - 1, at);
            }
            early
        });
        assert!(!wrong.is_empty());
        for wrong in wrong {
            assert!(is_caught(call, &wrong, count, false), "{call:?} as {wrong:?}");
        }
    }
}

#[test]
fn a_message_that_is_read_before_it_was_waited_for() {
    for (call, count, steps) in right_ones() {
        let wrong = changed(&steps, |steps, at| {
            let early = matches!(steps[at], Step::WaitCount { .. });
            if early {
                steps.swap(at, at + 1);
            }
            early
        });
        for wrong in wrong {
            assert!(is_caught(call, &wrong, count, false), "{call:?} as {wrong:?}");
        }
    }
}
