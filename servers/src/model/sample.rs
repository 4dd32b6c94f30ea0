//! Sampling: the next token from the logits, the same one whoever computes it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::{Deserialize, Serialize};

use super::token::Token;

/// The way in which the tokens of an answer are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// How far a token that is not the likeliest may be chosen; 0 is greedy.
    pub temperature: f32,
    /// The likeliest tokens that together have this share are candidates.
    pub top_p: f32,
    /// The seed of the choices.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_p: 1.0, seed: 0 }
    }
}

impl Sampling {
    /// Chooses the token at a position of a text.
    ///
    /// The choice follows from the logits, the seed and the position alone, so that another server which goes on with
    /// an answer chooses as the first one would have.
    #[must_use]
    pub fn choose(&self, logits: &[f32], position: usize) -> Token {
        let mut order: Vec<Token> = (0..logits.len() as Token).collect();
        let logit = |token: &Token| logits.get(*token as usize).copied().unwrap_or(f32::NEG_INFINITY);
        // The first of equals is the likeliest.
        order.sort_by(|one, other| logit(other).total_cmp(&logit(one)));
        let best = order.first().copied().unwrap_or_default();
        if self.temperature <= 0.0 {
            return best;
        }
        let likeliest = logit(&best);
        let weight = |token: &Token| f64::from(((logit(token) - likeliest) / self.temperature).exp());
        let total: f64 = order.iter().map(weight).sum();
        let mut share = 0.0;
        let candidates = order.iter().take_while(|token| {
            let is_candidate = share < f64::from(self.top_p) * total;
            share += weight(token);
            is_candidate
        });
        let candidates: Vec<(Token, f64)> = candidates.map(|token| (*token, weight(token))).collect();
        let total: f64 = candidates.iter().map(|(_, weight)| weight).sum();
        let mut left = self.random(position) * total;
        let chosen = candidates.iter().find(|(_, weight)| {
            left -= weight;
            left < 0.0
        });
        chosen.map_or(best, |(token, _)| *token)
    }

    /// A number from 0 to 1 for a position.
    fn random(&self, position: usize) -> f64 {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(position as u64);
        // 53 bits, as many as an f64 has.
        (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [1.0, 3.0, 3.0, -2.0];

    #[test]
    fn greedy_takes_the_first_of_the_likeliest() {
        assert_eq!(Sampling::default().choose(&LOGITS, 5), 1);
        assert_eq!(Sampling::default().choose(&[], 0), 0);
    }

    #[test]
    fn choices_follow_from_seed_and_position_and_have_the_shares_of_their_logits() {
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, seed: 7 };
        let mut counts = [0; 4];
        for position in 0..4000 {
            let token = sampling.choose(&LOGITS, position);
            assert_eq!(token, sampling.choose(&LOGITS, position));
            counts[token as usize] += 1;
        }
        // e^-2 to 1, so 6.3 % and 46.7 %.
        assert!((150..350).contains(&counts[0]) && (1700..2050).contains(&counts[1]), "{counts:?}");
        let other = Sampling { seed: 8, ..sampling };
        assert!((0..100).any(|at| other.choose(&LOGITS, at) != sampling.choose(&LOGITS, at)));
    }

    #[test]
    fn a_small_top_p_leaves_the_likeliest() {
        let sampling = Sampling { temperature: 5.0, top_p: 0.3, seed: 7 };
        assert!((0..100).all(|position| sampling.choose(&LOGITS, position) == 1));
        let none = Sampling { top_p: 0.0, ..sampling };
        assert_eq!(none.choose(&LOGITS, 3), 1);
    }
}
