//! The part of a node that its handle, its tasks and its threads share.

use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use rustix::net::{SendFlags, send};

use super::NodeError;
use super::blob::NodeBlob;
use super::jobs::{Job, QUEUES};
use super::link_slot::Way;
use super::table::Table;
use super::work;
use crate::bootstrap::JobToken;
use crate::engine::{Engine, Nudge};
use crate::kv::{LinkOptions, Pool};
use crate::log::Held;
use crate::wake::wake_all;

/// Threads of each queue of jobs. Each may wait for a peer that does not answer, and the others go on.
const WORKERS_MAX: usize = 16;

/// The state that all parts of a node share.
pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) token: JobToken,
    /// The node itself, as its blob has it.
    pub(super) own: NodeBlob,
    pub(super) link: LinkOptions,
    /// Wakes the node's own thread.
    pub(super) nudge: Arc<Nudge>,
    /// Shared with the node's own thread, which lets go of all else before it says that the node has ended.
    state: Arc<Mutex<State>>,
}

struct State {
    table: Table,
    /// The pools to send from and to receive into, until the node has ended.
    pools: [Option<Pool>; 2],
    /// Threads that do the jobs of each queue.
    workers: [usize; QUEUES],
    /// Threads that are counted and have not begun yet.
    starting: usize,
    /// The threads of workers that have begun, and that nobody has joined.
    threads: Vec<JoinHandle<()>>,
    /// The time at which the node's own thread wakes by itself.
    wakes_at: Option<Instant>,
}

/// The work that a node still has to do once it was closed.
pub(super) enum Rest {
    /// Workers are at it.
    Busy,
    /// A job whose thread could not be started.
    Stranded(Job),
    /// Nothing; these threads have ended, or are about to.
    Done(Vec<JoinHandle<()>>),
}

impl Inner {
    pub(super) fn new(
        (engine, source, destination): (&Engine, Option<&Pool>, Option<&Pool>),
        (token, own): (JobToken, NodeBlob),
        link: LinkOptions,
        (nudge, table): (Arc<Nudge>, Table),
    ) -> Self {
        let state = Arc::new(Mutex::new(State {
            table,
            pools: [source.cloned(), destination.cloned()],
            workers: [0; QUEUES],
            starting: 0,
            threads: Vec::new(),
            wakes_at: None,
        }));
        Self { engine: engine.clone(), token, own, link, nudge, state }
    }

    /// The pool of that direction; `None` once the node has ended.
    pub(super) fn pool(&self, way: Way) -> Option<Pool> {
        let state = self.lock();
        let [source, destination] = &state.pools;
        if way == Way::Out { source.clone() } else { destination.clone() }
    }

    /// The work that is left to do at the end of the node.
    pub(super) fn rest(&self) -> Rest {
        let mut state = self.lock();
        let State { table, workers, starting, threads, .. } = &mut *state;
        let mut idle = (0..).zip(&*workers).filter(|(_, workers)| **workers == 0);
        let is_lent = Arc::strong_count(&table.lent) > 1;
        match idle.find_map(|(queue, _)| table.jobs.pop(queue)) {
            Some(job) => Rest::Stranded(job),
            None if is_lent || *starting > 0 || workers.iter().any(|workers| *workers > 0) => Rest::Busy,
            None => Rest::Done(std::mem::take(threads)),
        }
    }

    /// Lets go of the pools and of the node, and then says that it has ended. Returns the tasks that wait for that, to
    /// be woken: nobody waits for a waker, because the node has ended before.
    pub(super) fn finish(self: Arc<Self>) -> Vec<Waker> {
        let pools = std::mem::take(&mut self.lock().pools);
        drop(pools);
        let shared = Arc::clone(&self.state);
        drop(self);
        let mut state = lock(&shared);
        let table = &mut state.table;
        table.has_ended = true;
        table.tickets.wake_due(None, &mut table.woken);
        std::mem::take(&mut table.woken)
    }

    fn lock(&self) -> Held<MutexGuard<'_, State>> {
        lock(&self.state)
    }

    /// Looks at the table, and changes nothing that anybody waits for.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.lock().table)
    }

    /// Looks at the table before the node's own thread sleeps until `next`, or for the first task that waits.
    pub(super) fn look_before_sleep<T>(
        &self,
        next: Option<Instant>,
        look: impl FnOnce(&Table) -> T,
    ) -> (T, Option<Instant>) {
        let mut state = self.lock();
        let next = next.into_iter().chain(state.table.next_deadline()).min();
        state.wakes_at = next;
        (look(&state.table), next)
    }

    /// Changes the table, has its jobs done, and wakes the tasks that wait for the change.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state.table);
        let woken = std::mem::take(&mut state.table.woken);
        state.table.words.drain(..).for_each(|(stream, word)| tell(&stream, &word));
        let wakes_at = state.wakes_at;
        let is_early = state.table.tickets.must_wake_before(wakes_at);
        let mut new = [0; QUEUES];
        for (queue, new) in new.iter_mut().enumerate() {
            *new = state.table.jobs.len(queue).min(WORKERS_MAX.saturating_sub(state.workers[queue]));
            state.workers[queue] += *new;
            state.starting += *new;
        }
        drop(state);
        if is_early {
            self.nudge.send();
        }
        for (queue, new) in new.into_iter().enumerate() {
            (0..new).for_each(|_| self.start_worker(queue));
        }
        wake_all(woken);
        result
    }

    fn start_worker(self: &Arc<Self>, queue: usize) {
        let own = Arc::clone(self);
        let started = Builder::new().name("rdma-node-work".to_owned()).spawn(move || own.work(queue));
        let mut state = self.lock();
        state.starting -= 1;
        let source = match started {
            Ok(thread) => {
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
                return self.end_of_a_worker(state);
            }
            Err(source) => source,
        };
        state.workers[queue] -= 1;
        // Ends of links wait for the next thread.
        let failed = if state.workers[queue] == 0 { state.table.jobs.take_awaited() } else { Vec::new() };
        self.end_of_a_worker(state);
        crate::log::error!(error = %source, "cannot start a thread that makes and ends links of a KV node");
        let error = NodeError::Thread { source: Arc::new(source) };
        failed.into_iter().for_each(|job| work::fail(self, &job, &error));
    }

    /// Does jobs of a queue until none is left.
    fn work(self: Arc<Self>, queue: usize) {
        while let Some(job) = self.next_job(queue) {
            // Jobs run code of the user's, such as subscribers of the log. The node counts this thread.
            if catch_unwind(AssertUnwindSafe(|| work::run(&self, job))).is_err() {
                crate::log::error!("a job of a KV node has panicked");
            }
        }
    }

    fn next_job(&self, queue: usize) -> Option<Job> {
        let mut state = self.lock();
        let job = state.table.jobs.pop(queue);
        if job.is_none() {
            state.workers[queue] -= 1;
            self.end_of_a_worker(state);
        }
        job
    }

    /// Has the node's own thread look whether that was the last worker of a node that was closed.
    fn end_of_a_worker(&self, state: Held<MutexGuard<'_, State>>) {
        let is_closed = state.table.is_closed;
        drop(state);
        if is_closed {
            self.nudge.send();
        }
    }
}

fn lock(state: &Mutex<State>) -> Held<MutexGuard<'_, State>> {
    // A poisoned lock is safe to use: the table's changes do not panic.
    Held::lock(|| state.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Says something short to a peer, and never waits. A connection that does not take so few bytes is that of a peer
/// which hears nothing, or has gone: its end shows.
pub(super) fn tell(stream: &TcpStream, word: &[u8]) {
    if let Err(error) = send(stream, word, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        crate::log::debug!(%error, "a KV node was not told something");
    }
}
