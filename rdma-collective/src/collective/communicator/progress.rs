//! The progress of a communicator: who carries its present operation out, and how that changes hands.
//!
//! | from          | to            | event     | when                                                                |
//! |---------------|---------------|-----------|---------------------------------------------------------------------|
//! | `Idle`        | `Deferred`    | `Defer`   | the fast path leaves an operation that has begun and is not done     |
//! | `Deferred`    | `Idle`        | `Finish`  | the operation's handle polls it and finds it done                    |
//! | `Deferred`    | `Engine`      | `Adopt`   | the engine takes it over                                             |
//! | `Idle`        | `Queued`      | `Queue`   | an operation enters the empty queue                                  |
//! | `Queued`      | `Queued`      | `Queue`   | another one enters behind it                                         |
//! | `Engine`      | `Engine`      | `Queue`   | another one enters behind it                                         |
//! | `Queued`      | `Engine`      | `Begin`   | the first one begins                                                 |
//! | `Engine`      | `CallerOwned` | `Leave`   | the call that has begun it leaves it to its caller                   |
//! | `CallerOwned` | `Engine`      | `Reclaim` | its caller waits for it, or begins another one                       |
//! | the queue's   | `Queued`      | `Next`    | the first one has ended, and others wait (not from `CallerOwned`)    |
//! | the queue's   | `Idle`        | `Last`    | the only one has ended                                               |
//! | `Idle`        | `Borrowed`    | `Borrow`  | a call on borrowed memory begins                                     |
//! | `Borrowed`    | `Idle`        | `Return`  | that call returns                                                    |
//!
//! "The queue's" are `Queued`, `Engine` and `CallerOwned`. All other pairs must not be. Each state has one party that
//! may end it, so no two threads ever change the progress at the same time:
//!
//! - `Idle`: the holder of the communicator, because only the holder begins operations;
//! - `Deferred`: whoever has taken the operation out of the gate's slot, under the slot's lock;
//! - the others: the holder of the state's lock.
//!
//! A failure is no state. It may come at any time and from any thread, and changes nobody's turn: each party ends its
//! operation by it. The gate keeps it beside the progress, so that the fast path begins nothing more.

/// The party that carries the present operation out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Progress {
    /// No operation is under way, or the holder's thread runs one on the fast path.
    Idle,
    /// The fast path has begun an operation, and the gate's slot holds it.
    Deferred,
    /// The first operation of the queue has not begun. A drive begins it, so this state ends under the lock under which
    /// it began.
    Queued,
    /// The first operation of the queue has begun, and whoever drives the engine goes on with it.
    Engine,
    /// The only operation of the queue has begun and is left to its caller for the hand-over delay.
    CallerOwned,
    /// A call on borrowed memory runs in its caller's thread.
    Borrowed,
}

/// An event that may change the [`Progress`]; the table above says when each happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Defer,
    Finish,
    Adopt,
    Queue,
    Begin,
    Leave,
    Reclaim,
    Next,
    Last,
    Borrow,
    Return,
}

impl Progress {
    /// Returns the state after `event`; `None` if the event must not be in this state.
    #[inline]
    pub(super) fn on(self, event: Event) -> Option<Self> {
        use Progress::{Borrowed, CallerOwned, Deferred, Engine, Idle, Queued};
        Some(match (self, event) {
            (Idle, Event::Defer) => Deferred,
            (Deferred, Event::Finish) | (Borrowed, Event::Return) => Idle,
            (Idle | Queued, Event::Queue) => Queued,
            (Deferred, Event::Adopt) | (Engine, Event::Queue) => Engine,
            (Queued, Event::Begin) | (CallerOwned, Event::Reclaim) => Engine,
            (Engine, Event::Leave) => CallerOwned,
            (Queued | Engine, Event::Next) => Queued,
            (Queued | Engine | CallerOwned, Event::Last) => Idle,
            (Idle, Event::Borrow) => Borrowed,
            _ => return None,
        })
    }

    /// Whether the first operation of the queue has begun.
    pub(super) fn has_begun(self) -> bool {
        matches!(self, Self::Engine | Self::CallerOwned)
    }

    /// Whether neither the engine nor a call on borrowed memory has an operation. A deferred one is still the fast
    /// path's.
    pub(super) fn is_quiet(self) -> bool {
        matches!(self, Self::Idle | Self::Deferred)
    }

    /// The state whose number `code` is.
    #[inline]
    pub(super) fn from_code(code: u8) -> Self {
        const STATES: [Progress; 6] = [
            Progress::Idle,
            Progress::Deferred,
            Progress::Queued,
            Progress::Engine,
            Progress::CallerOwned,
            Progress::Borrowed,
        ];
        // Only numbers of states are ever stored. `Borrowed` for any other would keep the fast path and the queue shut.
        STATES.get(usize::from(code)).copied().unwrap_or(Self::Borrowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use Progress::{Borrowed, CallerOwned, Deferred, Engine, Idle, Queued};

    const EVENTS: [Event; 11] = [
        Event::Defer,
        Event::Finish,
        Event::Adopt,
        Event::Queue,
        Event::Begin,
        Event::Leave,
        Event::Reclaim,
        Event::Next,
        Event::Last,
        Event::Borrow,
        Event::Return,
    ];

    /// Every event in every state, by the order of [`EVENTS`]; `None` is a pair that must not be.
    const TABLE: [(Progress, [Option<Progress>; 11]); 6] = {
        const NO: Option<Progress> = None;
        let [idle, left] = [Some(Idle), Some(Deferred)];
        let [queued, engine, caller, borrowed] =
            [Some(Queued), Some(Engine), Some(CallerOwned), Some(Borrowed)];
        [
            // Defer, Finish, Adopt, Queue, Begin, Leave, Reclaim, Next, Last, Borrow, Return
            (Idle, [left, NO, NO, queued, NO, NO, NO, NO, NO, borrowed, NO]),
            (Deferred, [NO, idle, engine, NO, NO, NO, NO, NO, NO, NO, NO]),
            (Queued, [NO, NO, NO, queued, engine, NO, NO, queued, idle, NO, NO]),
            (Engine, [NO, NO, NO, engine, NO, caller, NO, queued, idle, NO, NO]),
            (CallerOwned, [NO, NO, NO, NO, NO, NO, engine, NO, idle, NO, NO]),
            (Borrowed, [NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, idle]),
        ]
    };

    #[test]
    fn every_event_in_every_state_leads_to_the_state_of_the_table_or_must_not_be() {
        for (state, row) in TABLE {
            for (event, expected) in EVENTS.into_iter().zip(row) {
                assert_eq!(state.on(event), expected, "{event:?} in {state:?}");
            }
        }
    }

    #[test]
    fn the_table_has_every_state_and_every_event_once() {
        for (number, (state, _)) in TABLE.into_iter().enumerate() {
            assert_eq!((state as usize, Progress::from_code(state as u8)), (number, state));
        }
        for (number, event) in EVENTS.into_iter().enumerate() {
            assert_eq!(event as usize, number);
            // No wildcard: a new event does not compile before it is here, and then in `EVENTS`.
            match event {
                Event::Defer | Event::Finish | Event::Adopt | Event::Queue | Event::Begin | Event::Leave => {}
                Event::Reclaim | Event::Next | Event::Last | Event::Borrow | Event::Return => {}
            }
        }
    }

    #[test]
    fn every_state_comes_from_idle_and_goes_back_to_it() {
        let reachable = |from: Progress| {
            let mut seen = [false; TABLE.len()];
            seen[from as usize] = true;
            // Once for each state: no way is longer.
            for (state, row) in TABLE.into_iter().cycle().take(TABLE.len() * TABLE.len()) {
                if seen[state as usize] {
                    row.into_iter().flatten().for_each(|to| seen[to as usize] = true);
                }
            }
            seen
        };
        for (state, _) in TABLE {
            assert_eq!(reachable(state), [true; TABLE.len()], "from {state:?}");
        }
    }

    #[test]
    fn a_state_tells_whether_its_operation_has_begun_and_whose_it_is() {
        let told = TABLE.map(|(state, _)| (state.has_begun(), state.is_quiet()));
        assert_eq!(
            told,
            [(false, true), (false, true), (false, false), (true, false), (true, false), (false, false)]
        );
    }
}
