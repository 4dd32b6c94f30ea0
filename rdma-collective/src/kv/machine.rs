//! The interface between the handles of transfers and the state machines of the two ends, `push` and `receive`.

use std::time::Instant;

use rdma_core::Deadline;

use super::blocks::List;
use super::given_up::GivenUp;
use super::outcome::Progress;
use super::shared::Shared;
use super::wakers::Wakers;
use crate::engine::{EngineState, Service};
use crate::kv::KvError;

/// The state machine of one end of a link, as the handles of its transfers see it.
pub(in crate::kv) trait Machine: Service + Sized + 'static {
    type Outcome;
    type Error;

    /// Takes the outcome of a transfer, which is there once; `None` while the transfer is under way.
    fn take(&mut self, id: u64) -> Option<Result<Self::Outcome, Self::Error>>;

    /// The wakers of the tasks that await transfers.
    fn wakers(&mut self) -> &mut Wakers;

    fn progress(&self, id: u64) -> Option<Progress>;

    /// The moment by which a transfer ends, or its lane is fenced, without what the device needs for that; `None` once
    /// its outcome was taken.
    fn deadline(&self, id: u64) -> Option<Deadline>;

    /// Moves the deadline of a transfer to a later one, and returns whether the peer is to be told. Fails once the
    /// transfer has ended, or is given up; `None` once its outcome was taken.
    fn extend(&mut self, id: u64, deadline: Deadline) -> Option<Result<bool, KvError>>;

    /// Gives a transfer up. The transfer ends when its blocks are not read or written any more. The lane is fenced at
    /// `until`, or after 5 s.
    fn give_up(&mut self, core: &mut EngineState, id: u64, until: Option<Deadline>, now: Instant);

    /// The transfers that the next drive is to give up.
    fn given_up(&mut self) -> &mut GivenUp;

    /// Gives up the transfers of which that was asked.
    fn give_up_asked(&mut self, core: &mut EngineState, now: Instant) -> bool {
        let asked = self.given_up().take();
        asked.iter().for_each(|(id, until)| self.give_up(core, *id, *until, now));
        !asked.is_empty()
    }

    /// Notes that nobody waits for the outcome of a transfer any more: its handle was dropped.
    fn abandon(&mut self, id: u64);

    /// The error of a transfer that cannot go on here because of `cause`. Must not wait for the lock of `shared` in a
    /// forked child.
    fn refused(shared: &Shared<Self>, id: u64, list: &List, cause: KvError) -> Self::Error;
}
