//! The calls of a node that begin transfers.

use rdma_core::Deadline;

use super::{Begin, KvNode};
use crate::kv::blocks::{Blocks, List};
use crate::kv::journal::TransferKind;
use crate::kv::layout::Layout;
use crate::kv::{Decode, Prefill, Receiving, Request, Sending, Verdicts};

impl KvNode {
    /// Grants `blocks` to a request of a peer, like [`Decode::grant`](crate::kv::Decode::grant).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn grant<'a>(
        &self,
        peer: &str,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Begin<Receiving> {
        self.receive(peer, (TransferKind::Grant, request.into()), (blocks.into().into(), None), deadline)
    }

    /// Grants again what `verdicts` has as missing or corrupt, like
    /// [`Decode::grant_missing`](crate::kv::Decode::grant_missing). The peer may be another one than before.
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn grant_missing(
        &self,
        peer: &str,
        request: impl Into<Request>,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Begin<Receiving> {
        let blocks = (verdicts.list().clone(), Some(verdicts.clone()));
        self.receive(peer, (TransferKind::Grant, request.into()), blocks, deadline)
    }

    /// Reads the blocks that a peer offers, like [`Decode::pull`](crate::kv::Decode::pull).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn pull<'a>(
        &self,
        peer: &str,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Begin<Receiving> {
        self.receive(peer, (TransferKind::Pull, request.into()), (blocks.into().into(), None), deadline)
    }

    /// Reads layer by layer, like [`Decode::pull_layers`](crate::kv::Decode::pull_layers).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn pull_layers<'a>(
        &self,
        peer: &str,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Begin<Receiving> {
        self.receive(peer, (TransferKind::PullLayers, request.into()), (blocks.into().into(), None), deadline)
    }

    /// Reads again what `verdicts` has as missing or corrupt, like
    /// [`Decode::pull_missing`](crate::kv::Decode::pull_missing).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn pull_missing(
        &self,
        peer: &str,
        request: impl Into<Request>,
        verdicts: &Verdicts,
        deadline: Deadline,
    ) -> Begin<Receiving> {
        let blocks = (verdicts.list().clone(), Some(verdicts.clone()));
        self.receive(peer, (TransferKind::Pull, request.into()), blocks, deadline)
    }

    /// Pushes `blocks` to a peer, like [`Prefill::push`](crate::kv::Prefill::push).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn push<'a>(
        &self,
        peer: &str,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Begin<Sending> {
        self.send(peer, (TransferKind::Push, request.into()), blocks.into().into(), deadline)
    }

    /// Pushes layer by layer, like [`Prefill::push_layers`](crate::kv::Prefill::push_layers).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn push_layers<'a>(
        &self,
        peer: &str,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Begin<Sending> {
        self.send(peer, (TransferKind::Stream, request.into()), blocks.into().into(), deadline)
    }

    /// Offers `blocks` to the pull of a peer, like [`Prefill::offer`](crate::kv::Prefill::offer).
    ///
    /// # Errors
    ///
    /// The future fails as [`Begin::wait`] does.
    pub fn offer<'a>(
        &self,
        peer: &str,
        request: impl Into<Request>,
        blocks: impl Into<Blocks<'a>>,
        deadline: Deadline,
    ) -> Begin<Sending> {
        self.send(peer, (TransferKind::Offer, request.into()), blocks.into().into(), deadline)
    }

    fn receive(
        &self,
        peer: &str,
        what: (TransferKind, Request),
        (list, missing): (List, Option<Verdicts>),
        deadline: Deadline,
    ) -> Begin<Receiving> {
        let (kind, request) = what;
        let bytes = bytes_of(self.inner().own.destination.as_ref(), &list);
        let ask = move |end: &Decode, permit| {
            let asked = request.clone().asked(kind)?.with(permit);
            end.begun(asked, (list.clone(), missing.as_ref()), deadline)
        };
        Begin::new(self.inner(), (peer, bytes, deadline), Box::new(ask))
    }

    fn send(
        &self,
        peer: &str,
        what: (TransferKind, Request),
        list: List,
        deadline: Deadline,
    ) -> Begin<Sending> {
        let (kind, request) = what;
        let bytes = bytes_of(self.inner().own.source.as_ref().map(|(_, layout)| layout), &list);
        let ask = move |end: &Prefill, permit| {
            end.begun(request.clone().asked(kind)?.with(permit), list.clone(), deadline)
        };
        Begin::new(self.inner(), (peer, bytes, deadline), Box::new(ask))
    }
}

/// Bytes of the blocks of a list in the pool of this end, whichever of their tokens move.
fn bytes_of(layout: Option<&Layout>, list: &List) -> u64 {
    layout.map_or(0, |layout| layout.bytes_of_blocks(list.blocks()))
}
