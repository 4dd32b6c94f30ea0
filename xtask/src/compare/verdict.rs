//! Verdict on a row from its samples: the median ratio of the trees, beside the median ratio of one tree to itself.

/// Ratio from which on the younger tree counts as fast enough.
const HOLDS_FROM: f64 = 0.95;

/// Meaning of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Times.
    Less,
    /// Bandwidths.
    More,
}

/// Figures of one turn, measured one directly after the other because a machine's speed drifts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Turn {
    /// The older tree.
    pub before: f64,
    /// The working tree.
    pub now: f64,
    /// The older tree once more, for the noise.
    pub again: f64,
}

/// Outcome of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// Median figure of the older tree.
    pub before: f64,
    /// Median figure of the working tree.
    pub now: f64,
    /// Median ratio, with which the working tree is faster than the older one.
    pub ratio: f64,
    /// Lowest and highest ratio of a turn.
    pub range: (f64, f64),
    /// Median ratio of the older tree to itself, at most 1: what the same program loses to itself.
    pub noise: f64,
}

impl Verdict {
    /// Verdict on at least one turn.
    pub fn new(turns: &[Turn], better: Better) -> Verdict {
        let faster = |now: f64, before: f64| match better {
            Better::Less => before / now,
            Better::More => now / before,
        };
        let ratios: Vec<f64> = turns.iter().map(|turn| faster(turn.now, turn.before)).collect();
        let itself = median(turns.iter().map(|turn| faster(turn.again, turn.before)).collect());
        Verdict {
            before: median(turns.iter().map(|turn| turn.before).collect()),
            now: median(turns.iter().map(|turn| turn.now).collect()),
            range: ratios
                .iter()
                .fold((f64::INFINITY, 0.0), |(low, high), ratio| (low.min(*ratio), high.max(*ratio))),
            ratio: median(ratios),
            noise: itself.min(1.0 / itself),
        }
    }

    /// Whether the working tree is as fast, or loses no more than the older tree does to itself.
    pub fn holds(&self) -> bool {
        self.ratio >= HOLDS_FROM.min(self.noise)
    }
}

/// Middle value; the mean of the two in the middle of an even number; NaN of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(figures: &[(f64, f64, f64)]) -> Vec<Turn> {
        figures.iter().map(|&(before, now, again)| Turn { before, now, again }).collect()
    }

    #[test]
    fn the_ratio_is_the_median_of_the_turns_and_above_one_where_now_is_faster() {
        let times = turns(&[(10.0, 5.0, 10.0), (10.0, 8.0, 10.0), (20.0, 200.0, 20.0)]);
        let verdict = Verdict::new(&times, Better::Less);
        assert_eq!((verdict.ratio, verdict.range, verdict.noise), (1.25, (0.1, 2.0), 1.0));
        assert_eq!((verdict.before, verdict.now), (10.0, 8.0));
        assert_eq!(Verdict::new(&times, Better::More).ratio, 0.8);
    }

    #[test]
    fn a_row_holds_up_to_the_bound_or_up_to_the_noise() {
        let holds = |now, again| Verdict::new(&turns(&[(100.0, now, again)]), Better::More).holds();
        assert!(holds(95.0, 100.0) && !holds(94.0, 100.0));
        assert!(holds(94.0, 90.0) && !holds(89.0, 90.0));
        // Noise has no direction: a second run that happens to be faster shows as much of it.
        assert!(holds(94.0, 110.0));
    }

    #[test]
    fn figures_that_are_none_hold_nothing() {
        assert!(!Verdict::new(&turns(&[(f64::NAN, 1.0, 1.0)]), Better::More).holds());
        assert!(median(Vec::new()).is_nan());
        assert_eq!(median(vec![1.0, 4.0, 2.0, 3.0]), 2.5);
    }
}
