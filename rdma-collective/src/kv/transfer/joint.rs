//! The handle of a transfer that several sources fill: [`Joint`], which has the handle of each part.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rdma_core::Deadline;

use super::{OnDrop, Receiving, Revocable, Revoked, Transfer};
use crate::kv::decode::Decode;
use crate::kv::layout::{Layout, LayoutError};
use crate::kv::lease::Hold;
use crate::kv::outcome::{Progress, Received};
use crate::kv::plan::{Cover, PlanError};
use crate::kv::receive::Layer;
use crate::kv::verdict::{BlockVerdict, Verdicts};
use crate::kv::{KvError, RequestId, TransferError};
use crate::link::PeerName;

/// A grant or a pull of several [`Sources`](super::super::Sources), with one outcome.
///
/// The parts of all sources go on by themselves. The outcome is there, once, when all have ended: a source that fails
/// does not end the parts of the others, so that the verdicts say what each of them has brought.
///
/// Dropping it gives the transfer up on all links, unless [`on_drop`](Self::on_drop) says otherwise.
#[must_use = "blocks are there, or are free again, when their transfer was waited for"]
pub struct Joint {
    request: RequestId,
    /// The blocks and their contents; the parts have the shares that hold them.
    hold: Hold,
    layout: Layout,
    /// None once the outcome was taken.
    parts: Vec<Part>,
}

/// The part of one source.
struct Part {
    peer: PeerName,
    cover: Arc<Cover>,
    state: State,
}

enum State {
    Open(Transfer<Receiving>),
    Ended(Result<Received, TransferError>),
}

impl Joint {
    /// A transfer without parts yet. The caller's share of the hold stays the caller's.
    pub(in crate::kv) fn new(request: RequestId, hold: &Hold, layout: &Layout) -> Self {
        let mut hold = hold.clone();
        hold.release();
        Self { request, hold, layout: layout.clone(), parts: Vec::new() }
    }

    pub(in crate::kv) fn add(&mut self, link: &Decode, part: Transfer<Receiving>) {
        self.add_part(link, State::Open(part));
    }

    /// Adds the part of a source that owes nothing.
    pub(in crate::kv) fn add_valid(&mut self, link: &Decode) {
        let verdicts = Verdicts::new(self.layout.layers(), self.hold.list(), BlockVerdict::Valid).done();
        let (elapsed, moving) = (Duration::ZERO, Duration::ZERO);
        self.add_part(
            link,
            State::Ended(Ok(Received { verdicts, note: Vec::new(), bytes: 0, writes: 0, elapsed, moving })),
        );
    }

    fn add_part(&mut self, link: &Decode, state: State) {
        self.parts.push(Part { peer: link.peer(), cover: Arc::clone(link.cover()), state });
    }

    /// The id of the request, which all sources know too.
    #[must_use]
    pub fn request(&self) -> RequestId {
        self.request
    }

    /// The blocks of this end's pool, in the order of the request.
    #[must_use]
    pub fn blocks(&self) -> &[u32] {
        self.hold.blocks()
    }

    /// The progress of all parts together, as of the engine's last drive. Writes are those of the parts that know
    /// theirs.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.parts.iter().map(Part::progress).fold(Progress::default(), |sum, part| Progress {
            bytes_arrived: sum.bytes_arrived + part.bytes_arrived,
            bytes: sum.bytes + part.bytes,
            writes_arrived: sum.writes_arrived + part.writes_arrived,
            writes: sum.writes + part.writes,
        })
    }

    /// Drives the engine once and looks for the outcome; never waits. `Ready` comes once: a later poll is `Pending`.
    ///
    /// # Errors
    ///
    /// The errors of [`wait`](Self::wait).
    pub fn poll(&mut self) -> Poll<Result<Received, TransferError>> {
        self.drive();
        self.look(None)
    }

    /// Waits until all parts have ended.
    ///
    /// # Errors
    ///
    /// [`KvError::OfSource`] with the first source that failed and its error, which is one of those of
    /// [`Transfer::wait`]. The verdicts beside it are on all parts. [`KvError::OutcomeTaken`] after a poll that has
    /// returned the outcome.
    pub fn wait(mut self) -> Result<Received, TransferError> {
        self.parts.iter_mut().for_each(Part::wait);
        self.conclude()
    }

    /// Waits until all parts have ended, or until `deadline`, which may be earlier or later than the transfer's own.
    ///
    /// # Errors
    ///
    /// The handle itself comes back at `deadline`, and the transfer goes on: wait again.
    pub fn wait_until(mut self, deadline: Deadline) -> Result<Result<Received, TransferError>, Self> {
        if self.parts.iter_mut().all(|part| part.wait_until(deadline)) {
            return Ok(self.conclude());
        }
        Err(self)
    }

    /// Waits until all of a layer has arrived from every source that has some of it, and was checked if the links have
    /// checksums. Returns one verdict for each block, in the order of the request.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerLate`] at `deadline`, while the transfer goes on; otherwise those of [`wait`](Self::wait). The
    /// verdicts beside it are those so far on all parts.
    pub fn wait_layer(&self, layer: u32, deadline: Deadline) -> Layer {
        self.check_layer(layer)?;
        let mut merged = vec![BlockVerdict::Valid; self.blocks().len()];
        for part in self.parts_with(layer) {
            let row = part.wait_layer(layer, deadline).map_err(|error| self.error_of(part, error))?;
            merge(&mut merged, &row);
        }
        Ok(merged)
    }

    /// Drives the engine once and looks whether all of a layer has arrived; never waits. Otherwise like
    /// [`wait_layer`](Self::wait_layer).
    pub fn poll_layer(&self, layer: u32) -> Poll<Layer> {
        self.drive();
        self.look_layer(layer, None)
    }

    /// A future of one layer, for any runtime. One task at a time may await the same layer.
    pub fn layer(&self, layer: u32) -> JointLayer<'_> {
        JointLayer { joint: self, layer }
    }

    /// Moves the deadline of all parts that have not ended to a later one; see [`Transfer::extend`].
    ///
    /// # Errors
    ///
    /// [`KvError::OfSource`] with the first source whose part has failed, or is being given up. The other parts are
    /// extended all the same.
    pub fn extend(&self, deadline: Deadline) -> Result<(), KvError> {
        let mut extended = Ok(());
        for part in &self.parts {
            let State::Open(transfer) = &part.state else { continue };
            match transfer.extend(deadline) {
                Ok(()) | Err(KvError::AlreadyEnded { .. }) => {}
                Err(cause) if extended.is_ok() => {
                    extended = Err(KvError::OfSource { peer: part.peer.clone(), cause: Arc::new(cause) });
                }
                Err(_) => {}
            }
        }
        extended
    }

    /// Sets what becomes of the transfer when this handle is dropped; see [`Transfer::on_drop`].
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        for part in &mut self.parts {
            if let State::Open(transfer) = &mut part.state {
                transfer.on_drop = on_drop;
            }
        }
        self
    }

    /// The parts that have not ended, as far as this handle has looked.
    pub(super) fn open_parts(&self) -> impl Iterator<Item = &Transfer<Receiving>> {
        self.parts.iter().filter_map(|part| match &part.state {
            State::Open(transfer) => Some(transfer),
            State::Ended(_) => None,
        })
    }

    /// Gives the transfer up on all links, and returns the verdicts on what had arrived. After `Ok` none of its bytes
    /// land any more. The call blocks; [`start_revoke`](Self::start_revoke) does not.
    ///
    /// # Errors
    ///
    /// The errors of [`Transfer::revoke`] of any part.
    #[doc(alias = "cancel")]
    pub fn revoke(self, deadline: Deadline) -> Result<Verdicts, KvError> {
        self.start_revoke(deadline).wait()
    }

    /// Begins to give the transfer up like [`revoke`](Self::revoke), and returns at once. Dropping the returned handle
    /// lets giving up go on.
    pub fn start_revoke(self, deadline: Deadline) -> JointRevoking {
        let origin = self.hold.origin();
        let part = |part: Part| {
            let state = match part.state {
                State::Open(transfer) => Giving::Up(transfer.start_revoke(deadline)),
                State::Ended(Ok(received)) => Giving::Ended(Ok(received.verdicts.of(origin.clone()))),
                State::Ended(Err(error)) => Giving::Ended(Receiving::left(Err(error))),
            };
            (part.cover, state)
        };
        let request = self.request;
        JointRevoking { request, parts: self.parts.into_iter().map(part).collect() }
    }

    /// Drives the engine once, which all links of a pool have in common.
    fn drive(&self) {
        if let Some(engine) = self.parts.iter().find_map(Part::engine) {
            engine.try_drive();
        }
    }

    /// Looks at the parts, and takes the outcome when all have ended.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<Result<Received, TransferError>> {
        // Every part is looked at, so that each has the waker.
        let open =
            self.parts.iter_mut().filter_map(|part| part.look(waker).is_pending().then_some(())).count();
        if open > 0 || self.parts.is_empty() {
            return Poll::Pending;
        }
        Poll::Ready(self.conclude())
    }

    /// The outcome of parts that have all ended.
    fn conclude(&mut self) -> Result<Received, TransferError> {
        let (mut failed, mut by_source) = (None, Vec::new());
        if self.parts.is_empty() {
            return Err(self.taken());
        }
        let (mut bytes, mut writes, mut note) = (0, 0, Vec::new());
        let (mut elapsed, mut moving) = (Duration::ZERO, Duration::ZERO);
        for part in self.parts.drain(..) {
            let verdicts = match part.state {
                State::Ended(Ok(received)) => {
                    // All ranks of prefill know the token: the first note counts.
                    note = if note.is_empty() { received.note } else { note };
                    bytes += received.bytes;
                    writes += received.writes;
                    elapsed = elapsed.max(received.elapsed);
                    moving = moving.max(received.moving);
                    received.verdicts
                }
                State::Ended(Err(error)) => {
                    let cause = KvError::OfSource { peer: part.peer.clone(), cause: error.cause };
                    failed.get_or_insert(Arc::new(cause));
                    error.verdicts
                }
                // No part is open: the callers have seen to that.
                State::Open(_) => continue,
            };
            by_source.push((part.cover, verdicts.of(self.hold.origin())));
        }
        let verdicts = Verdicts::of_sources(by_source);
        match failed {
            Some(cause) => Err(TransferError { cause, verdicts }),
            None => Ok(Received { verdicts, note, bytes, writes, elapsed, moving }),
        }
    }

    fn look_layer(&self, layer: u32, waker: Option<&Waker>) -> Poll<Layer> {
        self.check_layer(layer)?;
        let (mut merged, mut open) = (vec![BlockVerdict::Valid; self.blocks().len()], false);
        // Every part is looked at, so that each has the waker.
        for part in self.parts_with(layer) {
            match part.look_layer(layer, waker) {
                Poll::Ready(row) => merge(&mut merged, &row.map_err(|error| self.error_of(part, error))?),
                Poll::Pending => open = true,
            }
        }
        if open { Poll::Pending } else { Poll::Ready(Ok(merged)) }
    }

    /// Fails for a layer that the pool does not have, and once the outcome was taken.
    fn check_layer(&self, layer: u32) -> Result<(), TransferError> {
        let layers = self.layout.layers();
        if layer >= layers {
            let cause = Arc::new(PlanError::from(LayoutError::NoSuchLayer { layer, layers }).into());
            return Err(TransferError { cause, verdicts: self.so_far() });
        }
        if self.parts.is_empty() { Err(self.taken()) } else { Ok(()) }
    }

    /// The parts that have some of a layer of the blocks.
    fn parts_with(&self, layer: u32) -> impl Iterator<Item = &Part> {
        let groups = self.blocks().iter().filter_map(|block| self.layout.group_of(*block));
        let mut groups: Vec<usize> = groups.map(|(group, _)| group).collect();
        groups.dedup();
        let has = move |part: &&Part| groups.iter().any(|group| part.cover.has(layer, *group));
        self.parts.iter().filter(has)
    }

    /// The error of a part, as that of the whole transfer.
    fn error_of(&self, part: &Part, error: TransferError) -> TransferError {
        let cause = match *error.cause {
            KvError::LayerLate { .. } => error.cause,
            _ => Arc::new(KvError::OfSource { peer: part.peer.clone(), cause: error.cause }),
        };
        TransferError { cause, verdicts: self.so_far() }
    }

    /// The verdicts so far, on all parts.
    fn so_far(&self) -> Verdicts {
        let of = |part: &Part| {
            let verdicts = match &part.state {
                State::Open(transfer) => transfer.so_far(),
                State::Ended(Ok(received)) => received.verdicts.clone(),
                State::Ended(Err(error)) => error.verdicts.clone(),
            };
            (Arc::clone(&part.cover), verdicts.of(self.hold.origin()))
        };
        Verdicts::of_sources(self.parts.iter().map(of).collect())
    }

    /// The error of a handle whose outcome was taken.
    fn taken(&self) -> TransferError {
        let verdicts = Verdicts::new(self.layout.layers(), self.hold.list(), BlockVerdict::Missing);
        TransferError { cause: Arc::new(KvError::OutcomeTaken { request: self.request }), verdicts }
    }
}

/// Adds the verdicts of one part to those of the others.
fn merge(merged: &mut [BlockVerdict], row: &[BlockVerdict]) {
    merged.iter_mut().zip(row).for_each(|(state, other)| *state = state.and(*other));
}

impl Part {
    fn engine(&self) -> Option<&crate::engine::Engine> {
        match &self.state {
            State::Open(transfer) => Some(&transfer.shared.engine),
            State::Ended(_) => None,
        }
    }

    fn progress(&self) -> Progress {
        match &self.state {
            State::Open(transfer) => transfer.progress(),
            State::Ended(Ok(Received { bytes, writes, .. })) => {
                Progress { bytes_arrived: *bytes, bytes: *bytes, writes_arrived: *writes, writes: *writes }
            }
            State::Ended(Err(_)) => Progress::default(),
        }
    }

    /// Keeps the outcome if there is one.
    fn look(&mut self, waker: Option<&Waker>) -> Poll<()> {
        if let State::Open(transfer) = &mut self.state {
            match transfer.look(waker) {
                Poll::Ready(outcome) => self.state = State::Ended(outcome),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    /// Waits for the outcome.
    fn wait(&mut self) {
        if let State::Open(transfer) = &mut self.state {
            self.state = State::Ended(transfer.outcome());
        }
    }

    /// Waits for the outcome until `deadline`, and returns whether it is there.
    fn wait_until(&mut self, deadline: Deadline) -> bool {
        if let State::Open(transfer) = &mut self.state {
            match transfer.outcome_by(deadline) {
                Some(outcome) => self.state = State::Ended(outcome),
                None => return false,
            }
        }
        true
    }

    fn wait_layer(&self, layer: u32, deadline: Deadline) -> Layer {
        match &self.state {
            State::Open(transfer) => transfer.wait_layer(layer, deadline),
            State::Ended(outcome) => row_of(outcome, layer),
        }
    }

    fn look_layer(&self, layer: u32, waker: Option<&Waker>) -> Poll<Layer> {
        match &self.state {
            State::Open(transfer) => transfer.look_layer(layer, waker),
            State::Ended(outcome) => Poll::Ready(row_of(outcome, layer)),
        }
    }
}

/// The verdicts on one layer of a part that has ended.
fn row_of(outcome: &Result<Received, TransferError>, layer: u32) -> Layer {
    let verdicts = match outcome {
        Ok(received) => &received.verdicts,
        Err(error) => &error.verdicts,
    };
    let row: Vec<_> = (0..verdicts.blocks().len()).map_while(|place| verdicts.get(layer, place)).collect();
    match outcome {
        Err(error) if row.is_empty() || row.contains(&BlockVerdict::Missing) => Err(error.clone()),
        _ => Ok(row),
    }
}

impl Future for Joint {
    type Output = Result<Received, TransferError>;

    /// Looks for the outcome. The thread that drives the engine wakes the task.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(Some(context.waker()))
    }
}

impl fmt::Debug for Joint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joint")
            .field("request", &self.request)
            .field("blocks", &self.blocks().len())
            .field("sources", &self.parts.len())
            .finish_non_exhaustive()
    }
}

/// The future of a [layer](Joint::layer). The thread that drives the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct JointLayer<'a> {
    joint: &'a Joint,
    layer: u32,
}

impl Future for JointLayer<'_> {
    type Output = Layer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Layer> {
        self.joint.look_layer(self.layer, Some(context.waker()))
    }
}

/// A [`Joint`] that is being given up. Returned by [`Joint::start_revoke`].
#[must_use = "blocks are free again when giving up was waited for"]
pub struct JointRevoking {
    request: RequestId,
    /// None once the outcome was taken.
    parts: Vec<(Arc<Cover>, Giving)>,
}

enum Giving {
    Up(Transfer<Revoked<Receiving>>),
    Ended(Result<Verdicts, KvError>),
}

impl JointRevoking {
    /// Waits until none of the bytes land any more, on any link.
    ///
    /// # Errors
    ///
    /// The errors of [`Joint::revoke`].
    pub fn wait(mut self) -> Result<Verdicts, KvError> {
        for (_, part) in &mut self.parts {
            if let Giving::Up(transfer) = part {
                *part = Giving::Ended(transfer.outcome());
            }
        }
        self.conclude()
    }

    fn conclude(&mut self) -> Result<Verdicts, KvError> {
        if self.parts.is_empty() {
            return Err(KvError::OutcomeTaken { request: self.request });
        }
        let mut by_source = Vec::new();
        for (cover, part) in self.parts.drain(..) {
            if let Giving::Ended(verdicts) = part {
                by_source.push((cover, verdicts?));
            }
        }
        Ok(Verdicts::of_sources(by_source))
    }
}

impl Future for JointRevoking {
    type Output = Result<Verdicts, KvError>;

    /// Looks whether giving up is done. The thread that drives the engine wakes the task.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut open = false;
        for (_, part) in &mut self.parts {
            if let Giving::Up(transfer) = part {
                match transfer.look(Some(context.waker())) {
                    Poll::Ready(left) => *part = Giving::Ended(left),
                    Poll::Pending => open = true,
                }
            }
        }
        if open { Poll::Pending } else { Poll::Ready(self.conclude()) }
    }
}

impl fmt::Debug for JointRevoking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JointRevoking").field("sources", &self.parts.len()).finish()
    }
}
