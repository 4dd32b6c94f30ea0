//! Calls on operations under way, tensors and engines.

use std::future::{Future, IntoFuture};
use std::os::fd::AsRawFd;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_collective::engine::{Engine, EngineOptions};
use rdma_core::{Access, Memory};

use super::{Call, Outcome, done, harmless, polled, refused, told};
use crate::fixture::soon;

/// Polls a future once.
pub fn awaited<T, E: std::fmt::Display>(future: impl Future<Output = Result<T, E>>) -> Outcome {
    polled(pin!(future).poll(&mut Context::from_waker(Waker::noop())))
}

pub const CALLS: &[Call] = &[
    harmless("collective::Pending::drop", |f| {
        drop(f.pending);
        Outcome::Done
    }),
    refused("collective::Pending::into_future", |f| awaited(f.pending.into_future())),
    refused("collective::Pending::poll", |mut f| polled(f.pending.poll())),
    refused("collective::Pending::wait", |f| told(f.pending.wait(soon()))),
    refused("collective::PendingFuture::poll", |f| awaited(f.pending.into_future())),
    harmless("collective::Tensor::deref", |f| done(f.tensor.first().copied())),
    harmless("collective::Tensor::deref_mut", |mut f| {
        f.tensor.fill(0.0);
        Outcome::Done
    }),
    harmless("collective::Tensor::select", |mut f| done(f.tensor.select(0..2))),
    refused("engine::Engine::arm", |f| told(f.engine.arm())),
    harmless("engine::Engine::contexts", |f| done(f.engine.contexts().len())),
    harmless("engine::Engine::context", |f| done(f.engine.context().name().len())),
    refused("engine::Engine::drive", |f| told(f.engine.drive(Instant::now(), 16))),
    harmless("engine::Engine::gid", |f| done(f.engine.gid().entry.index)),
    refused("engine::Engine::new", |f| told(Engine::new(f.engine.context(), EngineOptions::default()))),
    harmless("engine::Engine::next_deadline", |f| done(f.engine.next_deadline())),
    harmless("engine::Engine::options", |f| done(f.engine.options().driver)),
    refused("engine::Engine::register", |f| {
        told(f.engine.register(Memory::from(vec![0; 4096]), Access::LOCAL_WRITE))
    }),
    refused("engine::Engine::over", |f| {
        told(Engine::over(&[(f.engine.context().clone(), EngineOptions::default())]))
    }),
    harmless("engine::Engine::wake_fd", |f| done(f.engine.wake_fd().as_raw_fd())),
    // A waker of the parent must not be needed: the poll is ready at once.
    refused("collective::Pending::poll", |mut f| match f.pending.poll() {
        Poll::Ready(result) => told(result),
        Poll::Pending => Outcome::Done,
    }),
];
