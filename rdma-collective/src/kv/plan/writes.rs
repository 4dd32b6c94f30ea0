//! Writes: runs, joined where they are adjacent and packed where they are short.

use super::Run;
use super::runs::Runs;

/// An end of a write, in a pool of a [`Route`](super::Route) or in staging memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Bytes of the pool, from this offset on.
    Pool(u64),
    /// Staging memory: the pieces of the runs are packed there, one behind the other.
    Staging,
}

/// A write, or a read of a pull, over a [`Route`](super::Route).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Where the bytes come from.
    pub source: End,
    /// Where they go.
    pub destination: End,
    /// Bytes; never 0.
    pub len: u64,
}

/// The writes of a plan, with the runs of each.
#[derive(Debug)]
pub(in crate::kv) struct Writes {
    runs: Runs,
    /// Runs that were taken and are in no write yet, the next one last: the rest of a piece, and of a run.
    pending: Vec<Run>,
    /// The runs of the last write.
    parts: Vec<Run>,
}

/// The runs of an open write: how long they are, and where they are adjacent.
#[derive(Clone, Copy)]
struct Open {
    bytes: u64,
    /// End of the last piece, as long as all pieces are adjacent at that side.
    ends: [Option<u64>; 2],
}

impl Writes {
    pub(super) fn new(runs: Runs) -> Self {
        Self { runs, pending: Vec::new(), parts: Vec::new() }
    }

    /// The runs of the write that was returned last, in the order in which staging memory has them.
    pub(in crate::kv) fn parts(&self) -> &[Run] {
        &self.parts
    }

    fn take(&mut self) -> Option<Run> {
        self.pending.pop().or_else(|| self.runs.next())
    }

    /// Adds a run to the open write.
    fn push(&mut self, open: &mut Open, run: Run) {
        *open = open.with(&run);
        self.parts.push(run);
    }

    /// Joins `first`, a single piece, with those that follow it at both sides. Returns what is open.
    fn join(&mut self, first: Run, bound: u64) -> Open {
        let mut open = Open::of(&first);
        self.parts.push(first);
        while let Some(next) = self.take() {
            let joins = next.count == 1
                && open.bytes + next.len <= bound
                && open.with(&next).ends.iter().all(Option::is_some);
            if !joins {
                self.pending.push(next);
                break;
            }
            self.push(&mut open, next);
        }
        open
    }

    /// Packs short runs behind those that are open, until staging memory is full, a long run comes, or a write that is
    /// long enough would lose a side on which all its bytes are adjacent.
    fn pack(&mut self, mut open: Open, most: u64) -> Open {
        let plan = self.runs.plan();
        let (short, pulls, unpacks) = (plan.pack_bytes(), plan.pulls, plan.unpacks);
        while let Some(mut next) = self.take() {
            let room = most.saturating_sub(open.bytes) / next.len;
            if next.len >= short || room == 0 {
                self.pending.push(next);
                break;
            }
            let (fits, rest) = next.split(u32::try_from(room).unwrap_or(u32::MAX));
            next = fits;
            let [from, to] =
                [0, 1].map(|side| open.ends[side].is_some() && open.with(&next).ends[side].is_none());
            let loses = to || from && open.ends[1].is_none();
            if pulls && from || !unpacks && to || loses && open.bytes >= short {
                let count = next.count + rest.map_or(0, |rest| rest.count);
                self.pending.push(Run { count, ..next });
                break;
            }
            self.push(&mut open, next);
            self.pending.extend(rest);
        }
        open
    }
}

impl Open {
    fn of(run: &Run) -> Self {
        let (last_source, last_destination) = run.last();
        let adjacent = |step: u64, last: u64| (run.count == 1 || step == run.len).then_some(last + run.len);
        let ends = [adjacent(run.source_step, last_source), adjacent(run.destination_step, last_destination)];
        Self { bytes: run.bytes(), ends }
    }

    fn with(&self, run: &Run) -> Self {
        let next = Self::of(run);
        let follows = |side: usize, start: u64| next.ends[side].filter(|_| self.ends[side] == Some(start));
        Self { bytes: self.bytes + next.bytes, ends: [follows(0, run.source), follows(1, run.destination)] }
    }
}

impl Iterator for Writes {
    type Item = Write;

    fn next(&mut self) -> Option<Write> {
        self.parts.clear();
        let plan = self.runs.plan();
        let (bound, short) = (u64::from(plan.write_bytes_max), plan.pack_bytes());
        let (pulls, unpacks) = (plan.pulls, plan.unpacks);
        let most = u64::from(plan.stage_bytes).min(bound);
        let mut first = self.take()?;
        let scattered = |step: u64| first.count > 1 && step != first.len;
        let packs = first.len < short
            && !(pulls && scattered(first.source_step))
            && (unpacks || !scattered(first.destination_step));
        if !packs {
            let (one, rest) = first.split(1);
            self.pending.extend(rest);
            first = one;
        }
        if first.len > bound {
            let (cut, rest) = first.cut(bound);
            self.pending.push(rest);
            self.parts.push(cut);
            return Some(Write {
                source: End::Pool(cut.source),
                destination: End::Pool(cut.destination),
                len: bound,
            });
        }
        let mut open = if first.count == 1 {
            self.join(first, bound)
        } else {
            let (fits, rest) = first.split(u32::try_from(most / first.len).unwrap_or(u32::MAX));
            self.pending.extend(rest);
            self.parts.push(fits);
            Open::of(&fits)
        };
        if packs && open.bytes < short.max(1) || open.ends.contains(&None) {
            open = self.pack(open, most);
        }
        let start = |side: usize| {
            let first = self.parts.first().map_or(0, |run| [run.source, run.destination][side]);
            if open.ends[side].is_some() { End::Pool(first) } else { End::Staging }
        };
        Some(Write { source: start(0), destination: start(1), len: open.bytes })
    }
}
