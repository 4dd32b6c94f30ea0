//! Layers of a transfer: announced at prefill, and at both ends polled, waited for or awaited while the other layers
//! are under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use rdma_core::Deadline;

use super::{Receiving, Sending, Transfer};
use crate::kv::layout::LayoutError;
use crate::kv::machine::Machine;
use crate::kv::note::{NOTE_BYTES_MAX, Note};
use crate::kv::plan::PlanError;
use crate::kv::push::Pushes;
use crate::kv::receive::{Layer, Receives};
use crate::kv::verdict::Verdicts;
use crate::kv::{KvError, TransferError};

impl Transfer<Sending> {
    /// Announces that the blocks hold the bytes of `layer`: from now on the device may read that layer.
    ///
    /// Layers are announced in any order, each once, and are sent in that order. On a link with checksums a layer is
    /// there at decode only when all layers before it are, too, because checksums go in the order of the layers.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerRepeated`] for a layer that was announced before, as all layers of a transfer are that
    /// [`push_layers`](crate::kv::Prefill::push_layers) did not begin; [`KvError::Plan`] for a layer that the pool does
    /// not have. The transfer goes on as if nothing had been announced. The error of the transfer when it has ended
    /// badly, or is about to; [`KvError::OutcomeTaken`] once the outcome was taken.
    pub fn layer_ready(&self, layer: u32) -> Result<(), KvError> {
        self.check_layer(layer)?;
        self.shared.change(&self.list, |state, _| state.layer_ready(self.id, layer))
    }

    /// Sets the note that the push has [promised](crate::kv::Request::note_later), once; the push is not done before.
    ///
    /// The note may come before the layers, between them or after the last one, when all blocks have arrived: the
    /// first token is known only when the last layer is computed. Decode is not told of a push without its note, so
    /// set an empty one if there is nothing to say.
    ///
    /// # Errors
    ///
    /// [`KvError::NoteNotDue`] for a transfer that promised no note, and for a note that is set already;
    /// [`KvError::NoteLength`] for more than 64 KiB, and the note is still due. The error of the transfer when it has
    /// ended badly, or is about to; [`KvError::OutcomeTaken`] once the outcome was taken.
    ///
    /// ```
    /// # use rdma_collective::kv::{KvError, Prefill, Request};
    /// # use rdma_core::Deadline;
    /// fn run(prefill: &Prefill, layers: u32, deadline: Deadline) -> Result<(), KvError> {
    ///     let push = prefill.push_layers(Request::new("chatcmpl-7b1d").note_later(), &[3, 1], deadline)?;
    ///     (0..layers).try_for_each(|layer| push.layer_ready(layer))?;
    ///     // The first token is sampled while the last layer is on its way.
    ///     let first_token = 42_u32;
    ///     push.set_note(&first_token.to_le_bytes())?;
    ///     push.wait().map(drop)
    /// }
    /// ```
    pub fn set_note(&self, bytes: &[u8]) -> Result<(), KvError> {
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(KvError::NoteLength { bytes: bytes.len() });
        }
        self.check_open()?;
        self.shared.change(&self.list, |state, _| state.set_note(self.id, Note::new(bytes)))
    }

    /// Waits until all of a layer is sent: its bytes are at the peer, and this transfer does not read them here any
    /// more.
    ///
    /// The memory of the layer may then be used for something else, but not by [`Pool::write`](crate::kv::Pool::write),
    /// which refuses the blocks until the transfer has ended. A transfer that is resumed after it broke off may need
    /// the bytes of a layer again that was sent, because decode may have given the transfer up before it had used them,
    /// or may have found them corrupt.
    ///
    /// Every layer of a transfer that [`push_layers`](crate::kv::Prefill::push_layers) did not begin is sent when the
    /// transfer has ended well. On a link with checksums a layer is sent only after all layers before it were
    /// announced, because this end sums layers up in their order: wait for a layer, and only then announce one before
    /// it, and the wait lasts until its deadline. A layer of which the grant wants nothing is sent once the push has
    /// met the grant.
    ///
    /// # Errors
    ///
    /// [`KvError::LayerLate`] at `deadline`, while the transfer goes on. The error of a transfer that has ended badly
    /// before the layer was sent. [`KvError::Plan`] for a layer that the pool does not have, and
    /// [`KvError::OutcomeTaken`] once the outcome was taken.
    pub fn wait_layer_sent(&self, layer: u32, deadline: Deadline) -> Result<(), KvError> {
        self.check_layer(layer)?;
        let sent = self.shared.engine.wait_for(deadline, |_, _| self.look_layer_sent(layer, None));
        sent.unwrap_or(Err(KvError::LayerLate { request: self.request, layer }))
    }

    /// Drives the engine once and looks whether all of a layer is sent; never waits. Otherwise like
    /// [`wait_layer_sent`](Self::wait_layer_sent).
    pub fn poll_layer_sent(&self, layer: u32) -> Poll<Result<(), KvError>> {
        self.shared.engine.try_drive();
        self.look_layer_sent(layer, None)
    }

    /// A future of one layer that is sent, for any runtime. One task at a time may await the same layer.
    ///
    /// The future ends at the latest with the transfer. Otherwise like [`wait_layer_sent`](Self::wait_layer_sent).
    ///
    /// ```
    /// # use rdma_collective::kv::{KvError, Prefill};
    /// # use rdma_core::Deadline;
    /// async fn run(prefill: &Prefill, layers: u32, deadline: Deadline) -> Result<(), KvError> {
    ///     let push = prefill.push_layers(7, &[3, 1], deadline)?;
    ///     for layer in 0..layers {
    ///         // The layer is computed into blocks 3 and 1 of the pool.
    ///         push.layer_ready(layer)?;
    ///         push.layer_sent(layer).await?;
    ///         // The memory of this layer may be used for something else.
    ///     }
    ///     push.await.map(drop)
    /// }
    /// ```
    pub fn layer_sent(&self, layer: u32) -> LayerSentFuture<'_> {
        LayerSentFuture { transfer: self, layer }
    }

    fn look_layer_sent(&self, layer: u32, waker: Option<&Waker>) -> Poll<Result<(), KvError>> {
        self.check_layer(layer)?;
        let take = |state: &mut Pushes| state.layer_sent(self.id, layer);
        self.shared.look((self.id, Some(layer)), waker, take, |state| &mut state.layer_wakers)
    }

    /// Fails for a layer that the pool does not have, in a forked child, and once the outcome was taken.
    fn check_layer(&self, layer: u32) -> Result<(), KvError> {
        self.shared.engine.check_process()?;
        let layers = self.shared.pool.layout().layers();
        if layer >= layers {
            return Err(PlanError::from(LayoutError::NoSuchLayer { layer, layers }).into());
        }
        self.check_open()
    }

    /// Fails in a forked child, and once the outcome was taken.
    pub(super) fn check_open(&self) -> Result<(), KvError> {
        self.shared.engine.check_process()?;
        if self.taken { Err(KvError::OutcomeTaken { request: self.request }) } else { Ok(()) }
    }
}

impl Transfer<Receiving> {
    /// Waits until all of a layer has arrived, and was checked if the link has checksums. Returns one verdict for
    /// each block, in the order of the request.
    ///
    /// A push that does not announce layers may complete no layer before the whole transfer is there, and a pull
    /// completes none before unless [`pull_layers`](crate::kv::Decode::pull_layers) began it.
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
        self.shared.engine.try_drive();
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

/// The future of a [layer that is sent](Transfer::layer_sent). The thread that drives the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct LayerSentFuture<'a> {
    transfer: &'a Transfer<Sending>,
    layer: u32,
}

impl Future for LayerSentFuture<'_> {
    type Output = Result<(), KvError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.transfer.look_layer_sent(self.layer, Some(context.waker()))
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
