//! The text of `benches/RESULTS.md`.

use std::fmt::Write;

use super::notes::Notes;
use super::saved::{Row, Saved, figure};

const HEAD: &str = "\
# Results

`cargo xtask results` makes this page of the files under `benches/results`, which the benches write with `--save`; CI
compares it with them. A row is the median of interleaved pairs of one run: ours, the other side, and the median of the
pairs' ratios with its range. A ratio is ours over the other side, unless the row says `over ours`: the time of the others
over ours. Each section has one run, its machine and its commit. [history.md](history.md) tells how rows of earlier
states were measured and what was learnt.
";

/// The whole page.
pub fn text(runs: &[Saved], notes: &Notes) -> String {
    let bounded = || runs.iter().flat_map(|run| &run.rows).filter(|row| row.is_bounded());
    let (holding, all) = (bounded().filter(|row| row.holds()).count(), bounded().count());
    let mut text = format!("{HEAD}\nOf {all} rows with a bound {holding} hold.\n");
    for run in runs {
        section(&mut text, run, notes);
    }
    text
}

fn section(text: &mut String, run: &Saved, notes: &Notes) {
    let Saved { name, command, commit, date, machine, rows } = run;
    let told = rows.iter().filter(|row| !row.is_bounded()).count();
    let _ = write!(text, "\n## {name}\n\n`{command}`\n\n{machine}; commit {commit}, {date}.");
    if told > 0 {
        let _ = write!(text, " {told} more rows without a bound are in `results/{name}.json`.");
    }
    text.push_str("\n\n| what | ours | other side | ratio | bound | holds |\n|---|---|---|---|---|---|\n");
    for row in rows.iter().filter(|row| row.is_bounded()) {
        let of = |value: Option<f64>| {
            value.map_or(String::new(), |value| format!("{} {}", figure(value), row.unit))
        };
        let verdict = match (row.holds(), notes.why(name, row)) {
            (true, _) => "yes".to_owned(),
            (false, why) => format!("NO: {}", why.unwrap_or("nobody has said why")),
        };
        let Row { what, ours, theirs, bound, .. } = row;
        let _ = writeln!(
            text,
            "| {what} | {} | {} | {} | {bound} | {verdict} |",
            of(*ours),
            of(*theirs),
            ratio(row)
        );
    }
}

fn ratio(row: &Row) -> String {
    let Some(ratio) = row.ratio else {
        return if row.ours.is_some() { String::new() } else { "not measured".to_owned() };
    };
    let pairs = if row.pairs == 1 { "pair" } else { "pairs" };
    match row.range {
        Some((low, high)) => format!("{ratio:.3} ({low:.3}-{high:.3}, {} {pairs})", row.pairs),
        None if row.pairs > 0 => format!("{ratio:.3} ({} {pairs})", row.pairs),
        None => format!("{ratio:.3}"),
    }
}
