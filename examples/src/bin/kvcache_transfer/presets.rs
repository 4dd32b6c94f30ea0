//! The models of `--model`, and one request of theirs: how many blocks, in pools how large.

use crate::args::Args;
use crate::sides::Rank;
use anyhow::ensure;
use rdma_collective::kv::layout::{Group, Layout, Model, Order, Shape};

/// A request, and the pool around it as one rank has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The rank.
    pub rank: Rank,
    /// The rank's pool, of twice the blocks that the requests under way have.
    pub layout: Layout,
    /// Blocks of the request, in each layer.
    pub blocks: u32,
    /// Ranks of the other side with which this one has a link.
    pub peers: Vec<u32>,
}

impl Request {
    /// The prompt, in whole blocks, in a pool with room for twice so many of them.
    ///
    /// # Errors
    ///
    /// A rank that there is not, ranks or tensors that the model cannot be split into, and pools beyond what a machine
    /// can address.
    pub fn new(args: &Args, rank: Rank) -> anyhow::Result<Self> {
        let ranks = args.tp.of(rank.role).0;
        ensure!(rank.number < ranks, "--rank {} of {ranks}: there is no such rank", rank.number);
        let blocks = blocks_of(args.prompt, args.block);
        let all = blocks.saturating_mul(2).saturating_mul(args.concurrency().max(1));
        let peers = rank.peers(args)?;
        Ok(Self { rank, layout: layout(args, rank, all)?, blocks, peers })
    }

    /// Bytes that travel to or from this rank: whole blocks, so the last one's empty end too.
    pub fn bytes(&self) -> u64 {
        self.layout.block_bytes() * u64::from(self.blocks)
    }

    /// Layers, each of which has every block.
    pub fn layers(&self) -> u32 {
        self.layout.shape().layers
    }

    /// Blocks of each layer's pool.
    pub fn pool_blocks(&self) -> u32 {
        self.layout.shape().blocks
    }

    /// Blocks that travel, over all layers.
    pub fn layer_blocks(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.layers())
    }
}

/// The layout of a rank's pool of so many blocks.
///
/// # Errors
///
/// Ranks or tensors that the model cannot be split into, and pools beyond what a machine can address.
pub fn layout(args: &Args, rank: Rank, blocks: u32) -> anyhow::Result<Layout> {
    let tensors = args.tensors.of(&args.model)?;
    let whole = args.model.shape(args.block, blocks, Order::LayerBlockPart);
    let shape = Shape { head_order: args.head_order.of(rank.role).0, ..whole };
    Ok(Layout::of([Group::new(shape.of_rank(rank.of(args))?).in_tensors(tensors)])?)
}

/// Blocks that a prompt takes.
pub fn blocks_of(prompt: u32, block_tokens: u32) -> u32 {
    prompt.div_ceil(block_tokens.max(1))
}

/// The names for the help text.
pub fn names() -> String {
    Model::ALL.iter().map(|model| model.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use rdma_collective::kv::layout::LayoutError;

    fn of(model: &Model, prompt: u32, block: u32) -> anyhow::Result<Request> {
        let args = Args { model: *model, prompt, block, ..Args::parse_from(["kvcache_transfer"]) };
        Request::new(&args, Rank::default())
    }

    #[test]
    fn a_token_takes_what_the_models_configurations_say() {
        let bytes = Model::ALL.iter().map(|model| (model.name, model.token_bytes()));
        let expected = [
            ("Llama-3.1-8B", 131_072),
            ("Llama-3.1-70B", 327_680),
            ("DeepSeek-R1-Distill-Qwen-32B", 262_144),
            ("DeepSeek-V3", 70_272),
        ];
        assert!(bytes.eq(expected));
    }

    #[test]
    fn sixteen_tokens_of_a_grouped_layer_are_64_kib() {
        let request = of(&Model::LLAMA_3_1_8B, 16, 16).unwrap();
        assert_eq!(request.layout.layer_block_bytes(), 64 << 10);
        let latent = of(&Model::DEEPSEEK_V3, 16, 16).unwrap();
        assert_eq!(latent.layout.layer_block_bytes(), 18_432);
    }

    #[test]
    fn a_prompt_takes_whole_blocks_in_pools_twice_as_large() {
        let request = of(&Model::LLAMA_3_1_8B, 1000, 16).unwrap();
        assert_eq!((request.blocks, request.pool_blocks(), request.layers()), (63, 126, 32));
        assert_eq!((request.bytes(), request.layer_blocks()), (63 * 32 * 65_536, 2016));
        let exact = of(&Model::DEEPSEEK_V3, 64, 64).unwrap();
        assert_eq!((exact.blocks, exact.bytes()), (1, 64 * 70_272));
    }

    #[test]
    fn a_pool_that_overflows_is_an_error() {
        let error = of(&Model::LLAMA_3_1_70B, u32::MAX, u32::MAX / 2).map(|request| request.layout.bytes());
        assert!(error.is_ok_and(|bytes| i64::try_from(bytes).is_ok()), "all flags together fit 63 bits");
        let whole = Model { layers: u32::MAX, ..Model::LLAMA_3_1_70B };
        let error = of(&whole, u32::MAX, 65_536).unwrap_err();
        assert!(error.downcast_ref::<LayoutError>().is_some(), "{error}");
    }
}
