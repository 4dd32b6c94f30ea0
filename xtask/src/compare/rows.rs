//! Rows of benches/RESULTS.md by our own programs, and how each is measured. Command lines of the programs are stable
//! across revisions, unlike the libraries' APIs.

use anyhow::{Context, Result};

use super::verdict::Better;

/// Source of a row's figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Microseconds in a collective's table.
    Collective {
        /// Program.
        program: &'static str,
        /// Buffer whose time counts.
        buffers: Buffers,
    },
    /// Figure in the table of one of perftest's twins: column from 0. Both sides are started.
    Twin {
        /// Program.
        program: &'static str,
        /// Column of the figure.
        column: usize,
    },
    /// `NAME: FIGURE UNIT` of a program of the benches that measures ours alone.
    Alone {
        /// Program.
        program: &'static str,
    },
    /// Key of a JSON object that the program prints.
    Json {
        /// Program.
        program: &'static str,
        /// Key of the figure.
        key: &'static str,
    },
}

/// Half of a collective's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffers {
    /// Columns `in-place`.
    InPlace,
    /// Columns `out-of-place`.
    Apart,
}

/// Row of the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Title.
    pub name: String,
    /// Unit of the figure.
    pub unit: &'static str,
    /// Whether a larger figure is faster.
    pub better: Better,
    /// Source of the figure.
    pub source: Source,
    /// Arguments of the program.
    pub arguments: Vec<String>,
}

impl Row {
    /// Program that is run.
    pub fn program(&self) -> &'static str {
        match self.source {
            Source::Collective { program, .. }
            | Source::Twin { program, .. }
            | Source::Alone { program }
            | Source::Json { program, .. } => program,
        }
    }

    /// Figure in what the program printed.
    pub fn figure(&self, printed: &str) -> Result<f64> {
        let found = match &self.source {
            Source::Collective { buffers, .. } => printed.lines().find_map(|line| time(line, *buffers)),
            Source::Twin { column, .. } => printed.lines().find_map(|line| twin(line, *column)),
            Source::Alone { .. } => printed.lines().find_map(alone),
            Source::Json { key, .. } => printed
                .lines()
                .find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?.get(key)?.as_f64()),
        };
        let figure = found.filter(|figure| figure.is_finite() && *figure > 0.0);
        figure.with_context(|| format!("no figure of {} in:\n{printed}", self.program()))
    }
}

/// Time in a line `size count type redop root | time algbw busbw #wrong | time algbw busbw #wrong`.
fn time(line: &str, buffers: Buffers) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.first()?.parse::<u64>().ok()?;
    let from_end = match buffers {
        Buffers::InPlace => 4,
        Buffers::Apart => 8,
    };
    words.get(words.len().checked_sub(from_end)?)?.parse().ok()
}

/// Figure of a twin: a line whose first two words are the size and the iterations.
fn twin(line: &str, column: usize) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    words.first()?.parse::<u64>().ok()?;
    words.get(1)?.parse::<u64>().ok()?;
    words.get(column)?.parse().ok()
}

fn alone(line: &str) -> Option<f64> {
    line.rsplit_once(": ")?.1.split(' ').next()?.parse().ok()
}

/// Sizes in the way rows name them.
fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// Row of a collective on the software device; `extra` are further arguments, with their title.
fn collective(
    program: &'static str,
    ranks: u32,
    bytes: u64,
    iterations: u32,
    (title, extra): (&str, &[&str]),
) -> Row {
    // All-to-all in place needs a copy of the buffer, which hides the exchange.
    let buffers = if program == "alltoall" { Buffers::Apart } else { Buffers::InPlace };
    let mut arguments: Vec<String> = ["--device", "soft", "-c", "0", "-T", "60"].map(str::to_owned).into();
    let numbers = [
        ("--ranks", u64::from(ranks)),
        ("-b", bytes),
        ("-e", bytes),
        ("-n", u64::from(iterations)),
        ("-w", u64::from(iterations / 4 + 3)),
    ];
    for (flag, number) in numbers {
        arguments.extend([flag.to_owned(), number.to_string()]);
    }
    arguments.extend(extra.iter().map(|word| (*word).to_owned()));
    Row {
        name: format!("{program}{title}, {ranks} ranks, {}", size(bytes)),
        unit: "us",
        better: Better::Less,
        source: Source::Collective { program, buffers },
        arguments,
    }
}

fn other(name: &str, (unit, better): (&'static str, Better), source: Source, arguments: &[&str]) -> Row {
    let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
    Row { name: name.to_owned(), unit, better, source, arguments }
}

/// All rows. Iterations take 20 ms or more on a quiet machine, so that a single late wake-up does not decide.
pub fn all() -> Vec<Row> {
    let plain = ("", &[][..]);
    let slices = (" of slices", &["--plain"][..]);
    let tcp = (" over TCP", &["--wire", "tcp"][..]);
    let mut rows = vec![
        collective("allreduce", 2, 8, 100_000, plain),
        collective("allreduce", 2, 4 << 10, 50_000, plain),
        collective("allreduce", 2, 32 << 10, 20_000, plain),
        collective("allreduce", 2, 1 << 20, 4_000, plain),
        collective("allreduce", 2, 64 << 20, 20, plain),
        collective("allreduce", 4, 8, 20_000, plain),
        collective("allreduce", 4, 1 << 20, 1_000, plain),
        collective("allreduce", 2, 1 << 20, 2_000, slices),
        collective("allreduce", 2, 1 << 20, 400, tcp),
    ];
    for program in ["allgather", "reducescatter", "broadcast", "alltoall"] {
        rows.push(collective(program, 2, 64 << 10, 20_000, plain));
        rows.push(collective(program, 2, 1 << 20, 4_000, plain));
    }
    let mapped = ["-d", "soft", "--wire", "mapped"];
    rows.push(other(
        "write_bw, mapped, 64 KiB",
        ("MiB/s", Better::More),
        Source::Twin { program: "write_bw", column: 3 },
        &[&mapped[..], &["-s", "65536", "-n", "50000"]].concat(),
    ));
    rows.push(other(
        "write_lat, mapped, 8 B",
        ("us", Better::Less),
        Source::Twin { program: "write_lat", column: 4 },
        &[&mapped[..], &["-s", "8", "-n", "200000"]].concat(),
    ));
    rows.push(other(
        "KV, 4096 scattered blocks of 64 KiB",
        ("GB/s", Better::More),
        Source::Alone { program: "mapped" },
        &["--alone", "--only", "KV, 4096 scattered blocks of 64 KiB, against memcpy"],
    ));
    rows.push(other(
        "kvcache_transfer, 4096 blocks of 64 KiB",
        ("GB/s", Better::More),
        Source::Json { program: "kvcache_transfer", key: "gigabytes_per_second" },
        &["--device", "soft", "--wire", "mapped", "--prompt", "2048", "--block", "16", "--json"],
    ));
    rows
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn row(source: Source) -> Row {
        other("", ("us", Better::Less), source, &[])
    }

    #[test]
    fn rows_have_names_of_their_own() {
        let names: BTreeSet<String> = all().into_iter().map(|row| row.name).collect();
        assert_eq!(names.len(), all().len());
        assert!(names.contains("allreduce of slices, 2 ranks, 1 MiB"));
        assert!(names.contains("allreduce, 2 ranks, 8 B"));
    }

    #[test]
    fn each_half_of_a_collectives_table_is_read() {
        let printed = "# nThread 1 nGpus 1 minBytes 8\n#       size         count      type\n    4096          1024     \
                       float     sum      -1   154.07    0.03    0.04     N/A   139.11    0.03    0.04     N/A\n";
        let figure = |buffers| row(Source::Collective { program: "", buffers }).figure(printed).unwrap();
        assert_eq!((figure(Buffers::InPlace), figure(Buffers::Apart)), (139.11, 154.07));
    }

    #[test]
    fn a_twins_line_is_told_from_its_banner() {
        let printed = " Number of qps   : 1\n #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]\n \
                       65536      50000            9000.10            8888.50             0.142216\n";
        let source = Source::Twin { program: "write_bw", column: 3 };
        assert_eq!(row(source).figure(printed).unwrap(), 8888.5);
    }

    #[test]
    fn figures_of_benches_and_of_json_are_read() {
        assert_eq!(
            row(Source::Alone { program: "" }).figure("KV, 1, against x: 8.140 GB/s\n").unwrap(),
            8.14
        );
        let json = row(Source::Json { program: "", key: "rate" });
        assert_eq!(json.figure("note\n{\"rate\":2.5}\n").unwrap(), 2.5);
        assert!(json.figure("{\"rate\":0}\n").is_err());
    }
}
