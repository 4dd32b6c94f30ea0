//! The links of an operation, made by all ranks before its first message; or none, and then it goes around the ring, if it has one.
//!
//! All ranks come to the same: each has the words of all, and looks at nothing else.

use std::task::Poll;
use std::time::Instant;

use crate::collective::communicator::{Reach, Unlinked, WaitingFor};
use crate::collective::execute::buffers::Borrowed;
use crate::collective::execute::ring_exec::{ExecContext, RingExec};
use crate::collective::execute::stop::Stop;

/// See the module.
#[derive(Debug)]
pub(super) struct Linking {
    reach: Reach,
    /// What links are to be reached by, and then whether all ranks could connect.
    words: [RingExec; 2],
    /// Which of them is under way.
    turn: Option<LinkingPhase>,
    /// What there is to do without links.
    instead: Option<Box<RingExec>>,
}

#[derive(Debug, Clone, Copy)]
enum LinkingPhase {
    Words,
    Verdicts,
}

impl Linking {
    pub(super) fn new(reach: Reach, words: [RingExec; 2], instead: Option<RingExec>) -> Self {
        Self { reach, words, turn: None, instead: instead.map(Box::new) }
    }

    /// Goes on as far as it can: there are links, or the operation goes around.
    ///
    /// # Errors
    ///
    /// Why it ends, if only because there are no links.
    pub(super) fn advance<B>(
        &mut self,
        with: &mut ExecContext<'_, B>,
    ) -> Poll<Result<Result<(), Box<RingExec>>, Stop>> {
        loop {
            let unlinked = match self.turn {
                None => {
                    // Ranks that can do without tell each other no more than once.
                    let known = self
                        .instead
                        .as_ref()
                        .and_then(|_| with.ring.link_table.unlinked(self.reach).cloned());
                    if known.is_none() {
                        with.ring.link_table.begin_connecting(self.reach);
                        self.turn = Some(LinkingPhase::Words);
                    }
                    known
                }
                Some(LinkingPhase::Words) => {
                    if carry(&mut self.words[0], with)?.is_pending() {
                        return Poll::Pending;
                    }
                    let unlinked = with.ring.link_table.connect(with.core).err();
                    self.words[1].follow(with.ring, with.core.now());
                    self.turn = Some(LinkingPhase::Verdicts);
                    unlinked
                }
                Some(LinkingPhase::Verdicts) => {
                    if carry(&mut self.words[1], with)?.is_pending() {
                        return Poll::Pending;
                    }
                    let Err(unlinked) = with.ring.link_table.confirm(with.core) else {
                        with.ring.take_links(with.core);
                        return Poll::Ready(Ok(Ok(())));
                    };
                    Some(unlinked)
                }
            };
            if let Some(unlinked) = unlinked {
                return Poll::Ready(self.go_around(with, unlinked).map(Err));
            }
        }
    }

    fn go_around<B>(&mut self, with: &ExecContext<'_, B>, unlinked: Unlinked) -> Result<Box<RingExec>, Stop> {
        let mut run = self.instead.take().ok_or(Stop::Unlinked(unlinked))?;
        if self.turn.is_some() {
            run.go_on(with.ring, with.core.now());
        }
        Ok(run)
    }

    /// What is under way.
    fn run(&self) -> &RingExec {
        let [words, verdicts] = &self.words;
        if matches!(self.turn, Some(LinkingPhase::Verdicts)) { verdicts } else { words }
    }

    /// The rank that it waits for, while it waits.
    pub(super) fn waits_for(&self) -> WaitingFor {
        self.run().waits_for()
    }

    /// When it came further last.
    pub(super) fn progressed(&self) -> Instant {
        self.run().progressed
    }
}

/// Brings the words of all ranks to each, as far as that goes now.
fn carry<B>(run: &mut RingExec, with: &mut ExecContext<'_, B>) -> Result<Poll<()>, Stop> {
    let ExecContext { ring, host, core, scratch, .. } = with;
    let Some(mut connecting) = ring.link_table.take_connecting() else { return Ok(Poll::Ready(())) };
    let buffers = &mut Borrowed::InPlace(&mut connecting.words);
    let polled = run.advance(&mut ExecContext { ring, host: *host, core, buffers, scratch });
    ring.link_table.put_connecting(Some(connecting));
    match polled {
        Poll::Ready(outcome) => outcome.map(Poll::Ready),
        Poll::Pending => Ok(Poll::Pending),
    }
}
