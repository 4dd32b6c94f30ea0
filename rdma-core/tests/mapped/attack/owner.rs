//! The attacked process: gives memory to writers and takes it back.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_core::{
    Access, CompletionStatus, Context, Deadline, Memory, PathOptions, ProtectionDomain, Region, RetryOptions,
    SoftOptions, Worker,
};

use super::Late;
use super::ground::{self, OLD, STRIPE};
use super::writer::Writer;
use crate::end::{self, End, soon};
use crate::random::Random;

/// Longest time for a deregistration or a fence.
const DEADLINE: Duration = Duration::from_secs(3);
/// The owner takes the memory back within this time after the first write.
const MOMENTS: Duration = Duration::from_micros(400);
/// Rounds after which memory that was taken back is checked again, and then given to writers again.
const RESTS: usize = 8;

/// The fate of one writer before the memory is taken back; the other writers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Runs,
    Killed,
    Stopped,
}

/// The call by which memory is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revocation {
    Deregister,
    Fence,
}

pub struct Owner {
    pd: ProtectionDomain,
    worker: Worker,
    _context: Context,
    retry: RetryOptions,
    writers: Vec<Writer>,
    /// Memory that was taken back, with the byte that fills it, oldest first.
    resting: VecDeque<(Memory, u8)>,
    random: Random,
    round: usize,
    /// Writers that were stopped, and those of them that were in the middle of a chunk.
    stops: [u32; 2],
    slowest: Duration,
    /// Time for which the writers wait until the owner connects.
    pub late: Duration,
}

impl Owner {
    pub fn new(writers: usize) -> Self {
        let end = End::of(SoftOptions { wire: crate::WIRE, ..SoftOptions::default() });
        let End { qp, mut worker, pd, context, retry } = end;
        worker.fence(qp, soon()).unwrap();
        Self {
            pd,
            worker,
            _context: context,
            retry,
            writers: (0..writers).map(|_| Writer::start()).collect(),
            resting: VecDeque::new(),
            random: Random::new(),
            round: 0,
            stops: [0; 2],
            slowest: Duration::ZERO,
            late: Duration::ZERO,
        }
    }

    pub fn seed(&self) -> u64 {
        self.random.seed()
    }

    pub fn told(&self) -> String {
        let [stops, in_a_chunk] = self.stops;
        let slowest = self.slowest;
        format!("the slowest took {slowest:?}; {in_a_chunk} of {stops} stops were in the middle of a chunk")
    }

    /// Plays one round: the writers write, and the owner takes the memory back.
    pub fn round(&mut self, fate: Fate, by: Revocation) -> Result<(), Late> {
        self.round += 1;
        let victim = self.round % self.writers.len();
        let region = self.give(fate, victim)?;
        match fate {
            Fate::Runs => std::thread::sleep(self.random.within(MOMENTS)),
            Fate::Stopped => self.stop_in_a_chunk(&region, victim),
            Fate::Killed => {
                // Every second victim dies at a random moment, and most of the others surely in the middle of a
                // chunk.
                if self.round % 4 < 2 {
                    self.stop_in_a_chunk(&region, victim);
                }
                self.writers[victim].kill();
            }
        }
        let outcome = match by {
            Revocation::Deregister => self.deregister(region, fate, victim),
            Revocation::Fence => self.fence(region, fate, victim),
        };
        self.part();
        if fate == Fate::Killed {
            self.writers[victim] = Writer::start();
        }
        outcome
    }

    /// Returns new memory, or some that has rested, once every writer has begun to write its stripe.
    fn give(&mut self, fate: Fate, victim: usize) -> Result<Region, Late> {
        let memory = if self.resting.len() < RESTS {
            Memory::allocate(self.writers.len() * STRIPE).unwrap()
        } else {
            let (memory, fresh) = self.resting.pop_front().unwrap();
            ground::hold(&memory, fresh).map_err(|late| format!("{late}, {RESTS} rounds later"))?;
            memory
        };
        let region = self.pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        region.copy_in(0, &vec![self.fresh(); region.len()]).unwrap();
        let mut idle = Vec::new();
        for (stripe, writer) in self.writers.iter_mut().enumerate() {
            let qp = end::queue_pair(&mut self.worker, &self.pd);
            let (ours, at) = (qp.endpoint(&self.worker, end::GID_INDEX).unwrap(), (stripe * STRIPE) as u64);
            let target = region.remote().slice(at..at + STRIPE as u64).unwrap();
            writer.tell(&ours, target, fate != Fate::Runs, fate == Fate::Stopped && stripe == victim);
            idle.push(qp);
        }
        std::thread::sleep(self.late);
        let path = PathOptions { gid_index: end::GID_INDEX, ..PathOptions::default() };
        for (writer, qp) in self.writers.iter_mut().zip(idle) {
            let theirs = writer.endpoint();
            writer.qp = Some(qp.connect(&mut self.worker, &theirs, &path, &self.retry).unwrap());
        }
        (0..self.writers.len()).for_each(|stripe| self.await_write(&region, stripe));
        Ok(region)
    }

    /// The owner's byte of this round.
    fn fresh(&self) -> u8 {
        (self.round % usize::from(OLD)) as u8
    }

    /// Waits until a stripe is written.
    fn await_write(&self, region: &Region, stripe: usize) {
        let patience = soon();
        while ground::first(region, stripe) < OLD {
            assert!(!patience.expired(), "writer {stripe} does not write; SOAK_SEED={}", self.seed());
            if let Some(status) = self.writers[stripe].ended() {
                panic!("a write of writer {stripe} failed: {status:?}; SOAK_SEED={}", self.seed());
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    /// Stops a writer where its slot says that it touches the memory.
    fn stop_in_a_chunk(&mut self, region: &Region, victim: usize) {
        let patience = soon();
        loop {
            std::thread::sleep(self.random.within(MOMENTS));
            self.writers[victim].stop();
            self.stops[0] += 1;
            if ground::is_in_a_chunk(region, victim) {
                self.stops[1] += 1;
                return;
            }
            assert!(!patience.expired(), "never stopped in a chunk; SOAK_SEED={}", self.seed());
            self.writers[victim].resume();
        }
    }

    fn deregister(&mut self, region: Region, fate: Fate, victim: usize) -> Result<(), Late> {
        let begun = Instant::now();
        let mut memory = region.deregister().unwrap();
        self.took(begun);
        let fresh = self.fresh();
        ground::take(&mut memory, fresh)?;
        if fate == Fate::Stopped {
            self.go_on(victim, CompletionStatus::REM_ACCESS_ERR);
        }
        ground::hold(&memory, fresh)?;
        self.resting.push_back((memory, fresh));
        Ok(())
    }

    /// Fences one writer after the other, the victim first; the rest write on meanwhile.
    fn fence(&mut self, region: Region, fate: Fate, victim: usize) -> Result<(), Late> {
        let fresh = self.fresh();
        let all = self.writers.len();
        for stripe in (0..all).map(|at| (victim + at) % all) {
            let Some(qp) = self.writers[stripe].qp.take() else { continue };
            let begun = Instant::now();
            self.worker.fence(qp, Deadline::after(DEADLINE)).unwrap();
            self.took(begun);
            ground::take_stripe(&region, stripe, fresh)?;
            if stripe == victim && fate != Fate::Runs {
                self.await_others(&region, victim);
            }
            if stripe == victim && fate == Fate::Stopped {
                self.go_on(victim, CompletionStatus::RETRY_EXC_ERR);
                ground::hold_stripe(&region, victim, fresh)?;
            }
        }
        (0..all).try_for_each(|stripe| ground::hold_stripe(&region, stripe, fresh))?;
        let memory = region.deregister().unwrap();
        ground::hold(&memory, fresh)?;
        self.resting.push_back((memory, fresh));
        Ok(())
    }

    /// Resumes a stopped writer, and waits until its write fails.
    fn go_on(&self, victim: usize, known: CompletionStatus) {
        self.writers[victim].resume();
        assert_eq!(self.writers[victim].ending(), known, "SOAK_SEED={}", self.seed());
    }

    /// Waits for new writes of the other writers, which must not be disturbed.
    fn await_others(&self, region: &Region, victim: usize) {
        for stripe in (0..self.writers.len()).filter(|stripe| *stripe != victim) {
            region.copy_in(stripe * STRIPE, &[0]).unwrap();
            self.await_write(region, stripe);
        }
    }

    fn took(&mut self, begun: Instant) {
        let took = begun.elapsed();
        assert!(took < DEADLINE, "it took {took:?}; SOAK_SEED={}", self.seed());
        self.slowest = self.slowest.max(took);
    }

    /// Ends the remaining connections of this round.
    fn part(&mut self) {
        for writer in &mut self.writers {
            writer.resume();
            if let Some(qp) = writer.qp.take() {
                self.worker.fence(qp, soon()).unwrap();
            }
        }
        while self.worker.poll().unwrap().is_some() {}
    }
}
