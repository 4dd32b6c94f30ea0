//! The attacked side: grants blocks, takes them back, and uses them for something else.

use std::collections::VecDeque;
use std::fmt;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::kv::{BlockVerdict, Grant, KvError, KvNode, NodeOptions, Pool, TransferError, Verdicts};
use rdma_core::Deadline;

use crate::common::long;
use crate::common::random::Random;
use crate::pair::{TOKEN, assert_freed};
use crate::pools::{self, LAYERS, OLD, REQUEST};
use crate::prefill::{DECODE, Prefill};

/// Processes that are ready to take the place of one that is killed.
const SPARES: usize = 3;
/// Rounds after which blocks are looked at again, and then granted again.
const RESTS: usize = 2;
/// Time that a prefill which runs has to stop.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time after which the lane of a stopped prefill is fenced.
const STOPPED_PATIENCE: Duration = Duration::from_millis(30);
/// Time beyond its deadline that a revocation may take, wherever this runs.
const SLACK: Duration = Duration::from_secs(20);
/// The longest pause before blocks are looked at again.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of a transfer that was taken back.
pub type Late = String;

/// The fate of prefill during the push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    Killed,
    /// Stopped, and resumed once the blocks are used for something else.
    Stopped,
}

/// The call by which blocks are taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Revoke,
    StartRevoke,
    Token,
    Drop,
}

pub struct Decode {
    device: String,
    node: KvNode,
    pool: Pool,
    prefill: Prefill,
    spares: VecDeque<Prefill>,
    /// Free blocks of each group.
    free: [Vec<u32>; 2],
    /// The last rounds, the oldest first.
    resting: VecDeque<Resting>,
    random: Random,
    round: usize,
    told: Told,
}

/// The blocks of a round, which nobody may write any more.
struct Resting {
    blocks: Vec<u32>,
    /// The byte that fills them.
    fresh: u8,
    /// The prefill that has pushed into them, if another one has taken its place.
    _old: Option<Prefill>,
}

/// The rounds so far.
#[derive(Default)]
struct Told {
    /// Rounds of each fate.
    fates: [u32; 3],
    /// Transfers that were taken back with no block, some, and all of them there.
    parts: [u32; 3],
    slowest: Duration,
}

impl Decode {
    pub fn new(device: &str, seed: u64) -> Self {
        let engine = pools::engine(device);
        let pool = pools::destination(&engine);
        let listen = "127.0.0.1:0".parse().unwrap();
        let node = KvNode::new(&engine, &[&pool], &TOKEN, &NodeOptions::new(DECODE, listen)).unwrap();
        let mut prefill = Prefill::start(device);
        prefill.begin(&node);
        Self {
            device: device.to_owned(),
            node,
            pool,
            prefill,
            spares: (0..SPARES).map(|_| Prefill::start(device)).collect(),
            free: pools::groups(),
            resting: VecDeque::new(),
            random: Random::of(seed),
            round: 0,
            told: Told::default(),
        }
    }

    /// Another decode, with a new pool and new prefills, that goes on counting.
    pub fn renewed(self) -> Self {
        Self { random: self.random, round: self.round, told: self.told, ..Self::new(&self.device, 0) }
    }

    /// Grants blocks, takes them back after a random part has arrived, and uses them: nothing may change there.
    pub fn round(&mut self) -> Result<(), Late> {
        let fate = match self.random.below(20) {
            0 => Fate::Killed,
            1 => Fate::Stopped,
            _ => Fate::Runs,
        };
        let by = self.random.pick(&[By::Revoke, By::StartRevoke, By::Token, By::Drop]);
        // Nobody waits for a dropped transfer, so that a stopped prefill has seconds.
        let is_slow = fate == Fate::Stopped && by == By::Drop && !self.random.is_one_in(20);
        let by = if is_slow { By::Token } else { by };
        let outcome = self.attacked(fate, by);
        outcome.map_err(|late| format!("{late}; round {}, {fate:?}, {by:?}", self.round))?;
        self.told.fates[fate as usize] += 1;
        self.round += 1;
        Ok(())
    }

    fn attacked(&mut self, fate: Fate, by: By) -> Result<(), Late> {
        let blocks = self.choose();
        // Stopped before it hears of the grant, prefill writes when that has ended.
        let is_early = fate == Fate::Stopped && self.prefill.has_first_link() && self.random.is_one_in(4);
        if is_early {
            self.prefill.stop();
        }
        let request = self.prefill.next_request();
        let grant = self.node.grant(&self.prefill.name(), request, &blocks, long()).wait().unwrap();
        let begun = if is_early { Ok(grant) } else { self.let_arrive(grant) };
        match fate {
            Fate::Killed => self.prefill.kill(),
            Fate::Stopped if !is_early => self.prefill.stop(),
            Fate::Runs | Fate::Stopped => {}
        }
        match begun {
            Ok(grant) => self.take_back(grant, fate, by),
            Err(()) => {
                self.told.parts[2] += 1;
                pools::check(&self.pool, &blocks, OLD).expect("what is called valid is there");
            }
        }
        assert!(blocks.iter().all(|block| self.pool.held(*block).is_none()), "the blocks are free");
        let fresh = self.round as u8 % OLD;
        pools::fill(&self.pool, blocks.iter().copied(), fresh);
        pools::check(&self.pool, &blocks, fresh)?;
        if fate == Fate::Stopped {
            self.prefill.resume();
        }
        // A prefill that was stopped goes on over its next link, or for requests that never come.
        let old = (fate == Fate::Killed || fate == Fate::Stopped && !self.random.is_one_in(2))
            .then(|| self.replace());
        if fate == Fate::Stopped || self.random.is_one_in(100) {
            thread::sleep(PAUSE.mul_f64(self.random.below(100) as f64 / 100.0));
            pools::check(&self.pool, &blocks, fresh)?;
        }
        self.resting.push_back(Resting { blocks, fresh, _old: old });
        if self.resting.len() > RESTS {
            let Resting { blocks, fresh, .. } = self.resting.pop_front().unwrap();
            pools::check(&self.pool, &blocks, fresh)
                .map_err(|late| format!("{late}, {RESTS} rounds later"))?;
            blocks.into_iter().for_each(|block| self.give_back(block));
        }
        Ok(())
    }

    /// Takes free blocks of both groups: some side by side, so that writes are long, and some apart.
    fn choose(&mut self) -> Vec<u32> {
        let mut chosen = Vec::new();
        for (free, count) in self.free.iter_mut().zip(REQUEST) {
            if self.random.is_one_in(2) {
                self.random.shuffle(free)
            } else {
                free.sort_unstable()
            }
            chosen.extend(free.drain(..count));
        }
        chosen
    }

    fn give_back(&mut self, block: u32) {
        let [place, packed] = &mut self.free;
        if block < pools::groups()[1][0] { place.push(block) } else { packed.push(block) }
    }

    /// Waits until a random part of a transfer has arrived; an error when that is all.
    fn let_arrive(&mut self, mut grant: Grant) -> Result<Grant, ()> {
        let share = match self.random.below(16) {
            0..3 => return Ok(grant),
            3 => 1.0,
            _ => self.random.below(1000) as f64 / 1000.0,
        };
        let patience = long();
        loop {
            match grant.poll() {
                Poll::Ready(Ok(received)) => {
                    assert!(received.verdicts.all_valid());
                    return Err(());
                }
                Poll::Ready(Err(error)) => panic!("nobody has given up request {}: {error}", grant.request()),
                Poll::Pending => {}
            }
            let progress = grant.progress();
            let is_begun = progress.bytes_arrived > 0 || progress.writes > 0;
            if share < 1.0 && is_begun && progress.bytes_arrived as f64 >= progress.bytes as f64 * share {
                return Ok(grant);
            }
            assert!(!patience.expired(), "prefill does not push request {}: {progress:?}", grant.request());
        }
    }

    fn take_back(&mut self, grant: Grant, fate: Fate, by: By) {
        let blocks = grant.blocks().to_vec();
        let patience = if fate == Fate::Stopped { STOPPED_PATIENCE } else { PATIENCE };
        let begun = Instant::now();
        let deadline = Deadline::after(patience);
        let verdicts = match by {
            By::Revoke => Some(grant.revoke(deadline).unwrap()),
            By::StartRevoke => {
                let mut revoking = grant.start_revoke(deadline);
                Some(loop {
                    if let Poll::Ready(verdicts) = revoking.poll() {
                        break verdicts.unwrap();
                    }
                    assert!(begun.elapsed() < patience + SLACK, "never taken back");
                })
            }
            By::Token => {
                let token = grant.revoke_token();
                Some(thread::scope(|scope| {
                    scope.spawn(move || token.revoke(deadline));
                    grant.wait().map_or_else(given_up, |received| received.verdicts)
                }))
            }
            By::Drop => {
                drop(grant);
                assert_freed(&self.pool, &blocks);
                None
            }
        };
        let took = begun.elapsed();
        let most = if by == By::Drop { PATIENCE } else { patience } + SLACK;
        assert!(took < most, "{fate:?}, {by:?}: {took:?}");
        self.told.slowest = self.told.slowest.max(took);
        if let Some(verdicts) = verdicts {
            let (missing, most) = (verdicts.count(BlockVerdict::Missing), blocks.len() * LAYERS as usize);
            let part = if missing == most { 0 } else { 1 + usize::from(missing == 0) };
            self.told.parts[part] += 1;
        }
    }

    /// Puts a spare process in the place of prefill, and returns that.
    fn replace(&mut self) -> Prefill {
        self.spares.push_back(Prefill::start(&self.device));
        let mut spare = self.spares.pop_front().unwrap();
        spare.begin(&self.node);
        std::mem::replace(&mut self.prefill, spare)
    }
}

/// The verdicts of a transfer that was taken back, or whose peer has ended first.
fn given_up(error: TransferError) -> Verdicts {
    let known = matches!(
        *error.cause,
        KvError::Revoked { .. } | KvError::PeerFailed { .. } | KvError::LinkEnded { .. }
    );
    assert!(known, "{error}");
    error.verdicts
}

impl fmt::Display for Decode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Told { fates: [ran, killed, stopped], parts: [none, some, all], slowest } = &self.told;
        write!(
            f,
            "device {}: prefill ran in {ran} rounds, was killed in {killed} and stopped in {stopped}; nothing had \
             arrived in {none}, some in {some}, all in {all}; the slowest revocation took {slowest:?}",
            self.device
        )
    }
}
