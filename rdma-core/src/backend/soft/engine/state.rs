//! The states of a queue pair, and which step leads where.

use crate::QpState;

impl QpState {
    /// Whether the step from this state to `to` is allowed. ERR is entered from every state, and by no step.
    pub(crate) fn may_step(self, to: Self) -> bool {
        match to {
            Self::INIT => matches!(self, Self::RESET | Self::INIT),
            Self::RTR => self == Self::INIT,
            Self::RTS => self == Self::RTR,
            _ => false,
        }
    }

    /// Whether receives may be posted.
    pub(crate) fn takes_receives(self) -> bool {
        self != Self::RESET
    }

    /// Whether sends, writes and reads may be posted: in RTS and ERR. One comparison, because no queue pair of the
    /// device is in a state between these.
    pub(crate) fn takes_sends(self) -> bool {
        self.0 >= Self::RTS.0
    }

    /// Whether the peer's requests are carried out.
    pub(crate) fn responds(self) -> bool {
        matches!(self, Self::RTR | Self::RTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_from_every_state() {
        let states = [QpState::RESET, QpState::INIT, QpState::RTR, QpState::RTS, QpState::ERR];
        let mut table = String::new();
        for state in states {
            for to in &states[1..] {
                table.push_str(&format!("{state} to {to}: {}\n", state.may_step(*to)));
            }
            let (recv, send, responds) = (state.takes_receives(), state.takes_sends(), state.responds());
            table.push_str(&format!("{state}: receives {recv}, sends {send}, responds {responds}\n"));
        }
        insta::assert_snapshot!(table);
    }
}
