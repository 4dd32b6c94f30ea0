//! Continuous batching: one thread computes all texts that run, a chunk or a token of each in every step.
//!
//! Texts come and go between steps. What a text gets does not depend on the others, because the model gives a token the
//! same bits in every batch.

mod job;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;

use crate::cache::{Memory, Paged};
use crate::model::{Cache, Chunk, Llama};

pub use job::{Event, Finish, Job};

/// Texts that run at once, at most. Others wait.
const RUNNING_MAX: usize = 64;
/// Tokens of a step, at most: a long prompt delays the others by so much.
const STEP_TOKENS: usize = 64;
// A token of each text fits, so that no answer stands still.
const _: () = assert!(STEP_TOKENS >= RUNNING_MAX);
/// Texts that wait, at most; whoever brings another waits itself.
const WAITING_MAX: usize = 256;
/// Time for which the one who brings a text waits itself.
const ADDED_WITHIN: Duration = Duration::from_secs(10);

/// The texts that a model computes. They end with the last handle.
pub struct Batch {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    computed: Computed,
}

/// The count of tokens that were computed. A clone is another handle to it.
#[derive(Clone, Default)]
pub struct Computed(Arc<AtomicU64>);

impl Computed {
    /// The count, now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Batch {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn start(model: Arc<Llama>, memory: Memory) -> Result<Self> {
        let (jobs, arrivals) = channel(RUNNING_MAX);
        let computed = Computed::default();
        let mut running = Running::new(model, memory, arrivals, computed.clone());
        let thread = Builder::new().name("batch".to_owned()).spawn(move || running.run())?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread), computed })
    }

    /// The count of tokens that were computed, prompts' and answers'.
    #[must_use]
    pub fn computed(&self) -> &Computed {
        &self.computed
    }

    /// Adds a text, which runs until it has ended or nobody hears its events.
    ///
    /// # Errors
    ///
    /// The thread has ended, or too many texts wait.
    pub async fn add(&self, job: Job) -> Result<()> {
        let ended = || anyhow!("the model has stopped");
        let added = self.jobs.as_ref().ok_or_else(ended)?.send(job);
        timeout(ADDED_WITHIN, added).await.context("too many texts wait for the model")?.map_err(|_| ended())
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.jobs = None;
        self.thread.take().map(JoinHandle::join);
    }
}

struct Running {
    model: Arc<Llama>,
    memory: Memory,
    arrivals: Receiver<Job>,
    waiting: VecDeque<Job>,
    jobs: Vec<Job>,
    computed: Computed,
}

impl Running {
    fn new(model: Arc<Llama>, memory: Memory, arrivals: Receiver<Job>, computed: Computed) -> Self {
        Self { model, memory, arrivals, waiting: VecDeque::new(), jobs: Vec::new(), computed }
    }

    fn run(&mut self) {
        while self.take_new() {
            let parts = self.parts();
            if let Err(error) = self.step(&parts) {
                match &parts[..] {
                    [(at, _)] => self.fail(*at, &error),
                    // Each alone, so that the text that cannot be computed costs the others nothing.
                    several => several.chunks(1).for_each(|part| {
                        let failed = self.step(part).err().zip(part.first());
                        _ = failed.map(|(error, (at, _))| self.fail(*at, &error));
                    }),
                }
            }
            self.jobs.retain(Job::is_running);
        }
    }

    /// Ends a text that cannot be computed.
    fn fail(&mut self, at: usize, error: &Error) {
        _ = self.jobs.get_mut(at).map(|job| job.fail(&format!("{error:#}")));
    }

    /// Has the texts that wait run, as far as there is room. Returns `false` when none is left and none will come.
    fn take_new(&mut self) -> bool {
        // Each step, so that a text that nobody hears any more gives its blocks back although none may run.
        self.waiting.retain(Job::is_running);
        while self.waiting.len() < WAITING_MAX {
            let idle = self.jobs.is_empty() && self.waiting.is_empty();
            let job = if idle { self.arrivals.blocking_recv() } else { self.arrivals.try_recv().ok() };
            let Some(job) = job else { break };
            self.waiting.extend(Some(job).filter(Job::is_running));
        }
        let places = RUNNING_MAX.saturating_sub(self.jobs.len()).min(self.waiting.len());
        self.jobs.extend(self.waiting.drain(..places).map(|mut job| {
            job.turn.runs();
            job
        }));
        !self.jobs.is_empty()
    }

    /// The tokens to compute in the next step, by text. Texts whose answer has begun come first.
    fn parts(&self) -> Vec<(usize, Range<usize>)> {
        let mut left = STEP_TOKENS;
        let mut parts = Vec::new();
        for answers in [true, false] {
            for (at, job) in self.jobs.iter().enumerate().filter(|(_, job)| job.is_answering() == answers) {
                let tokens = job.to_compute();
                let end = tokens.end.min(tokens.start + left);
                if tokens.start < end {
                    parts.push((at, tokens.start..end));
                    left -= end - tokens.start;
                }
            }
        }
        parts
    }

    fn step(&mut self, parts: &[(usize, Range<usize>)]) -> Result<()> {
        let Self { model, memory, jobs, .. } = self;
        let of = |at: usize| jobs.get(at).ok_or_else(|| anyhow!("a text that is gone"));
        let mut caches = Vec::with_capacity(parts.len());
        for (at, _) in parts {
            caches.push(memory.of(of(*at)?.blocks.list()));
        }
        let mut chunks = Vec::with_capacity(parts.len());
        for ((at, range), cache) in parts.iter().zip(&mut caches) {
            let tokens = of(*at)?.text.get(range.clone()).unwrap_or_default();
            let cache: &mut Paged<'_> = cache;
            chunks.push(Chunk { tokens, first: range.start, cache: cache as &mut dyn Cache });
        }
        let written = |layer| {
            for (at, range) in parts {
                of(*at)?.written(layer, range);
            }
            Ok(())
        };
        let logits = model.step(&mut chunks, written)?;
        drop(chunks);
        drop(caches);
        for ((at, range), logits) in parts.iter().zip(logits) {
            self.computed.0.fetch_add(range.len() as u64, Ordering::Relaxed);
            if let Some(job) = jobs.get_mut(*at) {
                job.computed(range.end, |sampling| sampling.choose(&logits, range.end));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
