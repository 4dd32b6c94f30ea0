//! Interleaved pairs and their ratios.

use std::fmt;

/// The bound of a row's ratio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Ours over theirs, where more is better.
    AtLeast(f64),
    /// Ours over theirs, where less is better.
    AtMost(f64),
    /// Nothing: it tells what the machine gives.
    Told,
}

impl Bound {
    /// Whether a figure is within this bound.
    #[must_use]
    pub fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
            Self::Told => true,
        }
    }

    /// The word of a table's last column on a figure.
    #[must_use]
    pub fn verdict(self, figure: f64) -> &'static str {
        match self {
            Self::Told => "",
            _ if self.holds(figure) => "holds",
            _ => "DOES NOT HOLD",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::AtMost(bound) => write!(f, "<= {bound}"),
            Self::Told => f.write_str("-"),
        }
    }
}

/// A measured row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The measurement's name.
    pub name: String,
    /// The unit of both figures.
    pub unit: &'static str,
    /// The bound of the ratio.
    pub bound: Bound,
    /// Ours and theirs, pair by pair.
    pub pairs: Vec<(f64, f64)>,
}

impl Row {
    /// Measures `count` pairs, ours and theirs in turn, each pair beginning with the other side.
    ///
    /// # Errors
    ///
    /// The first measurement that fails.
    pub fn measure<E>(
        name: &str,
        unit: &'static str,
        bound: Bound,
        count: usize,
        mut ours: impl FnMut() -> Result<f64, E>,
        mut theirs: impl FnMut() -> Result<f64, E>,
    ) -> Result<Self, E> {
        let mut pairs = Vec::with_capacity(count);
        for turn in 0..count {
            if turn % 2 == 0 {
                let mine = ours()?;
                pairs.push((mine, theirs()?));
            } else {
                let other = theirs()?;
                pairs.push((ours()?, other));
            }
        }
        Ok(Self { name: name.to_owned(), unit, bound, pairs })
    }

    /// Takes `count` pairs that are measured together: ours and theirs.
    ///
    /// # Errors
    ///
    /// The first measurement that fails.
    pub fn of_pairs<E>(
        name: &str,
        unit: &'static str,
        bound: Bound,
        count: usize,
        mut pair: impl FnMut() -> Result<(f64, f64), E>,
    ) -> Result<Self, E> {
        let pairs = (0..count).map(|_| pair()).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), unit, bound, pairs })
    }

    /// The median of the pairs' ratios.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        median(self.ratios())
    }

    /// Whether it is what it must be.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.bound.holds(self.ratio())
    }

    /// The least and the greatest of the pairs' ratios.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let ends = (f64::INFINITY, f64::NEG_INFINITY);
        self.ratios().into_iter().fold(ends, |(low, high), ratio| (low.min(ratio), high.max(ratio)))
    }

    fn ratios(&self) -> Vec<f64> {
        self.pairs.iter().map(|(ours, theirs)| ours / theirs).collect()
    }
}

/// A line of a table: name, both medians, the ratio with its range, the bound.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.range();
        write!(
            f,
            "| {} | {} {} | {} {} | {:.3} ({low:.3}-{high:.3}, {} pairs) | {} | {} |",
            self.name,
            figure(median(self.pairs.iter().map(|pair| pair.0).collect())),
            self.unit,
            figure(median(self.pairs.iter().map(|pair| pair.1).collect())),
            self.unit,
            self.ratio(),
            self.pairs.len(),
            self.bound,
            self.bound.verdict(self.ratio())
        )
    }
}

/// Two decimals, or four where two would say nothing.
fn figure(value: f64) -> String {
    if value < 1.0 { format!("{value:.4}") } else { format!("{value:.2}") }
}

/// The head of the table that rows are lines of.
pub const HEAD: &str = "| what | ours | theirs | ratio | bound | |\n|---|---|---|---|---|---|";

/// GB/s.
#[must_use]
pub fn rate(bytes: usize, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

/// The middle value; NaN of none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => values[len / 2],
        len => (values[len / 2 - 1] + values[len / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_pairs() {
        let (mut ours, mut theirs) = (vec![1.0, 9.0, 4.0].into_iter(), vec![2.0, 3.0, 4.0].into_iter());
        let next = |from: &mut std::vec::IntoIter<f64>| from.next().ok_or(());
        let row =
            Row::measure("x", "s", Bound::AtLeast(1.0), 3, || next(&mut ours), || next(&mut theirs)).unwrap();
        assert_eq!((row.ratio(), row.holds()), (1.0, true));
        assert!(!Row { bound: Bound::AtMost(0.9), ..row.clone() }.holds());
        assert!(row.to_string().contains("1.000 (0.500-3.000, 3 pairs)"), "{row}");
        assert!(median(Vec::new()).is_nan());
        assert_eq!((figure(45.274).as_str(), figure(0.04571).as_str()), ("45.27", "0.0457"));
    }
}
