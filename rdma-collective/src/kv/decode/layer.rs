//! Layers of a grant as they arrive: polled, waited for or awaited while the other layers are under way.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::Grant;
use crate::kv::layout::LayoutError;
use crate::kv::pending::BUDGET;
use crate::kv::plan::PlanError;
use crate::kv::receive::{Layer, Receives};
use crate::kv::verdict::{BlockVerdict, Verdicts};
use crate::kv::{KvError, TransferError};

impl Grant {
    /// Waits until all of a layer has arrived, and was checked if the link has checksums. Returns one verdict for
    /// each block, in the order of the request.
    ///
    /// A push that does not announce layers may complete no layer before the whole transfer is there.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerLate`] at `deadline`, while the transfer goes on; otherwise the error of the transfer.
    pub fn wait_layer(&self, layer: u32, deadline: Deadline) -> Layer {
        self.has_layer(layer)?;
        self.check_process()?;
        let shared = &self.shared;
        let next = shared.engine.wait_for(deadline, |_, _| match shared.lock().layer(self.id, layer) {
            Some(next) => Poll::Ready(next),
            None => Poll::Pending,
        });
        let late = || Err(self.layer_error(KvError::LayerLate { request: self.request, layer }));
        next.unwrap_or_else(late)
    }

    /// Drives the engine once and looks whether all of a layer has arrived; never waits. Otherwise like
    /// [`wait_layer`](Self::wait_layer).
    pub fn poll_layer(&self, layer: u32) -> Poll<Layer> {
        // The error is dropped here, because a failed device ends the transfer with the same error.
        let _ = self.shared.engine.drive(Instant::now(), BUDGET);
        self.look_layer(layer, None)
    }

    /// A future of one layer, for any runtime. One task at a time may await the same layer.
    ///
    /// The future ends at the latest with the transfer. Otherwise like [`wait_layer`](Self::wait_layer).
    pub fn layer(&self, layer: u32) -> LayerFuture<'_> {
        LayerFuture { grant: self, layer }
    }

    fn look_layer(&self, layer: u32, waker: Option<&Waker>) -> Poll<Layer> {
        self.has_layer(layer)?;
        self.check_process()?;
        let take = |state: &mut Receives| state.layer(self.id, layer);
        self.shared.look((self.id, layer), waker, take, |state| &mut state.layer_wakers)
    }

    fn has_layer(&self, layer: u32) -> Result<(), TransferError> {
        if layer < self.layers() {
            return Ok(());
        }
        let none = LayoutError::NoSuchLayer { layer, layers: self.layers() };
        Err(self.layer_error(PlanError::from(none).into()))
    }

    /// Fails in a forked child.
    fn check_process(&self) -> Result<(), TransferError> {
        self.shared.engine.check_process().map_err(|forked| self.layer_error(forked.into()))
    }

    pub(super) fn layer_error(&self, cause: KvError) -> TransferError {
        let none = || Verdicts::new(self.layers(), &self.blocks, BlockVerdict::Missing);
        let verdicts = self.shared.glance(|state| state.so_far(self.id)).unwrap_or_else(none);
        TransferError { cause: Arc::new(cause), verdicts }
    }
}

/// The future of a [layer](Grant::layer). The thread that drives the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct LayerFuture<'a> {
    grant: &'a Grant,
    layer: u32,
}

impl Future for LayerFuture<'_> {
    type Output = Layer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Layer> {
        self.grant.look_layer(self.layer, Some(context.waker()))
    }
}
