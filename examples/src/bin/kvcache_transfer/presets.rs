//! The models of `--model`, and one request of theirs: how many blocks, in pools how large.

use rdma_collective::kv::layout::LayoutError;
use rdma_collective::kv::layout::{Layout, Model, Order};

/// A request and the pools around it, which are alike on both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// A pool of twice the blocks that the requests under way have.
    pub layout: Layout,
    /// Blocks of the request, in each layer.
    pub blocks: u32,
}

impl Request {
    /// A prompt of so many tokens, in whole blocks, in pools with room for twice so many of them.
    ///
    /// # Errors
    ///
    /// [`LayoutError`] for pools beyond what a machine can address.
    pub fn new(model: &Model, prompt: u32, block_tokens: u32, concurrency: u32) -> Result<Self, LayoutError> {
        let blocks = blocks_of(prompt, block_tokens);
        let all = blocks.saturating_mul(2).saturating_mul(concurrency.max(1));
        let layout = Layout::new(model.shape(block_tokens, all, Order::LayerBlockPart))?;
        Ok(Self { layout, blocks })
    }

    /// Bytes that travel: whole blocks, so the last one's empty end too.
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
        let request = Request::new(&Model::LLAMA_3_1_8B, 16, 16, 1).unwrap();
        assert_eq!(request.layout.layer_block_bytes(), 64 << 10);
        let latent = Request::new(&Model::DEEPSEEK_V3, 16, 16, 1).unwrap();
        assert_eq!(latent.layout.layer_block_bytes(), 18_432);
    }

    #[test]
    fn a_prompt_takes_whole_blocks_in_pools_twice_as_large() {
        let request = Request::new(&Model::LLAMA_3_1_8B, 1000, 16, 1).unwrap();
        assert_eq!((request.blocks, request.pool_blocks(), request.layers()), (63, 126, 32));
        assert_eq!((request.bytes(), request.layer_blocks()), (63 * 32 * 65_536, 2016));
        let exact = Request::new(&Model::DEEPSEEK_V3, 64, 64, 1).unwrap();
        assert_eq!((exact.blocks, exact.bytes()), (1, 64 * 70_272));
    }

    #[test]
    fn a_pool_that_overflows_is_an_error() {
        let error = Request::new(&Model::LLAMA_3_1_70B, u32::MAX, u32::MAX / 2, 1)
            .map(|request| request.layout.bytes());
        assert!(error.is_ok_and(|bytes| i64::try_from(bytes).is_ok()), "all flags together fit 63 bits");
        let whole = Model { layers: u32::MAX, ..Model::LLAMA_3_1_70B };
        assert!(matches!(Request::new(&whole, u32::MAX, 65_536, 1), Err(LayoutError::TooLarge { .. })));
    }
}
