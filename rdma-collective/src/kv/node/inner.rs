//! The part of a node that its handle, its tasks and its threads share.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::Builder;
use std::time::Instant;

use rustix::net::{SendFlags, send};

use super::NodeError;
use super::blob::NodeBlob;
use super::jobs::{Job, QUEUES};
use super::table::Table;
use super::work;
use crate::bootstrap::JobToken;
use crate::engine::{Engine, Nudge};
use crate::kv::{LinkOptions, Pool};
use crate::log::Held;

/// Threads of each queue of jobs. Each may wait for a peer that does not answer, and the others go on.
const WORKERS_MAX: usize = 16;

/// The state that all parts of a node share.
pub(super) struct Inner {
    pub(super) engine: Engine,
    pub(super) source: Option<Pool>,
    pub(super) destination: Option<Pool>,
    pub(super) token: JobToken,
    /// The node itself, as its blob has it.
    pub(super) own: NodeBlob,
    pub(super) link: LinkOptions,
    pub(super) listener: TcpListener,
    /// Wakes the node's own thread.
    pub(super) nudge: Nudge,
    state: Mutex<State>,
}

struct State {
    table: Table,
    /// Threads that do the jobs of each queue.
    workers: [usize; QUEUES],
    /// The time at which the node's own thread wakes by itself.
    wakes_at: Option<Instant>,
}

impl Inner {
    pub(super) fn new(
        (engine, source, destination): (&Engine, Option<&Pool>, Option<&Pool>),
        (token, own): (JobToken, NodeBlob),
        link: LinkOptions,
        (listener, nudge, table): (TcpListener, Nudge, Table),
    ) -> Self {
        let state = Mutex::new(State { table, workers: [0; QUEUES], wakes_at: None });
        let (engine, source, destination) = (engine.clone(), source.cloned(), destination.cloned());
        Self { engine, source, destination, token, own, link, listener, nudge, state }
    }

    fn lock(&self) -> Held<MutexGuard<'_, State>> {
        // A poisoned lock is safe to use: the table's changes do not panic.
        Held::lock(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))
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
        let next = next.into_iter().chain(state.table.tickets.next_deadline()).min();
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
        }
        drop(state);
        if is_early {
            self.nudge.send();
        }
        for (queue, new) in new.into_iter().enumerate() {
            (0..new).for_each(|_| self.start_worker(queue));
        }
        woken.into_iter().for_each(Waker::wake);
        result
    }

    fn start_worker(self: &Arc<Self>, queue: usize) {
        let own = Arc::clone(self);
        let started = Builder::new().name("rdma-node-work".to_owned()).spawn(move || own.work(queue));
        let Err(source) = started else { return };
        crate::log::error!(error = %source, "cannot start a thread that makes and ends links of a KV node");
        let mut state = self.lock();
        state.workers[queue] -= 1;
        // Ends of links wait for the next thread.
        let failed = if state.workers[queue] == 0 { state.table.jobs.take_awaited() } else { Vec::new() };
        drop(state);
        let error = NodeError::Thread { source: Arc::new(source) };
        failed.into_iter().for_each(|job| work::fail(self, &job, &error));
    }

    /// Does jobs of a queue until none is left.
    fn work(self: Arc<Self>, queue: usize) {
        while let Some(job) = self.next_job(queue) {
            work::run(&self, job);
        }
    }

    fn next_job(&self, queue: usize) -> Option<Job> {
        let mut state = self.lock();
        let job = state.table.jobs.pop(queue);
        if job.is_none() {
            state.workers[queue] -= 1;
        }
        job
    }
}

/// Says something short to a peer, and never waits. A connection that does not take so few bytes is that of a peer
/// which hears nothing, or has gone: its end shows.
pub(super) fn tell(stream: &TcpStream, word: &[u8]) {
    if let Err(error) = send(stream, word, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        crate::log::debug!(%error, "a KV node was not told something");
    }
}
