//! The pictures of an all-reduce of f32 beside the others: bus bandwidth by size on one host, time by size over TCP.

use std::collections::BTreeSet;

use examples::chart::{Chart, Charts, Curve};

use crate::programs::bus_bandwidth;
use crate::report::Line;

use super::Side;

/// Sides in the picture of one host, in the legend's order.
const SIDES: [Side; 4] = [Side::Owned, Side::IntelMpi, Side::OpenMpi, Side::Gloo];
/// Sides over TCP.
const TCP_SIDES: [Side; 4] = [Side::Tcp, Side::IntelMpi, Side::OpenMpi, Side::Gloo];

/// Draws the all-reduce of f32 among the rows of a run.
#[must_use]
pub fn draw(rows: &[Line]) -> Chart {
    let ranks_of = |row: &Line| -> Option<f64> {
        row.table.strip_prefix("all-reduce f32, ")?.strip_suffix(" ranks")?.parse().ok()
    };
    let ranks = rows.iter().find_map(ranks_of).unwrap_or_default();
    let rows = rows.iter().filter(|row| ranks_of(row).is_some());
    Chart {
        title: format!("All-reduce of float32, {ranks} ranks on one host"),
        values: "bus bandwidth (GB/s)".to_owned(),
        logarithmic: false,
        curves: curves(rows, SIDES, |bytes, microseconds| bus_bandwidth(bytes, microseconds, ranks)),
    }
}

/// Draws the times of the all-reduces over TCP among the rows of a run, one chart for each number of ranks.
#[must_use]
pub fn draw_times(rows: &[Line]) -> Charts {
    let ranks_of = |row: &Line| -> Option<u32> {
        row.table.strip_prefix("all-reduce f32, ")?.strip_suffix(" ranks over TCP")?.parse().ok()
    };
    let all: BTreeSet<u32> = rows.iter().filter_map(ranks_of).collect();
    let chart = |ranks: u32| Chart {
        title: format!("All-reduce of float32 over TCP, {ranks} ranks"),
        values: "time (us)".to_owned(),
        logarithmic: true,
        curves: curves(rows.iter().filter(|row| ranks_of(row) == Some(ranks)), TCP_SIDES, |_, us| us),
    };
    Charts(all.into_iter().map(chart).collect())
}

/// Returns the curves of the sides that `rows` have. `value` makes each point's height of its bytes and microseconds.
fn curves<'a>(
    rows: impl Iterator<Item = &'a Line> + Clone,
    sides: [Side; 4],
    value: impl Fn(u64, f64) -> f64,
) -> Vec<Curve> {
    let curve = |(number, side): (usize, &Side)| {
        let point = |row: &Line| {
            let (bytes, microseconds) = (row.bytes? as u64, row.sides.get(side.name())?);
            Some((bytes, value(bytes, *microseconds)))
        };
        let points = rows.clone().filter_map(point).collect();
        Curve { label: side.name().to_owned(), number, dashed: false, points }
    };
    sides.iter().enumerate().map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Saved, path};

    #[test]
    fn curves_are_of_the_sides_beside_each_other() {
        let row = |table: &str, bytes, sides: &[(&str, f64)]| Line {
            table: table.to_owned(),
            bytes: Some(bytes),
            sides: sides.iter().map(|(name, time)| ((*name).to_owned(), *time)).collect(),
            ..Line::default()
        };
        let rows = [
            row("all-reduce f32, 2 ranks", 8, &[("ours", 1.0), ("Intel MPI", 2.0)]),
            row("all-reduce f32, 2 ranks", 4000, &[("ours", 1.0), ("Intel MPI", 2.0)]),
            row("all-reduce f32, 2 ranks, the machine's limit", 4000, &[("ours", 9.0)]),
            row("all-reduce f32, 2 ranks, borrowed slices", 8, &[("ours", 9.0)]),
            row("all-reduce f16, 2 ranks", 8, &[("ours", 9.0)]),
        ];
        let chart = draw(&rows);
        let of: Vec<_> =
            chart.curves.iter().map(|curve| (curve.label.as_str(), curve.points.clone())).collect();
        assert_eq!(
            of,
            [("ours", vec![(8, 0.008), (4000, 4.0)]), ("Intel MPI", vec![(8, 0.004), (4000, 2.0)])]
        );
    }

    #[test]
    fn times_over_tcp_have_a_chart_for_each_number_of_ranks() {
        let row = |ranks, bytes, tcp: &str| Line {
            table: format!("all-reduce f32, {ranks} ranks{tcp}"),
            bytes: Some(bytes),
            sides: [(Side::Tcp.name().to_owned(), 3.0), ("Open MPI".to_owned(), 2.0)].into(),
            ..Line::default()
        };
        let rows = [row(8, 8, " over TCP"), row(2, 8, " over TCP"), row(2, 16, " over TCP"), row(4, 8, "")];
        let Charts(charts) = draw_times(&rows);
        let of: Vec<_> =
            charts.iter().map(|chart| (chart.title.as_str(), &chart.curves[0].points[..])).collect();
        assert_eq!(
            of,
            [
                ("All-reduce of float32 over TCP, 2 ranks", &[(8, 3.0), (16, 3.0)][..]),
                ("All-reduce of float32 over TCP, 8 ranks", &[(8, 3.0)][..])
            ]
        );
    }

    fn assert_is_drawn_of<P: ToString>(figure: &str, run: &str, draw: impl FnOnce(&[Line]) -> P) {
        let saved = Saved::read(&path(run)).unwrap();
        let figure = format!("{}/../docs/figures/{figure}.svg", env!("CARGO_MANIFEST_DIR"));
        let drawn = std::fs::read_to_string(figure).unwrap();
        assert_eq!(drawn, draw(&saved.rows).to_string(), "draw it anew: benches/README.md has the command");
    }

    #[test]
    fn the_pictures_are_drawn_of_the_saved_runs() {
        assert_is_drawn_of("allreduce-beside-mpi", "collectives-2", draw);
        assert_is_drawn_of("allreduce-over-tcp", "hosts", draw_times);
    }
}
