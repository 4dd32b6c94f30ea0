//! What happens to the row of one token: norms, rotary embedding, attention. All sums go in one order, so that they
//! have the same bits in every batch.

use super::config::Config;

/// Divides a row by its root mean square, and scales it.
pub fn norm(row: &[f32], scale: &[f32], epsilon: f32) -> Vec<f32> {
    let mean = dot(row, row) / row.len().max(1) as f32;
    let factor = 1.0 / (mean + epsilon).sqrt();
    row.iter().zip(scale).map(|(element, scale)| element * factor * scale).collect()
}

/// Turns the heads of a row by the angles of a position. The two halves of a head make the pairs that turn.
pub fn rotate(row: &mut [f32], head_dim: usize, position: usize, theta: f32) {
    let half = head_dim / 2;
    let angles = (0..half).map(|at| {
        let angle = position as f32 / theta.powf(2.0 * at as f32 / head_dim as f32);
        (angle.cos(), angle.sin())
    });
    let angles: Vec<(f32, f32)> = angles.collect();
    for head in row.chunks_exact_mut(head_dim) {
        let (first, second) = head.split_at_mut(half);
        for ((one, other), (cos, sin)) in first.iter_mut().zip(second).zip(&angles) {
            (*one, *other) = (*one * cos - *other * sin, *one * sin + *other * cos);
        }
    }
}

/// The attention of a token to itself and all tokens before it, whose keys and values these are.
pub fn attend(config: &Config, query: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let (head_dim, kv_size) = (config.head_dim(), config.kv_size());
    let shared_by = config.num_attention_heads / config.num_key_value_heads;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let mut attended = Vec::with_capacity(query.len());
    for (number, head) in query.chunks_exact(head_dim).enumerate() {
        let at = number / shared_by * head_dim;
        let scores = keys
            .chunks_exact(kv_size)
            .map(|row| dot(head, row.get(at..at + head_dim).unwrap_or_default()) * scale);
        let mut scores: Vec<f32> = scores.collect();
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut sum = 0.0;
        for score in &mut scores {
            *score = (*score - most).exp();
            sum += *score;
        }
        let mut out = vec![0.0; head_dim];
        for (row, score) in values.chunks_exact(kv_size).zip(&scores) {
            let share = score / sum;
            let row = row.get(at..at + head_dim).unwrap_or_default();
            out.iter_mut().zip(row).for_each(|(out, value)| *out += share * value);
        }
        attended.extend(out);
    }
    attended
}

/// The gate of the feed-forward network: `gate * sigmoid(gate) * up`.
pub fn gate(gate: &[f32], up: &[f32]) -> Vec<f32> {
    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}

/// The sum of products, in eight sums side by side, as a processor adds them at once.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let (ones, others) = (one.chunks_exact(8), other.chunks_exact(8));
    let rest: f32 = ones.remainder().iter().zip(others.remainder()).map(|(one, other)| one * other).sum();
    let mut sums = [0.0; 8];
    for (one, other) in ones.zip(others) {
        for ((sum, one), other) in sums.iter_mut().zip(one).zip(other) {
            *sum += one * other;
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normed_row_has_the_mean_square_of_one() {
        let row: Vec<f32> = (0..20_u8).map(f32::from).collect();
        let normed = norm(&row, &[1.0; 20], 1e-5);
        assert!((dot(&normed, &normed) / 20.0 - 1.0).abs() < 1e-4);
        assert_eq!(norm(&row, &[2.0; 20], 1e-5)[3], 2.0 * normed[3]);
    }

    #[test]
    fn turning_keeps_lengths_and_makes_products_follow_from_distances() {
        let (query, key): (Vec<f32>, Vec<f32>) =
            ((0..8_u8).map(f32::from).collect(), (3..11_u8).map(f32::from).collect());
        let product = |at: usize, of: usize| {
            let (mut query, mut key) = (query.clone(), key.clone());
            rotate(&mut query, 8, at, 10_000.0);
            rotate(&mut key, 8, of, 10_000.0);
            dot(&query, &key)
        };
        assert!((product(0, 0) - dot(&query, &key)).abs() < 1e-3);
        assert!((product(9, 4) - product(25, 20)).abs() < 1e-2);
        assert!((product(9, 4) - product(9, 9)).abs() > 1.0);
    }

    #[test]
    fn a_token_alone_attends_to_itself_and_one_among_equals_to_their_mean() {
        let config =
            Config { hidden_size: 8, num_attention_heads: 4, num_key_value_heads: 2, ..Config::default() };
        let (query, values) = ([1.0; 8], [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(attend(&config, &query, &[5.0; 4], &values), [1.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0]);
        let two = attend(&config, &query, &[5.0; 8], &[1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 5.0, 5.0]);
        assert_eq!(two, [2.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 4.0]);
    }
}
