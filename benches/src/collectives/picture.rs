//! The picture of an all-reduce of f32 beside the others: bus bandwidth by size.

use examples::chart::{Chart, Curve};

use crate::programs::bus_bandwidth;
use crate::report::Line;

use super::Side;

/// Sides in the picture, in the legend's order.
const SIDES: [Side; 4] = [Side::Owned, Side::IntelMpi, Side::OpenMpi, Side::Gloo];

/// Draws the all-reduce of f32 among the rows of a run.
#[must_use]
pub fn draw(rows: &[Line]) -> Chart {
    let ranks_of = |row: &Line| -> Option<f64> {
        row.table.strip_prefix("all-reduce f32, ")?.strip_suffix(" ranks")?.parse().ok()
    };
    let ranks = rows.iter().find_map(ranks_of).unwrap_or_default();
    let rows: Vec<&Line> = rows.iter().filter(|row| ranks_of(row).is_some()).collect();
    let curves = SIDES.iter().enumerate().map(|(number, side)| {
        let point = |row: &&Line| {
            let (bytes, microseconds) = (row.bytes? as u64, row.sides.get(side.name())?);
            Some((bytes, bus_bandwidth(bytes, *microseconds, ranks)))
        };
        let points = rows.iter().filter_map(point).collect();
        Curve { label: side.name().to_owned(), number, dashed: false, points }
    });
    Chart {
        title: format!("All-reduce of float32, {ranks} ranks on one host"),
        values: "bus bandwidth (GB/s)".to_owned(),
        logarithmic: false,
        curves: curves.filter(|curve| !curve.points.is_empty()).collect(),
    }
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
    fn the_picture_of_the_readme_is_drawn_of_the_saved_run() {
        let saved = std::fs::read_to_string(path("collectives-2")).unwrap();
        let saved: Saved = serde_json::from_str(&saved).unwrap();
        let figure = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/figures/allreduce-beside-mpi.svg");
        let drawn = std::fs::read_to_string(figure).unwrap();
        assert_eq!(drawn, draw(&saved.rows).to_string(), "draw it anew: benches/README.md has the command");
    }
}
