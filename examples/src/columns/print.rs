//! Lays out the table, line by line, as nccl-tests prints it; the values in it come from elsewhere.

use super::number::{fit, general};
use super::{Closing, Measured, Row};

/// The two lines above the rows and the one that says which half is which.
pub fn column_titles() -> String {
    let names = ["size", "count", "type", "redop", "root"];
    let units = ["(B)", "(elements)", "", "", ""];
    let line = |left: [&str; 5], right: [&str; 4]| {
        let [size, count, dtype, redop, root] = left;
        let [time, algbw, busbw, wrong] = right;
        format!(
            "# {size:>10}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}  \
             {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}\n"
        )
    };
    let blank = "";
    let halves = format!(
        "# {blank:>10}  {blank:>12}  {blank:>8}  {blank:>6}  {blank:>6}  {:^31}    {:^31}\n",
        "out-of-place", "in-place"
    );
    let titles = line(names, ["time", "algbw", "busbw", "#wrong"]);
    let units = line(units, ["(us)", "(GB/s)", "(GB/s)", ""]);
    [halves, titles, units].map(|line| format!("{}\n", line.trim_end())).concat()
}

/// Returns the line of one row.
pub fn row(row: &Row) -> String {
    let Row { bytes, count, dtype, redop, root, out_of_place, in_place } = row;
    format!(
        "{bytes:>12}  {count:>12}  {dtype:>8}  {redop:>6}  {root:>6}{}{}\n",
        measured(out_of_place),
        measured(in_place)
    )
}

fn measured(measured: &Measured) -> String {
    let wrong = match measured.wrong {
        Some(wrong) => general(wrong as f64),
        None => "N/A".to_owned(),
    };
    let Measured { time_us, algbw, busbw, .. } = *measured;
    format!("  {}  {}  {}  {wrong:>6}", fit(time_us, 7), fit(algbw, 6), fit(busbw, 6))
}

/// The lines under the rows.
pub fn closing(closing: &Closing, program: &str) -> String {
    format!(
        "# {:<20} : {} {}\n# {:<20} : {}\n#\n# Collective test concluded: {program}\n",
        "Out of bounds values",
        closing.out_of_bounds,
        if closing.ok() { "OK" } else { "FAILED" },
        "Avg bus bandwidth",
        general(closing.average_busbw),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        [(8, 5.21e-6, Some(0)), (1 << 20, 310.0e-6, Some(1)), (4 << 30, 12.5, None)]
            .map(|(bytes, seconds, wrong)| Row {
                bytes,
                count: bytes / 4,
                dtype: "float".into(),
                redop: "sum".into(),
                root: -1,
                out_of_place: Measured::new(bytes, 1.0, seconds, wrong.map(|_| 0)),
                in_place: Measured::new(bytes, 1.0, seconds * 1.1, wrong),
            })
            .to_vec()
    }

    #[test]
    fn the_table_looks_like_nccl_tests() {
        let rows = rows();
        let mut text = column_titles();
        text.extend(rows.iter().map(row));
        text += &closing(&Closing::of(&rows), "allreduce");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn titles_stand_over_their_columns() {
        let titles = column_titles();
        let ends = |line: &str| {
            let mut ends = Vec::new();
            for (at, _) in line.char_indices().filter(|&(_, c)| c != ' ') {
                if line.as_bytes().get(at + 1).is_none_or(|&next| next == b' ') {
                    ends.push(at);
                }
            }
            ends
        };
        let names = ends(titles.lines().nth(1).unwrap());
        assert_eq!(names[1..], ends(row(&rows()[0]).trim_end())[..]);
    }
}
