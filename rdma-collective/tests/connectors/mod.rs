//! Connectors of vLLM, SGLang, Dynamo and mistral.rs over nodes: an adapter each, whose methods have the names of that
//! project's calls, driven in the order in which its scheduler calls them. `docs/servers.md` has the tables.
//!
//! All servers of a test take turns in one thread. So a call that waited for another server would never return, and a
//! test that passes shows that no call blocks a scheduler's loop.

mod dynamo;
mod mistral;
mod sglang;
mod tables;
mod vllm;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use rdma_collective::kv::layout::{Extent, Layout};
use rdma_collective::kv::{Begin, Begun, KvNode, NodeError, Pool, PoolUse, Transfer};
use rdma_core::{Memory, Region, Wire};

use crate::common::long;
use crate::job::options;
use crate::pair::{CANARY, SHAPE, TOKEN, engine, source_byte};

/// A server: a node, and a cache that its model writes whenever it likes, because the memory is the server's.
struct Server {
    node: KvNode,
    pool: Pool,
    memory: Region,
}

impl Server {
    fn new(name: &str, purpose: PoolUse) -> Self {
        Self::on(Wire::Local, name, purpose)
    }

    fn on(wire: Wire, name: &str, purpose: PoolUse) -> Self {
        let (engine, layout) = (engine(wire, None), Layout::new(SHAPE).unwrap());
        let memory =
            engine.register(Memory::from(vec![CANARY; layout.bytes() as usize]), purpose.access()).unwrap();
        let pool = Pool::in_region(&engine, &memory, 0, &layout, purpose).unwrap();
        let node = KvNode::new(&engine, &[&pool], &TOKEN, &options(name)).unwrap();
        Self { node, pool, memory }
    }

    fn extents(&self, layer: u32, block: u32) -> impl Iterator<Item = Extent> {
        self.pool.layout().extents(layer, block).unwrap()
    }

    /// Computes a layer of a block, as the model does in a forward pass: its bytes follow from the text.
    fn compute(&self, layer: u32, block: u32, text: u32) {
        let mut bytes = (0..).map(|at| source_byte(layer, text, at));
        for extent in self.extents(layer, block) {
            let part: Vec<u8> = bytes.by_ref().take(extent.len as usize).collect();
            self.memory.copy_in(extent.offset as usize, &part).unwrap();
        }
    }

    /// Computes all layers of the blocks, which get one text each.
    fn compute_all(&self, blocks: &[u32], texts: &[u32]) {
        for layer in 0..SHAPE.layers {
            blocks.iter().zip(texts).for_each(|(block, text)| self.compute(layer, *block, *text));
        }
    }

    /// Asserts that a layer of a block has the bytes of the text.
    fn assert_has(&self, layer: u32, block: u32, text: u32) {
        let mut expected = (0..).map(|at| source_byte(layer, text, at));
        for extent in self.extents(layer, block) {
            let mut part = vec![0; extent.len as usize];
            self.memory.copy_out(extent.offset as usize, &mut part).unwrap();
            let expected: Vec<u8> = expected.by_ref().take(part.len()).collect();
            assert_eq!(part, expected, "layer {layer} of block {block} is that of text {text}");
        }
    }

    /// Asserts that the blocks have the bytes of the texts in all layers.
    fn assert_has_all(&self, blocks: &[u32], texts: &[u32]) {
        assert_eq!(blocks.len(), texts.len());
        for layer in 0..SHAPE.layers {
            blocks.iter().zip(texts).for_each(|(block, text)| self.assert_has(layer, *block, *text));
        }
    }

    /// Whether no transfer and no reader has any of the blocks.
    fn are_free(&self, blocks: &[u32]) -> bool {
        blocks.iter().all(|block| self.pool.held(*block).is_none())
    }
}

/// Looks at a future once, as a scheduler does in each of its steps.
fn look<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// Steps of a scheduler, until one says that all is done.
fn step_until(what: &str, mut step: impl FnMut() -> bool) {
    let patience = long();
    while !step() {
        assert!(!patience.expired(), "{what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A transfer of a request from the moment at which it was asked for. A scheduler polls it, whether or not there is a
/// link already.
enum Job<K: Begun> {
    Begins(Begin<K>),
    Moves(Transfer<K>),
}

/// The end of a [`Job`]: that of the transfer, or the reason why none has begun.
type Ended<K> = Result<
    Result<<K as rdma_collective::kv::Kind>::Outcome, <K as rdma_collective::kv::Kind>::Error>,
    NodeError,
>;

impl<K: Begun> Job<K> {
    /// The transfer, once it has begun.
    fn transfer(&mut self) -> Result<Option<&mut Transfer<K>>, NodeError> {
        if let Self::Begins(begin) = self
            && let Poll::Ready(begun) = look(begin)
        {
            *self = Self::Moves(begun?);
        }
        Ok(if let Self::Moves(transfer) = self { Some(transfer) } else { None })
    }

    /// Looks for the end, once.
    fn poll(&mut self) -> Poll<Ended<K>> {
        match self.transfer() {
            Ok(Some(transfer)) => transfer.poll().map(Ok),
            Ok(None) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}
