//! The states of a queue pair, and which step leads where.

use crate::QpState;

/// The state of a reliable-connection queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// The queue pair is new.
    Reset,
    /// Receives may be posted.
    Init,
    /// Requests of the peer are carried out as well.
    ReadyToReceive,
    /// Requests may be posted as well.
    ReadyToSend,
    /// Every request is flushed.
    Error,
}

/// A step of `ibv_modify_qp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::enum_variant_names, reason = "they read as the states they lead to")]
pub(crate) enum Step {
    ToInit,
    ToReadyToReceive,
    ToReadyToSend,
    ToError,
}

impl State {
    /// The state that `step` leads to; `None` when the step is not allowed here.
    pub(crate) fn after(self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Reset | Self::Init, Step::ToInit) => Some(Self::Init),
            (Self::Init, Step::ToReadyToReceive) => Some(Self::ReadyToReceive),
            (Self::ReadyToReceive, Step::ToReadyToSend) => Some(Self::ReadyToSend),
            (_, Step::ToError) => Some(Self::Error),
            _ => None,
        }
    }

    /// Whether receives may be posted.
    pub(crate) fn takes_receives(self) -> bool {
        self != Self::Reset
    }

    /// Whether sends, writes and reads may be posted.
    pub(crate) fn takes_sends(self) -> bool {
        matches!(self, Self::ReadyToSend | Self::Error)
    }

    /// Whether the peer's requests are carried out.
    pub(crate) fn responds(self) -> bool {
        matches!(self, Self::ReadyToReceive | Self::ReadyToSend)
    }

    /// The state as verbs numbers it.
    pub(crate) fn number(self) -> QpState {
        match self {
            Self::Reset => QpState::RESET,
            Self::Init => QpState::INIT,
            Self::ReadyToReceive => QpState::RTR,
            Self::ReadyToSend => QpState::RTS,
            Self::Error => QpState::ERR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_from_every_state() {
        let states = [State::Reset, State::Init, State::ReadyToReceive, State::ReadyToSend, State::Error];
        let steps = [Step::ToInit, Step::ToReadyToReceive, Step::ToReadyToSend, Step::ToError];
        let mut table = String::new();
        for state in states {
            for step in steps {
                table.push_str(&format!("{state:?} {step:?}: {:?}\n", state.after(step)));
            }
            let (recv, send, responds) = (state.takes_receives(), state.takes_sends(), state.responds());
            table.push_str(&format!(
                "{state:?} = {}: receives {recv}, sends {send}, responds {responds}\n",
                state.number()
            ));
        }
        insta::assert_snapshot!(table);
    }
}
