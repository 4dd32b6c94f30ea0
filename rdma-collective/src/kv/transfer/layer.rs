//! Layers of a transfer: announced at prefill, and at decode polled, waited for or awaited while the other layers are
//! under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use rdma_core::Deadline;

use super::{BUDGET, Receiving, Sending, Transfer};
use crate::kv::layout::LayoutError;
use crate::kv::machine::Machine;
use crate::kv::plan::PlanError;
use crate::kv::receive::{Layer, Receives};
use crate::kv::verdict::Verdicts;
use crate::kv::{KvError, TransferError};

impl Transfer<Sending> {
    /// Announces that the blocks hold the bytes of `layer`: from now on the device may read that layer.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerOutOfOrder`]; [`KvError::LayerRepeated`] for a layer that was announced before, as all layers of
    /// a transfer are that [`push_layers`](crate::kv::Prefill::push_layers) did not begin; [`KvError::Plan`] for a
    /// layer that the pool does not have. The transfer goes on as if nothing had been announced.
    pub fn layer_ready(&self, layer: u32) -> Result<(), KvError> {
        self.shared.change(|state, _, _| state.layer_ready(self.id, layer))
    }
}

impl Transfer<Receiving> {
    /// Waits until all of a layer has arrived, and was checked if the link has checksums. Returns one verdict for
    /// each block, in the order of the request.
    ///
    /// A push that does not announce layers may complete no layer before the whole transfer is there, and a pull
    /// completes none before.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerLate`] at `deadline`, while the transfer goes on; otherwise the error of the transfer.
    pub fn wait_layer(&self, layer: u32, deadline: Deadline) -> Layer {
        self.check_layer(layer)?;
        let shared = &self.shared;
        let next = shared.engine.wait_for(deadline, |_, _| match shared.lock().layer(self.id, layer) {
            Some(next) => Poll::Ready(next),
            None => Poll::Pending,
        });
        let late = || Err(self.error(KvError::LayerLate { request: self.request, layer }));
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
        LayerFuture { transfer: self, layer }
    }

    pub(super) fn look_layer(&self, layer: u32, waker: Option<&Waker>) -> Poll<Layer> {
        self.check_layer(layer)?;
        let take = |state: &mut Receives| state.layer(self.id, layer);
        self.shared.look((self.id, layer), waker, take, |state| &mut state.layer_wakers)
    }

    /// Fails for a layer that the pool does not have, and in a forked child.
    fn check_layer(&self, layer: u32) -> Result<(), TransferError> {
        let layers = self.shared.pool.layout().layers();
        if layer >= layers {
            return Err(self.error(PlanError::from(LayoutError::NoSuchLayer { layer, layers }).into()));
        }
        self.shared.engine.check_process().map_err(|forked| self.error(forked.into()))
    }

    /// The verdicts so far.
    pub(super) fn so_far(&self) -> Verdicts {
        self.error(KvError::LayerLate { request: self.request, layer: 0 }).verdicts
    }

    fn error(&self, cause: KvError) -> TransferError {
        Receives::refused(&self.shared, self.id, &self.list, cause)
    }
}

/// The future of a [layer](Transfer::layer). The thread that drives the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct LayerFuture<'a> {
    transfer: &'a Transfer<Receiving>,
    layer: u32,
}

impl Future for LayerFuture<'_> {
    type Output = Layer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Layer> {
        self.transfer.look_layer(self.layer, Some(context.waker()))
    }
}
