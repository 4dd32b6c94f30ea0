//! The times as people read them: a line for each size, a column for each way.

use super::choose::Chosen;
use super::measure::{Memory, Times};
use super::tunable::Tunable;
use rdma_collective::collective::Algorithm;
use std::fmt::Write;

/// The measured times, for the table.
pub struct Table<'a> {
    pub times: &'a Times,
    pub sizes: &'a [u64],
}

impl Table<'_> {
    /// The lines of a collective; `-` where a way cannot be taken.
    pub fn of(&self, collective: Tunable, chosen: &Chosen) -> String {
        let owned = Algorithm::ALL.iter().map(|way| (*way, Memory::Owned));
        let borrowed = [Algorithm::Pieces, Algorithm::Ring].map(|way| (way, Memory::Borrowed));
        let columns: Vec<_> = owned.chain(borrowed).filter(|column| self.has(collective, *column)).collect();
        let mut text = format!("#\n# {:>12} {:>10}", collective.name(), "bytes");
        // Writing to a string does not fail.
        for (way, memory) in &columns {
            let slices = if *memory == Memory::Borrowed { "/slices" } else { "" };
            let _ = write!(text, " {:>13}", format!("{way}{slices}"));
        }
        let _ = writeln!(text, "  fastest");
        for (size, ways) in chosen {
            let bytes = if *size == u64::MAX { "any".to_owned() } else { size.to_string() };
            let _ = write!(text, "  {:>12} {bytes:>10}", "");
            for (way, memory) in &columns {
                let time = self.times.of(collective, *size, *way, *memory);
                let _ = write!(text, " {:>13}", time.map_or("-".to_owned(), |time| format!("{time:.2}")));
            }
            let ways: Vec<String> = ways.iter().map(Algorithm::to_string).collect();
            let _ = writeln!(text, "  {}", ways.join(","));
        }
        text
    }

    fn has(&self, collective: Tunable, (way, memory): (Algorithm, Memory)) -> bool {
        collective
            .sizes(self.sizes)
            .iter()
            .any(|size| self.times.of(collective, *size, way, memory).is_some())
    }
}
