//! The record of who drives an engine and who sleeps for it: three small machines, with their tables. All three are
//! pure: the time is passed in, and the caller of a change sends the signals.
//!
//! Three and not one, because each changes without the others: the engine's thread may be away or asleep whether or not
//! a caller sleeps, and a caller's event loop knows of neither. A dash is a pair that must not be.
//!
//! | [`ThreadState`] | `StepBack` | `Sleep`  | `Return` |
//! |-----------------|------------|----------|----------|
//! | `Awake`         | `Away`     | `Asleep` | `Awake`  |
//! | `Away`          | –          | –        | `Awake`  |
//! | `Asleep`        | –          | –        | `Awake`  |
//!
//! | [`Sleeper`]  | `ThreadSleeps` | `ThreadWakes` | `LeaderSleeps` | `LeaderWakes` | `News`       |
//! |--------------|----------------|---------------|----------------|---------------|--------------|
//! | `Nobody`     | `Thread`       | `Nobody`      | `Leader`       | –             | `Nobody`     |
//! | `Thread`     | –              | `Nobody`      | –              | –             | `Thread`     |
//! | `Leader`     | `Leader`       | `Leader`      | –              | `Nobody`      | `ToldLeader` |
//! | `ToldLeader` | `ToldLeader`   | `ToldLeader`  | –              | `Nobody`      | `ToldLeader` |
//!
//! | [`EventLoop`] | `Arm`   | `News`    |
//! |---------------|---------|-----------|
//! | `Unarmed`     | `Armed` | `Missed`  |
//! | `Armed`       | `Armed` | `Unarmed` |
//! | `Missed`      | `Armed` | `Missed`  |

use std::fmt::Debug;
use std::time::Instant;

/// The record of who drives an engine and who sleeps for it, behind the engine's lock.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    /// Callers in a blocking call.
    pub(super) waiting: u32,
    /// Drives by callers, counted; the thread sees by it that callers are active.
    pub(super) visits: u64,
    /// Operations that were begun and left to their callers, counted.
    pub(super) left: u64,
    thread: ThreadState,
    sleeper: Sleeper,
    event_loop: EventLoop,
}

/// The engine's own thread.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum ThreadState {
    /// The thread drives, or the engine has none.
    #[default]
    Awake,
    /// The thread has stepped back and leaves the engine to callers until then, unless it is nudged.
    Away { until: Instant },
    /// The thread sleeps for an event until then, unless it is nudged.
    Asleep { until: Instant },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ThreadEvent {
    StepBack { until: Instant },
    Sleep { until: Instant },
    Return,
}

/// The thread that sleeps by the engine's descriptor for all. While there is one, other callers follow it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleeper {
    #[default]
    Nobody,
    /// The engine's own thread.
    Thread,
    /// A caller. The engine's own thread may sleep beside it, because that thread follows nobody.
    Leader,
    /// A caller that was woken and has not come back yet. It is woken once.
    ToldLeader,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum SleeperEvent {
    ThreadSleeps,
    ThreadWakes,
    LeaderSleeps,
    LeaderWakes,
    /// Something was found that others may wait for.
    News,
}

/// The event loop of a caller, which sleeps by the callers' descriptor.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventLoop {
    /// Nobody has armed the descriptor since the last news.
    #[default]
    Unarmed,
    /// A caller has armed the descriptor, and the next news wakes it.
    Armed,
    /// News found nobody armed; the next caller that arms is woken at once.
    Missed,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum LoopEvent {
    Arm,
    News,
}

impl Attendance {
    pub(super) fn sleeper(&self) -> Sleeper {
        self.sleeper
    }

    /// Whether the thread must be woken: no caller waits, and something is due before the thread would look by itself.
    /// A thread that is away comes back for any operation that is no caller's, too.
    pub(super) fn needs_thread(
        &self,
        due: impl FnOnce() -> Option<Instant>,
        is_engaged: impl FnOnce() -> bool,
    ) -> bool {
        let (until, is_away) = match self.thread {
            ThreadState::Away { until } if self.waiting == 0 => (until, true),
            ThreadState::Asleep { until } if self.waiting == 0 => (until, false),
            _ => return false,
        };
        due().is_some_and(|due| due < until) || is_away && is_engaged()
    }

    pub(super) fn on_thread(&mut self, event: ThreadEvent) {
        change(&mut self.thread, event, ThreadState::on);
    }

    /// Returns the sleeper before the event. A [`Leader`](Sleeper::Leader) is to be woken at news.
    pub(super) fn on_sleeper(&mut self, event: SleeperEvent) -> Sleeper {
        change(&mut self.sleeper, event, Sleeper::on)
    }

    /// Returns the loop's state before the event. One that was [`Armed`](EventLoop::Armed) is to be woken at news, and
    /// one that has [`Missed`](EventLoop::Missed) some when it arms.
    pub(super) fn on_event_loop(&mut self, event: LoopEvent) -> EventLoop {
        change(&mut self.event_loop, event, |state, event| Some(state.on(event)))
    }
}

/// Changes `state` by `event`, and returns the state before.
fn change<S: Copy + Debug, E: Copy + Debug>(state: &mut S, event: E, on: fn(S, E) -> Option<S>) -> S {
    let before = *state;
    match on(before, event) {
        Some(next) => *state = next,
        // The sleepers' own timeouts bound the wait of all others, whatever the record says.
        None => debug_assert!(false, "{event:?} in {before:?}"),
    }
    before
}

impl ThreadState {
    fn on(self, event: ThreadEvent) -> Option<Self> {
        match (self, event) {
            (Self::Awake, ThreadEvent::StepBack { until }) => Some(Self::Away { until }),
            (Self::Awake, ThreadEvent::Sleep { until }) => Some(Self::Asleep { until }),
            // Also a thread that has found work, and looks again.
            (_, ThreadEvent::Return) => Some(Self::Awake),
            _ => None,
        }
    }
}

impl Sleeper {
    fn on(self, event: SleeperEvent) -> Option<Self> {
        match (self, event) {
            (Self::Nobody, SleeperEvent::ThreadSleeps) => Some(Self::Thread),
            (Self::Nobody, SleeperEvent::LeaderSleeps) => Some(Self::Leader),
            (Self::Nobody | Self::Thread, SleeperEvent::ThreadWakes) => Some(Self::Nobody),
            (Self::Leader | Self::ToldLeader, SleeperEvent::LeaderWakes) => Some(Self::Nobody),
            (Self::Leader, SleeperEvent::News) => Some(Self::ToldLeader),
            // The thread comes and goes beside a leader, and nobody but a leader is told.
            (Self::Leader | Self::ToldLeader, SleeperEvent::ThreadSleeps | SleeperEvent::ThreadWakes)
            | (_, SleeperEvent::News) => Some(self),
            _ => None,
        }
    }
}

impl EventLoop {
    fn on(self, event: LoopEvent) -> Self {
        match (self, event) {
            (_, LoopEvent::Arm) => Self::Armed,
            (Self::Armed, LoopEvent::News) => Self::Unarmed,
            (Self::Unarmed | Self::Missed, LoopEvent::News) => Self::Missed,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_thread_steps_back_or_sleeps_and_returns() {
        use ThreadState::{Asleep, Awake, Away};
        let until = Instant::now();
        let events = [ThreadEvent::StepBack { until }, ThreadEvent::Sleep { until }, ThreadEvent::Return];
        // The columns are in the order of `events`.
        let table = [
            (Awake, [Some(Away { until }), Some(Asleep { until }), Some(Awake)]),
            (Away { until }, [None, None, Some(Awake)]),
            (Asleep { until }, [None, None, Some(Awake)]),
        ];
        for (state, row) in table {
            assert_eq!(events.map(|event| state.on(event)), row, "{state:?}");
        }
    }

    #[test]
    fn one_thread_sleeps_for_all_and_a_caller_that_does_is_told_once() {
        use Sleeper::{Leader, Nobody, Thread, ToldLeader};
        use SleeperEvent::{LeaderSleeps, LeaderWakes, News, ThreadSleeps, ThreadWakes};
        let events = [ThreadSleeps, ThreadWakes, LeaderSleeps, LeaderWakes, News];
        // The columns are in the order of `events`.
        let table = [
            (Nobody, [Some(Thread), Some(Nobody), Some(Leader), None, Some(Nobody)]),
            (Thread, [None, Some(Nobody), None, None, Some(Thread)]),
            (Leader, [Some(Leader), Some(Leader), None, Some(Nobody), Some(ToldLeader)]),
            (ToldLeader, [Some(ToldLeader), Some(ToldLeader), None, Some(Nobody), Some(ToldLeader)]),
        ];
        for (state, row) in table {
            assert_eq!(events.map(|event| state.on(event)), row, "{state:?}");
        }
    }

    #[test]
    fn no_news_is_lost_to_an_event_loop_that_arms_later() {
        use EventLoop::{Armed, Missed, Unarmed};
        let table = [(Unarmed, [Armed, Missed]), (Armed, [Armed, Unarmed]), (Missed, [Armed, Missed])];
        for (state, row) in table {
            assert_eq!([LoopEvent::Arm, LoopEvent::News].map(|event| state.on(event)), row, "{state:?}");
        }
    }

    #[test]
    fn a_thread_is_needed_for_what_is_due_before_it_looks_and_when_away_for_what_is_no_callers() {
        let now = Instant::now();
        let [soon, until, later] = [1, 2, 3].map(|ahead| now + Duration::from_secs(ahead));
        let states = [None, Some(ThreadEvent::Sleep { until }), Some(ThreadEvent::StepBack { until })];
        // By state: due before, due later and not engaged, due later and engaged, nothing pending.
        let needed = [[false; 4], [true, false, false, false], [true, false, true, false]];
        for (event, expected) in states.into_iter().zip(needed) {
            for waiting in [0, 1] {
                let mut attendance = Attendance { waiting, ..Attendance::default() };
                event.into_iter().for_each(|event| attendance.on_thread(event));
                let cases = [(Some(soon), false), (Some(later), false), (Some(later), true), (None, false)];
                let told = cases.map(|(due, engaged)| attendance.needs_thread(|| due, || engaged));
                assert_eq!(told, expected.map(|needed| needed && waiting == 0), "{event:?}, {waiting}");
            }
        }
    }
}
