//! Axes: where a value lies between the ends of its axis, and which values get a label.

/// Most labels of an axis of values.
const LABELS_MAX: f64 = 8.0;
/// Decades above which a logarithmic axis is labelled at powers of ten alone.
const DENSE_DECADES: i32 = 3;

/// An axis from its first label's value to its last one's.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// Where it begins, as [`place`](Self::place) counts.
    low: f64,
    high: f64,
    logarithm: Option<f64>,
    /// The labelled values with their labels.
    pub labels: Vec<(f64, String)>,
}

impl Axis {
    /// Message sizes, by powers of two.
    pub fn sizes(first: u64, last: u64) -> Self {
        let (low, high) = (log2(first), log2(last));
        // A single size lies in the middle.
        let (low, high) = if high - low < 1.0 { (low - 1.0, high + 1.0) } else { (low, high) };
        let step = match high - low {
            ..=8.0 => 1,
            ..=14.0 => 2,
            _ => 3,
        };
        let powers = (low.ceil() as u32..=high.floor() as u32).filter(|power| power.is_multiple_of(step));
        let labels = powers.map(|power| (f64::from(power).exp2(), size_label(power))).collect();
        Self { low, high, logarithm: Some(2.0), labels }
    }

    /// From 0 to a round value that is at least `most`.
    pub fn from_zero(most: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let steps =
            [1.0, 2.0, 5.0, 10.0].map(|step| step * power_of_ten((most / LABELS_MAX).log10().floor()));
        let step = steps.into_iter().find(|step| most / step <= LABELS_MAX).unwrap_or(most);
        let count = (most / step).ceil();
        let labels = (0..=count as u32).map(|number| f64::from(number) * step);
        let labels = labels.map(|value| (value, rounded(value, step))).collect();
        Self { low: 0.0, high: count * step, logarithm: None, labels }
    }

    /// Between round values around `least` and `most`, which are above 0, by powers of ten.
    pub fn logarithmic(least: f64, most: f64) -> Self {
        let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let dense = last - first <= DENSE_DECADES;
        let steps: &[f64] = if dense { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let values = (first..=last).flat_map(|power| {
            let unit = power_of_ten(f64::from(power));
            steps.iter().map(move |step| (step * unit, unit))
        });
        let mut labels: Vec<_> = values.map(|(value, unit)| (value, rounded(value, unit))).collect();
        // A single label below the least value and one above the most are enough.
        let below = labels.iter().rposition(|(value, _)| *value <= least).unwrap_or(0);
        labels.drain(..below);
        let above = labels.iter().position(|(value, _)| *value >= most).unwrap_or(labels.len());
        labels.truncate(above.max(1) + 1);
        let end =
            |label: Option<&(f64, String)>, value: f64| label.map_or(value, |(value, _)| *value).log10();
        let (low, high) = (end(labels.first(), least), end(labels.last(), most));
        Self { low, high, logarithm: Some(10.0), labels }
    }

    /// Where `value` lies, from 0 at the beginning to 1 at the end; what lies beyond is put at the end.
    pub fn place(&self, value: f64) -> f64 {
        let value = self.logarithm.map_or(value, |base| value.log2() / base.log2());
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

fn log2(size: u64) -> f64 {
    (size.max(1) as f64).log2()
}

fn power_of_ten(power: f64) -> f64 {
    10f64.powf(power)
}

/// `value` with as many digits as `unit` has.
fn rounded(value: f64, unit: f64) -> String {
    let digits = (-unit.log10().floor()).clamp(0.0, 9.0) as usize;
    format!("{value:.digits$}")
}

/// A power of two as people say it: `8 B`, `4 KiB`.
fn size_label(power: u32) -> String {
    let unit = (power / 10).min(3);
    format!("{} {}", 1u64 << (power - 10 * unit), ["B", "KiB", "MiB", "GiB"][unit as usize])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.labels.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn sizes_are_labelled_as_people_say_them() {
        let all = Axis::sizes(2, 1 << 23);
        assert_eq!(labels(&all), ["8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB", "2 MiB"]);
        assert_eq!(labels(&Axis::sizes(512, 4096)), ["512 B", "1 KiB", "2 KiB", "4 KiB"]);
        assert_eq!((all.place(2.0), all.place(f64::from(1 << 23))), (0.0, 1.0));
        let one = Axis::sizes(65_536, 65_536);
        assert_eq!((labels(&one), one.place(65_536.0)), (vec!["32 KiB", "64 KiB", "128 KiB"], 0.5));
        assert_eq!(labels(&Axis::sizes(1, 1)), ["1 B", "2 B"]);
    }

    #[test]
    fn values_from_zero_have_round_labels() {
        assert_eq!(labels(&Axis::from_zero(2078.0)), ["0", "500", "1000", "1500", "2000", "2500"]);
        assert_eq!(
            labels(&Axis::from_zero(0.31)),
            ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30", "0.35"]
        );
        assert_eq!(Axis::from_zero(0.0).place(0.0), 0.0);
    }

    #[test]
    fn logarithmic_values_have_a_label_on_each_side() {
        assert_eq!(labels(&Axis::logarithmic(1.71, 8.3)), ["1", "2", "5", "10"]);
        assert_eq!(labels(&Axis::logarithmic(0.4, 0.4)), ["0.2", "0.5"]);
        assert_eq!(labels(&Axis::logarithmic(1.5, 30_000.0)), ["1", "10", "100", "1000", "10000", "100000"]);
    }

    proptest! {
        #[test]
        fn every_value_lies_on_its_axis(
            sizes in (1u64..1 << 31, 1u64..1 << 31), values in (1e-3f64..1e9, 1e-3f64..1e9), between in 0.0f64..=1.0,
        ) {
            let (first, last) = (sizes.0.min(sizes.1), sizes.0.max(sizes.1));
            let (least, most) = (values.0.min(values.1), values.0.max(values.1));
            for (axis, low, high) in [
                (Axis::sizes(first, last), first as f64, last as f64),
                (Axis::from_zero(most), 0.0, most),
                (Axis::logarithmic(least, most), least, most),
            ] {
                let at = axis.place(low + (high - low) * between);
                prop_assert!((0.0..=1.0).contains(&at), "{axis:?}");
                prop_assert!(axis.place(low) <= axis.place(high));
                prop_assert!((1..=26).contains(&axis.labels.len()), "{axis:?}");
                prop_assert!(axis.labels.iter().all(|(value, _)| (0.0..=1.0).contains(&axis.place(*value))));
                // Nothing that is drawn was moved to an end because the axis is too short.
                prop_assert!(axis.high > axis.low);
            }
        }
    }
}
