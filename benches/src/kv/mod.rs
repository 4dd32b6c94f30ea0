//! KV transfers between ranks of any layouts, in two processes: all ranks of prefill, and all ranks of decode.

mod begin;
mod ends;
mod joined;
mod naive;
mod others;

use clap::ValueEnum;
use rdma_collective::kv::layout::{Group, HeadOrder, Layout, Model, Order, Shape, TensorParallel, Tensors};

pub use self::begin::begin;
pub use self::ends::{receive, send};
pub use self::joined::joined;
pub use self::naive::copy;
pub use self::others::Other;
use crate::soft::Outcome;

/// The model whose heads are split: 80 layers, 8 heads, a block of 64 KiB in each layer.
const MODEL: Model = Model::LLAMA_3_1_70B;
const BLOCK_TOKENS: u32 = 16;
/// Blocks of a request and of a pool: 240 MiB in all layers.
const BLOCKS: u32 = 48;

/// Layouts of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// A rank at each side, heads before tokens.
    Whole,
    /// A rank at each side, and a tensor a layer.
    Tensors,
    /// Four ranks fill two, heads before tokens.
    FourToTwo,
    /// Two ranks fill four, heads before tokens.
    TwoToFour,
    /// A rank fills two, tokens before heads.
    NhdSplit,
    /// A rank fills another: tokens before heads, and heads before tokens.
    NhdToHnd,
}

impl Case {
    /// The name of the case as an argument.
    #[must_use]
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Tensor-parallel sizes of prefill and of decode.
    fn sizes(self) -> [u32; 2] {
        match self {
            Self::Whole | Self::Tensors | Self::NhdToHnd => [1, 1],
            Self::FourToTwo => [4, 2],
            Self::TwoToFour => [2, 4],
            Self::NhdSplit => [1, 2],
        }
    }

    fn orders(self) -> [HeadOrder; 2] {
        match self {
            Self::NhdSplit => [HeadOrder::Nhd; 2],
            Self::NhdToHnd => [HeadOrder::Nhd, HeadOrder::Hnd],
            _ => [HeadOrder::Hnd; 2],
        }
    }

    /// The layout of a rank of one side.
    fn layout(self, side: usize, rank: u32) -> Outcome<Layout> {
        let whole = MODEL.shape(BLOCK_TOKENS, BLOCKS, Order::LayerBlockPart);
        let shape = Shape { head_order: self.orders()[side], ..whole };
        let tensors = if self == Self::Tensors { Tensors::PerLayer } else { Tensors::One };
        let rank = TensorParallel { rank, size: self.sizes()[side] };
        Ok(Layout::of([Group::new(shape.of_rank(rank)?).in_tensors(tensors)])?)
    }

    /// Bytes that are moved.
    #[must_use]
    pub fn bytes(self) -> usize {
        (MODEL.token_bytes() * u64::from(BLOCK_TOKENS * BLOCKS)) as usize
    }
}

/// The blocks of one side, in the order of the request: hardly any two are neighbours.
fn list(side: usize) -> Vec<u32> {
    let step = [37, 29][side];
    (0..BLOCKS).map(|at| at * step % BLOCKS).collect()
}
