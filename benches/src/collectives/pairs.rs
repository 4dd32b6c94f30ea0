//! Turns of all sides, and the ratios in them.

use std::time::{Duration, Instant};

use crate::ratio::{Bound, median};
use crate::report::Line;
use crate::soft::Outcome;

use super::side::{Setup, Side, Times};
use super::table::{Ratios, Table};

/// The times of all sides of a table, turn by turn.
#[derive(Debug, Clone, PartialEq)]
pub struct Pairs {
    sizes: Vec<usize>,
    sides: Vec<Side>,
    /// Each turn's times, in the order of `sides`.
    turns: Vec<Vec<Times>>,
}

impl Pairs {
    /// So many turns, or as many as end in time, but one at least; those that begin one end the next.
    ///
    /// # Errors
    ///
    /// The first measurement that fails.
    pub fn measure(
        setup: &Setup,
        table: Table,
        sizes: &[usize],
        (count, within): (usize, Duration),
    ) -> Outcome<Self> {
        let sides = table.sides(&setup.network);
        let mut turns = Vec::with_capacity(count);
        let begin = Instant::now();
        for turn in 0..count {
            // The next one takes as long as the others did.
            if turn > 0 && begin.elapsed() / turn as u32 * (turn as u32 + 1) > within {
                break;
            }
            let mut times = vec![Times::new(); sides.len()];
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if turn % 2 == 1 {
                order.reverse();
            }
            for at in order {
                times[at] = setup.times(sides[at], table, sizes)?;
            }
            turns.push(times);
        }
        Ok(Self { sizes: sizes.to_vec(), sides, turns })
    }

    /// The times of a side at a size, turn by turn.
    fn times(&self, side: Side, bytes: usize) -> Vec<Option<f64>> {
        let at = self.sides.iter().position(|one| *one == side);
        let time = |turn: &Vec<Times>| turn[at?].get(&bytes).copied();
        self.turns.iter().map(time).collect()
    }

    /// The median of a side's times, if it has any.
    fn microseconds(&self, side: Side, bytes: usize) -> Option<f64> {
        let times: Vec<f64> = self.times(side, bytes).into_iter().flatten().collect();
        (!times.is_empty()).then(|| median(times))
    }

    /// The turns' ratios, of the best of some over one.
    fn ratios(&self, ratios: &Ratios, bytes: usize) -> Vec<f64> {
        let mut best = vec![f64::INFINITY; self.turns.len()];
        for side in ratios.among {
            for (best, time) in best.iter_mut().zip(self.times(*side, bytes)) {
                *best = best.min(time.unwrap_or(f64::INFINITY));
            }
        }
        let over = self.times(ratios.over, bytes);
        let turns = best.into_iter().zip(over).filter(|(best, _)| best.is_finite());
        turns.filter_map(|(best, over)| Some(best / over?)).collect()
    }

    /// Prints a table, if there is a row in it; returns its rows, and whether each of them holds.
    #[must_use]
    pub fn print(&self, title: &str, ratios: &Ratios) -> (Vec<Line>, bool) {
        let sizes: Vec<usize> = self.sizes.iter().copied().filter(|bytes| (ratios.sizes)(*bytes)).collect();
        if sizes.is_empty() {
            return (Vec::new(), true);
        }
        let columns: Vec<Side> = std::iter::once(ratios.over).chain(ratios.among.iter().copied()).collect();
        let names: Vec<_> = columns.iter().map(|side| side.name()).collect();
        let (over, among) = (names[0], if names.len() > 2 { "best of the others" } else { names[1] });
        let pairs = self.turns.len();
        println!("\n| {title}, {pairs} pairs: us | {} | {among} over {over} | bound | |", names.join(" | "));
        println!("|---|{}---|---|---|", "---|".repeat(names.len()));
        let (mut all_hold, mut of_sizes, mut lines) = (true, Vec::new(), Vec::new());
        let line = |of: &str, ratio, bound: Bound| Line {
            what: format!("{title}, {of}: {among} over {over}"),
            table: title.to_owned(),
            unit: "us".to_owned(),
            ratio,
            pairs,
            bound: bound.to_string(),
            ..Line::default()
        };
        for bytes in sizes {
            let cells = columns.iter().map(|side| match self.microseconds(*side, bytes) {
                Some(time) => format!("{time:.3} | "),
                None => "absent | ".to_owned(),
            });
            let all = self.ratios(ratios, bytes);
            let range = ends(&all);
            let ratio = range.map(|_| median(all));
            of_sizes.push(ratio);
            let time = |side: &Side| Some((side.name().to_owned(), self.microseconds(*side, bytes)?));
            let others = ratios.among.iter().filter_map(|side| self.microseconds(*side, bytes));
            lines.push(Line {
                ours: self.microseconds(ratios.over, bytes),
                theirs: others.min_by(f64::total_cmp),
                bytes: Some(bytes),
                range,
                sides: columns.iter().filter_map(time).collect(),
                ..line(&format!("{bytes} B"), ratio, ratios.each)
            });
            let noise = range.map_or(String::new(), |(low, high)| format!("({low:.2}-{high:.2})"));
            let (verdict, holds) = judge(ratio, &noise, ratios.each);
            println!("| {bytes} B | {}{verdict}", cells.collect::<String>());
            all_hold &= holds;
        }
        let mean = geometric_mean(&of_sizes);
        lines.push(line("geometric mean", mean, ratios.mean));
        let least = ends(&of_sizes.iter().flatten().copied().collect::<Vec<_>>());
        let least = least.map_or(String::new(), |(least, _)| format!("(least {least:.2})"));
        let (verdict, holds) = judge(mean, &least, ratios.mean);
        println!("| geometric mean | {}{verdict}", " | ".repeat(columns.len()));
        (lines, all_hold & holds)
    }
}

/// The last columns of a row, and whether it holds.
fn judge(ratio: Option<f64>, beside: &str, bound: Bound) -> (String, bool) {
    let Some(ratio) = ratio else {
        return (format!("not measured | {bound} | |"), bound == Bound::Told);
    };
    (format!("{ratio:.2} {beside} | {bound} | {} |", bound.verdict(ratio)), bound.holds(ratio))
}

/// The least and the greatest; none of nothing.
fn ends(ratios: &[f64]) -> Option<(f64, f64)> {
    let least = ratios.iter().copied().min_by(f64::total_cmp)?;
    Some((least, ratios.iter().copied().max_by(f64::total_cmp)?))
}

/// None when one is missing, or there are none.
fn geometric_mean(ratios: &[Option<f64>]) -> Option<f64> {
    let logarithms = ratios.iter().map(|ratio| ratio.map(f64::ln)).collect::<Option<Vec<f64>>>()?;
    let count = logarithms.len() as f64;
    (count > 0.0).then(|| (logarithms.iter().sum::<f64>() / count).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATIOS: Ratios = Ratios {
        of: "",
        over: Side::Owned,
        among: &[Side::IntelMpi, Side::Gloo],
        each: Bound::AtLeast(1.0),
        mean: Bound::AtLeast(1.5),
        sizes: |_| true,
    };

    /// Two turns, at 8 and 16 bytes; gloo is not there.
    fn pairs(ours: f64) -> Pairs {
        let of = |small, large| Times::from([(8, small), (16, large)]);
        let turn =
            |drift: f64| vec![of(ours * drift, 2.0 * drift), of(2.0 * drift, 8.0 * drift), Times::new()];
        let sides = vec![Side::Owned, Side::IntelMpi, Side::Gloo];
        Pairs { sizes: vec![8, 16], sides, turns: vec![turn(1.0), turn(10.0)] }
    }

    #[test]
    fn ratios_are_those_of_turns() {
        let pairs = pairs(1.0);
        assert_eq!([8, 16].map(|bytes| pairs.ratios(&RATIOS, bytes)), [[2.0, 2.0], [4.0, 4.0]]);
        assert_eq!(pairs.microseconds(Side::Owned, 8), Some(5.5));
        assert_eq!(pairs.microseconds(Side::Gloo, 8), None);
        assert!(pairs.ratios(&Ratios { among: &[Side::Gloo], ..RATIOS }, 8).is_empty());
        let mean = geometric_mean(&[Some(2.0), Some(4.5)]).unwrap();
        assert!((mean - 3.0).abs() < 1e-9 && geometric_mean(&[Some(2.0), None]).is_none());
    }

    #[test]
    fn a_size_that_does_not_hold_and_one_that_was_not_measured_fail_the_table() {
        let holds = |ours, ratios: &Ratios| pairs(ours).print("x", ratios).1;
        assert!(holds(1.0, &RATIOS));
        assert!(!holds(2.5, &RATIOS)); // 8 bytes: 0.8
        assert!(!holds(2.0, &Ratios { mean: Bound::AtLeast(2.1), ..RATIOS }));
        assert!(!holds(1.0, &Ratios { among: &[Side::Gloo], ..RATIOS }));
    }

    #[test]
    fn a_table_gives_a_line_a_size_and_one_for_the_mean() {
        let (lines, _) = pairs(1.0).print("all-reduce", &RATIOS);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].what, "all-reduce, 8 B: best of the others over ours");
        assert_eq!((lines[0].ours, lines[0].theirs, lines[0].ratio), (Some(5.5), Some(11.0), Some(2.0)));
        assert_eq!(lines[0].range, Some((2.0, 2.0)));
        assert_eq!(lines[0].sides.keys().collect::<Vec<_>>(), ["Intel MPI", "ours"]);
        assert_eq!((lines[2].bytes, lines[2].ours), (None, None));
    }
}
