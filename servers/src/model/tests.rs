//! Tokens have the same bits alone, in any batch and in any chunk.

use proptest::prelude::*;

use super::*;

/// A cache in plain memory.
#[derive(Debug, Clone, Default)]
struct Plain {
    layers: Vec<[Vec<f32>; 2]>,
    kv_size: usize,
}

impl Plain {
    fn of(config: &Config) -> Self {
        Self { layers: vec![Default::default(); config.num_hidden_layers], kv_size: config.kv_size() }
    }
}

impl Cache for Plain {
    fn write(&mut self, layer: usize, first: usize, keys: &[f32], values: &[f32]) -> Result<()> {
        for (part, more) in self.layers[layer].iter_mut().zip([keys, values]) {
            part.truncate(first * self.kv_size);
            part.extend_from_slice(more);
        }
        Ok(())
    }

    fn read(&self, layer: usize, tokens: usize) -> Result<[Vec<f32>; 2]> {
        Ok(self.layers[layer].each_ref().map(|part| part[..tokens * self.kv_size].to_vec()))
    }
}

fn small() -> Llama {
    let config =
        Config { num_hidden_layers: 2, hidden_size: 64, intermediate_size: 160, ..Config::default() };
    Llama::new(config).unwrap()
}

/// The logits behind each token of a text, one token at a time.
fn alone(model: &Llama, text: &[Token]) -> Vec<Vec<f32>> {
    let mut cache = Plain::of(model.config());
    let step = |(first, token)| {
        let mut chunks = [Chunk { tokens: std::slice::from_ref(token), first, cache: &mut cache }];
        model.step(&mut chunks, |_| Ok(())).unwrap().remove(0)
    };
    text.iter().enumerate().map(step).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_token_has_the_same_bits_in_every_batch_and_chunk(
        texts in proptest::collection::vec(proptest::collection::vec(0..VOCABULARY, 1..40), 1..6),
        cuts in proptest::collection::vec(1_usize..20, 1..12),
    ) {
        let model = small();
        let expected: Vec<_> = texts.iter().map(|text| alone(&model, text)).collect();
        let mut caches: Vec<_> = texts.iter().map(|_| Plain::of(model.config())).collect();
        let mut done = vec![0; texts.len()];
        let mut cuts = cuts.iter().cycle();
        while done.iter().zip(&texts).any(|(done, text)| *done < text.len()) {
            let (mut chunks, mut of) = (Vec::new(), Vec::new());
            for (at, cache) in caches.iter_mut().enumerate() {
                let (first, text) = (done[at], &texts[at]);
                let end = text.len().min(first + cuts.next().unwrap());
                if first < end {
                    chunks.push(Chunk { tokens: &text[first..end], first, cache });
                    (done[at], of) = (end, [&of[..], &[at]].concat());
                }
            }
            let mut layers = Vec::new();
            let logits = model.step(&mut chunks, |layer| { layers.push(layer); Ok(()) }).unwrap();
            prop_assert_eq!(layers, [0, 1]);
            for (at, logits) in of.into_iter().zip(logits) {
                let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
                prop_assert_eq!(bits(&logits), bits(&expected[at][done[at] - 1]));
            }
        }
    }
}

#[test]
fn an_answer_follows_from_the_whole_text() {
    let model = small();
    let [one, other] = ["a cat", "a bat"].map(|text| alone(&model, &encode(text.as_bytes())));
    assert_eq!(one[2], other[2]);
    assert_ne!(one[5], other[5]);
}

#[test]
fn tokens_and_positions_that_the_model_does_not_have_are_errors() {
    let model = small();
    let mut cache = Plain::of(model.config());
    let mut step = |tokens: &[Token], first| {
        model.step(&mut [Chunk { tokens, first, cache: &mut cache }], |_| Ok(())).unwrap_err().to_string()
    };
    assert_eq!(step(&[VOCABULARY], 0), "the model has no token 258");
    assert_eq!(step(&[1, 2], 2047), "the model has no position 2049");
    assert_eq!(step(&[], 0), "a chunk without a token");
    for config in [
        Config { num_key_value_heads: 3, ..Config::default() },
        Config { hidden_size: 250, ..Config::default() },
        Config { num_hidden_layers: 0, ..Config::default() },
        Config { rope_theta: f32::NAN, ..Config::default() },
    ] {
        assert!(Llama::new(config).is_err(), "{config:?}");
    }
}
