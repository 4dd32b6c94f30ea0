//! The making of links by all ranks, before the first message of the operation that needs them.
//!
//! Two all-gathers go around the ring: the addresses of all links, then the verdict of each rank. Every rank decides
//! from the gathered words alone, so all of them use the links or none does. Without links the operation goes around
//! the ring, if its plan has a schedule for that. The link table opens and connects the links; this file carries the
//! words.

use std::task::Poll;
use std::time::Instant;

use super::{ExecContext, LinkExec};
use crate::collective::communicator::{Links, Reach, Unlinked, WaitingFor};
use crate::collective::execute::buffers::Borrowed;
use crate::collective::execute::stop::Stop;
use crate::engine::EngineState;

/// The state of an operation that makes its links.
#[derive(Debug)]
pub(super) struct Linking {
    reach: Reach,
    /// The all-gathers of the addresses and of the verdicts.
    words: [LinkExec; 2],
    /// The all-gather that is under way; `None` before the first.
    turn: Option<LinkingPhase>,
    /// The operation itself around the ring, for the case that no links can be made.
    instead: Option<Box<LinkExec>>,
}

/// The all-gather that is under way.
#[derive(Debug, Clone, Copy)]
enum LinkingPhase {
    /// The addresses of the links of all ranks.
    Words,
    /// Whether each rank could connect its links.
    Verdicts,
}

impl Linking {
    pub(super) fn new(reach: Reach, words: [LinkExec; 2], instead: Option<LinkExec>) -> Self {
        Self { reach, words, turn: None, instead: instead.map(Box::new) }
    }

    /// Advances as far as it can go now. When ready, the links are in use, or the result is the executor around the
    /// ring.
    ///
    /// # Errors
    ///
    /// A failure of the gathering; or no links can be made, and the plan has no schedule around the ring.
    pub(super) fn advance<B>(
        &mut self,
        with: &mut ExecContext<'_, B>,
    ) -> Poll<Result<Result<(), Box<LinkExec>>, Stop>> {
        loop {
            let unlinked = match self.turn {
                None => {
                    // An earlier operation may have found that no links can be made. All ranks know that then, and
                    // need no further gathering. An operation without an alternative gathers again, to report the
                    // reason.
                    let known =
                        self.instead.as_ref().and_then(|_| with.links.table.unlinked(self.reach).cloned());
                    if known.is_none() {
                        with.links.table.begin_connecting(self.reach);
                        self.turn = Some(LinkingPhase::Words);
                    }
                    known
                }
                Some(LinkingPhase::Words) => {
                    if carry(&mut self.words[0], with)?.is_pending() {
                        return Poll::Pending;
                    }
                    let unlinked = with.links.table.connect(with.core).map_err(Stop::Lost)?.err();
                    // The headers have gone around the ring with the words.
                    self.words[1].go_on(with.core.now());
                    self.turn = Some(LinkingPhase::Verdicts);
                    unlinked
                }
                Some(LinkingPhase::Verdicts) => {
                    if carry(&mut self.words[1], with)?.is_pending() {
                        return Poll::Pending;
                    }
                    // No link is used before every rank has confirmed its end: a message to an end that is not
                    // connected would be repeated in vain, and make a healthy peer look lost.
                    let Err(unlinked) = with.links.table.confirm(with.core) else {
                        with.links.take_links(with.core);
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

    /// Takes the executor around the ring, which continues behind the gathered words.
    fn go_around<B>(&mut self, with: &ExecContext<'_, B>, unlinked: Unlinked) -> Result<Box<LinkExec>, Stop> {
        let mut run = self.instead.take().ok_or(Stop::Unlinked(unlinked))?;
        // Words have gone around, and with them the headers of this operation. Otherwise the executor sends its own.
        if self.turn.is_some() {
            run.go_on(with.core.now());
        }
        Ok(run)
    }

    /// The all-gather that is under way.
    fn run(&self) -> &LinkExec {
        let [words, verdicts] = &self.words;
        if matches!(self.turn, Some(LinkingPhase::Verdicts)) { verdicts } else { words }
    }

    /// The neighbour that the gathering waits for.
    pub(super) fn waits_for(&self, links: &Links, core: &mut EngineState) -> WaitingFor {
        self.run().waits_for(links, core)
    }

    /// When the gathering took its last step.
    pub(super) fn progressed(&self) -> Instant {
        self.run().progressed
    }
}

/// Advances an all-gather of the words as far as it can go now.
fn carry<B>(run: &mut LinkExec, with: &mut ExecContext<'_, B>) -> Result<Poll<()>, Stop> {
    let ExecContext { links, host, core, scratch, .. } = with;
    // Taken out for the time of the call, because the executor borrows the links with their table. It must go back
    // before a failure is returned: only the table fences the lanes that were opened.
    let Some(mut connecting) = links.table.connecting.take() else { return Ok(Poll::Ready(())) };
    let buffers = &mut Borrowed::InPlace(&mut connecting.words);
    let polled = run.advance(&mut ExecContext { links, host: *host, core, buffers, more: &mut [], scratch });
    links.table.connecting = Some(connecting);
    match polled {
        Poll::Ready(outcome) => outcome.map(Poll::Ready),
        Poll::Pending => Ok(Poll::Pending),
    }
}
