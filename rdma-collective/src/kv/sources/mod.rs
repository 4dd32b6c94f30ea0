//! Sources: the links that bring whole blocks to one pool together, each from a rank of prefill that has some heads or
//! some layers.
//!
//! This file owns the check of the links, and the begin of a transfer on all of them. Each link moves its part by
//! itself; [`Joint`] is the handle of the parts.

mod error;

use std::sync::Arc;

use rdma_core::{Deadline, Refused};

use super::blocks::{Blocks, List};
use super::decode::{Decode, check_layers, hold, owed};
use super::journal::TransferKind;
use super::plan::{Gap, Wanted, gap};
use super::pool::Pool;
use super::request::Asked;
use super::transfer::Joint;
use super::verdict::Verdicts;
use crate::kv::{KvError, Request};

pub use error::SourcesError;

/// Links to ranks of prefill that bring whole blocks to one pool together.
///
/// A decode rank with the heads of two prefill ranks has two sources; one with all layers has a source for each
/// pipeline stage. Each rank of prefill [pushes](super::Prefill::push) or [offers](super::Prefill::offer) its own
/// blocks under the same request id. [`plan::sources`](super::plan::sources) says which tensor-parallel ranks are
/// needed.
///
/// A transfer has one handle, [`Joint`], one hold on its blocks, and one verdict on each.
///
/// ```
/// use std::time::Duration;
/// use rdma_collective::bootstrap::JobToken;
/// use rdma_collective::engine::{Engine, EngineOptions};
/// use rdma_collective::kv::layout::{Layout, Model, Order, TensorParallel};
/// use rdma_collective::kv::{Decode, LinkOptions, Pool, PoolUse, Prefill, Sources};
/// use rdma_core::{Deadline, Device, SoftOptions};
///
/// # type Error = Box<dyn std::error::Error + Send + Sync>;
/// let (token, options) = (JobToken::random()?, LinkOptions::default());
/// let deadline = Deadline::after(Duration::from_secs(10));
/// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
/// let whole = Model::LLAMA_3_1_8B.shape(16, 4, Order::LayerPartBlock);
///
/// // Two ranks of prefill fill one rank of decode.
/// let room = Pool::allocate(&engine, &Layout::new(whole)?, PoolUse::Destination)?;
/// let (mut links, mut ranks) = (Vec::new(), Vec::new());
/// for rank in 0..2 {
///     let layout = Layout::new(whole.of_rank(TensorParallel { rank, size: 2 })?)?;
///     let pool = Pool::allocate(&engine, &layout, PoolUse::Source)?;
///     let mut prefill = Prefill::prepare(&engine, &pool, &token, &options)?;
///     let mut decode = Decode::prepare(&engine, &room, &token, &options)?;
///     let (to_decode, to_prefill) = (prefill.export().to_vec(), decode.export().to_vec());
///     let prefill = std::thread::spawn(move || prefill.connect(&to_prefill, deadline));
///     links.push(decode.connect(&to_decode, deadline)?);
///     ranks.push(prefill.join().expect("it connects")?);
/// }
/// // One link brings four of eight heads.
/// assert!(links[0].grant(1, &[3], deadline).is_err());
/// let sources = Sources::new(links)?;
/// let grant = sources.grant(1, &[3], deadline)?;
/// for prefill in &ranks {
///     prefill.push(1, &[0], deadline)?.wait()?;
/// }
/// let received = grant.wait()?;
/// assert!(received.verdicts.all_valid());
/// assert_eq!(received.bytes, room.layout().block_bytes());
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Sources {
    /// At least one.
    links: Vec<Decode>,
}

impl Sources {
    /// Joins links of one pool.
    ///
    /// # Errors
    ///
    /// The links come back with [`SourcesError`], unless they bring every head of every layer of the pool exactly once.
    pub fn new(links: Vec<Decode>) -> Result<Self, Refused<Vec<Decode>, SourcesError>> {
        match check(&links) {
            Ok(()) => Ok(Self { links }),
            Err(error) => Err(Refused { object: links, error }),
        }
    }

    /// The links, in the order in which they were given.
    #[must_use]
    pub fn links(&self) -> &[Decode] {
        &self.links
    }

    /// Takes the links apart, for example to put another in the place of one that has ended.
    #[must_use]
    pub fn into_links(self) -> Vec<Decode> {
        self.links
    }

    /// The pool that the links fill.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.first().pool()
    }

    /// Grants `blocks`, in all layers, to `request`: each source fills its part of them, in that order. Every source
    /// must push, even if decode [has](Blocks::having) all blocks that it brings.
    ///
    /// # Errors
    ///
    /// The errors of [`Decode::grant`]. Those of a link name its source, as [`KvError::OfSource`]: parts that had begun
    /// on other links are given up then, and the blocks are free once those have ended.
    pub fn grant<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Joint, KvError> {
        self.begin(request.into().asked(TransferKind::Grant)?, (blocks.into().into(), None), deadline)
    }

    /// Grants again the blocks of an earlier transfer that `verdicts` has as missing or corrupt.
    ///
    /// The sources whose push has failed push again, even if all of their blocks have arrived, because their notes may
    /// be missing. A source whose push has ended well is not asked, unless blocks that it brought have changed since.
    /// After a transfer that has ended well as a whole all sources are asked, and no byte moves.
    ///
    /// The rules of [`Decode::grant_missing`] apply. A source counts as the one of before if it brings the same heads
    /// and layers, whoever it is: a replica may stand in for a rank that was lost.
    ///
    /// # Errors
    ///
    /// The errors of [`grant`](Self::grant).
    pub fn grant_missing(
        &self,
        request: impl Into<Request>,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Joint, KvError> {
        let blocks = (verdicts.list().clone(), Some(verdicts));
        self.begin(request.into().asked(TransferKind::Grant)?, blocks, deadline)
    }

    /// Reads the blocks that every source offers for `request` into `blocks`, in all layers and in that order.
    ///
    /// # Errors
    ///
    /// The errors of [`Decode::pull`]. Those of a link name its source, as [`KvError::OfSource`].
    pub fn pull<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Joint, KvError> {
        self.begin(request.into().asked(TransferKind::Pull)?, (blocks.into().into(), None), deadline)
    }

    /// Reads like [`pull`](Self::pull), but layer by layer from every source, as [`Decode::pull_layers`] does.
    ///
    /// # Errors
    ///
    /// The errors of [`pull`](Self::pull).
    pub fn pull_layers<'a>(
        &self,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Result<Joint, KvError> {
        self.begin(request.into().asked(TransferKind::PullLayers)?, (blocks.into().into(), None), deadline)
    }

    /// Pulls again the blocks of an earlier transfer that `verdicts` has as missing or corrupt, from the sources that
    /// [`grant_missing`](Self::grant_missing) would ask.
    ///
    /// # Errors
    ///
    /// The errors of [`pull`](Self::pull).
    pub fn pull_missing(
        &self,
        request: impl Into<Request>,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Result<Joint, KvError> {
        let blocks = (verdicts.list().clone(), Some(verdicts));
        self.begin(request.into().asked(TransferKind::Pull)?, blocks, deadline)
    }

    /// Begins the part of every source, or of those that are to push again what `missing` is about.
    fn begin(
        &self,
        asked: Asked,
        (list, missing): (List, Option<&Verdicts>),
        deadline: Deadline,
    ) -> Result<Joint, KvError> {
        let (pool, request) = (self.pool(), asked.request);
        // A forked child must not take the lock of the holds.
        self.first().check_process()?;
        missing.map_or(Ok(()), |verdicts| check_layers(verdicts, pool))?;
        let hold = hold(pool, &list, missing)?;
        let list = hold.list().clone();
        // All before the first part begins, since that changes the contents.
        let owed = self.links.iter().map(|link| owed(link, request, &list, missing));
        let owed = owed.collect::<Result<Vec<_>, _>>()?;
        // A source that has ended well has let its blocks go.
        let is_done = |link: &Decode, wanted: &Option<Wanted>| {
            let owes_nothing = wanted.as_ref().is_some_and(Wanted::is_empty);
            owes_nothing && missing.is_some_and(|verdicts| verdicts.is_done_by(link.cover()))
        };
        let done: Vec<_> = self.links.iter().zip(&owed).map(|(link, wanted)| is_done(link, wanted)).collect();
        let all_are_done = done.iter().all(|done| *done);
        let mut joint = Joint::new(request, &hold, pool.layout());
        for ((link, wanted), is_done) in self.links.iter().zip(owed).zip(done) {
            if is_done && !all_are_done {
                joint.add_valid(link);
                continue;
            }
            let share = hold.clone();
            match link.begin(asked.clone(), list.clone(), |_| Ok((share, wanted)), deadline) {
                Ok(part) => joint.add(link, part),
                Err(cause) => {
                    // The parts that have begun end by themselves, and free the blocks.
                    drop(joint.start_revoke(deadline));
                    return Err(KvError::OfSource { peer: link.peer(), cause: Arc::new(cause) });
                }
            }
        }
        Ok(joint)
    }

    fn first(&self) -> &Decode {
        // There is at least one link, so the fallback is never made.
        self.links.first().unwrap_or_else(|| unreachable!("sources without a link"))
    }
}

/// Fails unless the links bring every head of every layer of one pool exactly once.
fn check(links: &[Decode]) -> Result<(), SourcesError> {
    let first = links.first().ok_or(SourcesError::None)?;
    if let Some(other) = links.iter().find(|link| link.pool().id() != first.pool().id()) {
        return Err(SourcesError::OtherPool { first: first.peer(), peer: other.peer() });
    }
    let covers: Vec<_> = links.iter().map(|link| &**link.cover()).collect();
    let peer = |at: usize| links.get(at).unwrap_or(first).peer();
    match gap(first.pool().layout(), &covers) {
        None => Ok(()),
        Some(Gap::Missing { layer, head }) => Err(SourcesError::Missing { layer, head }),
        Some(Gap::Twice { layer, head, by: [one, other] }) => {
            Err(SourcesError::Twice { layer, head, first: peer(one), second: peer(other) })
        }
    }
}
