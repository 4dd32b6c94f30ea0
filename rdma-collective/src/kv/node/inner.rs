//! The part of a node that its handle, its tasks and its threads share.

use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use rustix::net::{SendFlags, send};

use super::NodeError;
use super::blob::NodeBlob;
use super::table::Table;
use super::work;
use crate::bootstrap::JobToken;
use crate::engine::{Engine, Nudge};
use crate::kv::{LinkOptions, Pool};
use crate::log::Held;

/// Threads that make and end links at once. Each may wait for a peer that does not answer, and the others go on.
const WORKERS_MAX: usize = 32;

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
    /// Threads that do the table's jobs.
    workers: usize,
}

impl Inner {
    pub(super) fn new(
        (engine, source, destination): (&Engine, Option<&Pool>, Option<&Pool>),
        (token, own): (JobToken, NodeBlob),
        link: LinkOptions,
        (listener, nudge, table): (TcpListener, Nudge, Table),
    ) -> Self {
        let state = Mutex::new(State { table, workers: 0 });
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

    /// Changes the table, has its jobs done, and wakes the tasks that wait for the change.
    pub(super) fn change<T>(self: &Arc<Self>, change: impl FnOnce(&mut Table) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state.table);
        let woken = std::mem::take(&mut state.table.woken);
        let notes = std::mem::take(&mut state.table.notes);
        let new = state.table.jobs.len().min(WORKERS_MAX.saturating_sub(state.workers));
        state.workers += new;
        drop(state);
        for (stream, note) in notes {
            // A connection that takes no six bytes is that of a peer which hears nothing, or has gone: its end shows.
            if let Err(error) = send(&*stream, &note.encode(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                crate::log::debug!(?note, %error, "a KV node was not told of a link");
            }
        }
        (0..new).for_each(|_| self.start_worker());
        woken.into_iter().for_each(std::task::Waker::wake);
        result
    }

    fn start_worker(self: &Arc<Self>) {
        let own = Arc::clone(self);
        let started = Builder::new().name("rdma-node-link".to_owned()).spawn(move || own.work());
        if let Err(source) = started {
            crate::log::error!(error = %source, "cannot start a thread that makes and ends links of a KV node");
            let error = NodeError::Thread { source: Arc::new(source) };
            // The jobs that no other thread will do fail with this.
            let failed = self.end_worker(true);
            failed.into_iter().for_each(|job| work::fail(self, job, &error));
        }
    }

    /// Does jobs until none is left.
    fn work(self: Arc<Self>) {
        loop {
            let job = {
                let mut state = self.lock();
                let job = state.table.jobs.pop_front();
                if job.is_none() {
                    state.workers -= 1;
                }
                job
            };
            match job {
                Some(job) => work::run(&self, job),
                None => return,
            }
        }
    }

    /// Counts a worker less; returns the jobs that are left when it was the last one.
    fn end_worker(&self, takes_jobs: bool) -> Vec<super::table::Job> {
        let mut state = self.lock();
        state.workers -= 1;
        if takes_jobs && state.workers == 0 { state.table.jobs.drain(..).collect() } else { Vec::new() }
    }
}
