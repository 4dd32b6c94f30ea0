//! Copies by the library's kernels beside the C library's `memcpy`, which `copy_from_slice` calls.
//!
//! `cargo run --release -p benches --bin copies`, some minutes; exit status 1 when a row does not hold. The targets are
//! shared memory, as what peers write is, of pages as small as the system makes them; they are touched before.

use std::cell::RefCell;
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;

use benches::ratio::{Bound, HEAD, Row, median};
use benches::report::{Line, Report, SaveArgs};
use clap::Parser;
use rdma_core::Memory;
use rdma_core::memory::{CacheHint, copy_slice};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The least ratio of a single copy of a page or more to `memcpy`, and how much longer a shorter one may take.
const SINGLE_MIN: f64 = 0.9;
const NANOSECONDS_MAX: f64 = 4.0;
/// Where the source and the target of a single copy begin, in their pages.
const PLACES: [(usize, usize); 5] = [(0, 0), (1, 0), (0, 7), (33, 33), (7, 33)];
/// Bytes of the source, and of the target, that a list is drawn from, over those of the list: the rest stays as it is.
const POOL: usize = 2;

/// Ratios of copies in one run.
#[derive(Parser)]
struct Args {
    /// Interleaved pairs a row.
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    /// The longest single copy, in MiB; twice as much is allocated.
    #[arg(long, default_value_t = 1024)]
    most_mib: usize,
    /// Bytes of a list, in MiB; four times as much is allocated.
    #[arg(long, default_value_t = 256)]
    list_mib: usize,
    #[command(flatten)]
    save: SaveArgs,
}

fn main() -> ExitCode {
    benches::main("copies", run)
}

fn run(args: &Args) -> Result<bool> {
    let mut report = Report::default();
    let mut all_hold = single(args, &mut report)?;
    println!(
        "\nLists of blocks, each once, scattered over {POOL} times their bytes, beside memcpy:\n\n{HEAD}"
    );
    let bytes = args.list_mib << 20;
    for (block, least) in [(4 << 10, 0.9), (16 << 10, 1.0), (64 << 10, 1.0), (256 << 10, 1.0)] {
        let row = list(args, bytes, block, least, [Some(CacheHint::of_total(bytes)), None])?;
        all_hold &= report.row(&row);
    }
    println!("\nThe same by the expectation that follows from their bytes, beside the other one:\n\n{HEAD}");
    for bytes in [1 << 20, 4 << 20, bytes] {
        let hint = CacheHint::of_total(bytes);
        let other = if hint == CacheHint::Cached { CacheHint::Streamed } else { CacheHint::Cached };
        let row = list(args, bytes, 64 << 10, 1.0, [Some(hint), Some(other)])?;
        all_hold &= report.row(&row);
    }
    report.save(&args.save, "copies")?;
    Ok(all_hold)
}

/// The slowest of a single copy's places, and whether it is fast enough: by the ratio to `memcpy`, or below a page by
/// the nanoseconds that it takes longer, because a ratio says little there.
fn slowest(bytes: usize, rows: &[Row]) -> (Line, bool) {
    let what =
        format!("single copy of {} beside memcpy, the slowest of {} places", figure(bytes), rows.len());
    if bytes >= 4096 {
        let row = rows.iter().min_by(|one, other| one.ratio().total_cmp(&other.ratio()));
        let line = row.map_or_else(Line::default, Line::from);
        return (Line { what, ..line }, rows.iter().all(Row::holds));
    }
    let more = |&(ours, theirs): &(f64, f64)| bytes as f64 / ours - bytes as f64 / theirs;
    let worst = rows.iter().map(|row| median(row.pairs.iter().map(more).collect())).fold(f64::MIN, f64::max);
    let bound = Bound::AtMost(NANOSECONDS_MAX);
    (Line::single(what, "ns more", worst, bound), bound.holds(worst))
}

/// Prints a line a size, of copies between two places again and again.
fn single(args: &Args, report: &mut Report) -> Result<bool> {
    let most = args.most_mib << 20;
    let (source, mut target) = (touched(most + 4096)?, touched(most + 4096)?);
    let places = PLACES.map(|(from, to)| format!("{from} to {to}"));
    println!("Single copies beside memcpy, ratio by the places in a page from and to which they are:\n");
    println!("| bytes | memcpy, {} | {} | bound | |", places[0], places.join(" | "));
    println!("|---|---|{}---|---|", "---|".repeat(PLACES.len()));
    let sizes = (3..=30).map(|power| 1_usize << power).filter(|&bytes| bytes <= most);
    let mut all_hold = true;
    for bytes in sizes.filter(|bytes| *bytes <= 256 || bytes.trailing_zeros() % 2 == 0) {
        // Enough copies for some milliseconds, or one.
        let copies = ((512 << 20) / bytes.max(512)).max(1);
        let mut rows = Vec::new();
        for (from, to) in PLACES {
            let (source, target) = (&source[from..from + bytes], &mut target[to..to + bytes]);
            rows.push(measure("", args.pairs, SINGLE_MIN, bytes * copies, |ours| {
                let hint = ours.then_some(CacheHint::of_total(bytes));
                for _ in 0..copies {
                    copy(black_box(source), black_box(target), hint);
                }
            })?);
        }
        let memcpy = median(rows[0].pairs.iter().map(|pair| pair.1).collect());
        let ratios: Vec<_> = rows.iter().map(|row| format!("{:.2}", row.ratio())).collect();
        let (line, holds) = slowest(bytes, &rows);
        let word = if holds { "holds" } else { "DOES NOT HOLD" };
        let bound = if bytes < 4096 { line.bound.clone() + " ns more" } else { line.bound.clone() };
        println!("| {} | {memcpy:.1} GB/s | {} | {bound} | {word} |", figure(bytes), ratios.join(" | "));
        report.line(line);
        all_hold &= holds;
    }
    Ok(all_hold)
}

/// Measures a row of equal blocks in equal order on both sides, ours and theirs, each as [`copy`] takes it.
fn list(args: &Args, bytes: usize, block: usize, least: f64, sides: [Option<CacheHint>; 2]) -> Result<Row> {
    let blocks = bytes / block;
    let (source, mut target) = (touched(POOL * bytes)?, touched(POOL * bytes)?);
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    let (from, to) = (shuffled(POOL * blocks, &mut random), shuffled(POOL * blocks, &mut random));
    let rounds = ((256 << 20) / bytes).max(1);
    let beside = sides.map(|side| side.map_or("memcpy".to_owned(), |hint| format!("{hint:?}")));
    let name = format!("{blocks} blocks of {}, {}", figure(block), beside.join(" over "));
    measure(&name, args.pairs, least, bytes * rounds, |is_ours| {
        for _ in 0..rounds {
            for (&from, &to) in from.iter().zip(&to).take(blocks) {
                let (source, target) = (&source[from * block..], &mut target[to * block..]);
                copy(&source[..block], &mut target[..block], sides[usize::from(!is_ours)]);
            }
        }
    })
}

/// By the library with an expectation, else by the C library.
fn copy(source: &[u8], target: &mut [u8], ours: Option<CacheHint>) {
    match ours {
        Some(hint) => copy_slice(source, target, hint),
        None => target.copy_from_slice(source),
    }
}

/// Measures a row, by this thread's processor time, in GB/s of the `bytes` that `copies` moves; its argument says
/// whether it is our turn.
fn measure(name: &str, pairs: usize, least: f64, bytes: usize, copies: impl FnMut(bool)) -> Result<Row> {
    let copies = RefCell::new(copies);
    let side = |ours| {
        let begin = clock_gettime(ClockId::ThreadCPUTime);
        copies.borrow_mut()(ours);
        let took = clock_gettime(ClockId::ThreadCPUTime) - begin;
        let nanoseconds = took.tv_sec as f64 * 1e9 + took.tv_nsec as f64;
        Ok::<_, Box<dyn Error + Send + Sync>>(bytes as f64 / nanoseconds)
    };
    side(true)?;
    Row::measure(name, "GB/s", Bound::AtLeast(least), pairs, || side(true), || side(false))
}

/// Memory of the library's own, shared and of small pages, each of them there.
fn touched(bytes: usize) -> Result<Memory> {
    let mut memory = Memory::allocate(bytes)?;
    memory.fill(1);
    Ok(memory)
}

fn shuffled(count: usize, random: &mut u64) -> Vec<usize> {
    let mut list: Vec<_> = (0..count).collect();
    for last in (1..count).rev() {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        list.swap(last, (*random % (last as u64 + 1)) as usize);
    }
    list
}

fn figure(bytes: usize) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
