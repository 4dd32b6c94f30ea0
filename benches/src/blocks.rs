//! A list of blocks of one piece of memory, written to those of another, in one go or all over the place.

use rdma_core::error::RangeError;
use rdma_core::memory::{CacheHint, copy_slice};
use rdma_core::{Deadline, Wire, Work};

use crate::pair;
use crate::samples::median_of;
use crate::soft::{Outcome, PATIENCE, connect};

/// Requests that may be outstanding.
const DEPTH: u32 = 128;
/// Writes for each completion, so that the queue never fills.
const SIGNAL_EVERY: usize = 64;

/// Blocks, and where each goes. All numbers are powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Bytes of each memory.
    pub bytes: usize,
    /// Bytes of a block.
    pub block: usize,
    /// How often the list is gone through.
    pub times: usize,
    /// Writes of one doorbell.
    pub batch: usize,
    /// Whether each block goes from somewhere to somewhere else; or all are in order.
    pub scattered: bool,
}

impl List {
    /// A message over and over, from one place to one place, about 1 MiB in all.
    #[must_use]
    pub fn one(bytes: usize) -> Self {
        Self { bytes, block: bytes, times: (1_usize << 20).div_ceil(bytes), batch: 1, scattered: false }
    }

    /// Every block: where it is, and where it goes.
    fn offsets(self) -> impl Iterator<Item = (usize, usize)> {
        let count = self.bytes / self.block;
        (0..count * self.times).map(move |at| {
            let at = at & (count - 1);
            let (from, to) = if self.scattered {
                (permuted(at, count, 0x9E37_79B1), permuted(at, count, 0x85EB_CA77))
            } else {
                (at, at)
            };
            (from * self.block, to * self.block)
        })
    }

    /// Bytes that are moved.
    #[must_use]
    pub fn moved(self) -> usize {
        self.bytes * self.times
    }
}

/// Where `at` is in an order of `count`, a power of two, that `odd` gives.
fn permuted(at: usize, count: usize, odd: usize) -> usize {
    let (mask, half) = (count - 1, count.ilog2() / 2);
    let at = at.wrapping_mul(odd) & mask;
    (at ^ at >> half.max(1)).wrapping_mul(odd) & mask
}

/// Writes the list to the other end, over and over, and says the seconds of once.
///
/// # Errors
///
/// When the device refuses, or a write fails.
pub fn write(wire: Wire, list: List) -> Outcome<()> {
    let mut end = connect(wire, list.bytes, DEPTH)?;
    let source = end.worker.attach(&end.region);
    end.region.copy_in(0, &vec![1; list.bytes])?;
    let blocks: Vec<_> = list.offsets().collect();
    // A message that goes to one place over and over stands alone.
    let hint = CacheHint::of_total(list.bytes);
    let seconds = median_of(|| {
        let mut left = blocks.len();
        for blocks in blocks.chunks(SIGNAL_EVERY) {
            let mut last = None;
            for blocks in blocks.chunks(list.batch) {
                let works = blocks.iter().map(|&(from, to)| {
                    left -= 1;
                    let target = end.peer.slice(to as u64..(to + list.block) as u64)?;
                    let work = Work::write(source.range(from, list.block), target).with_cache_hint(hint);
                    let signalled = left.is_multiple_of(SIGNAL_EVERY);
                    Ok::<_, RangeError>(if signalled { work } else { work.unsignalled() })
                });
                if list.batch == 1 {
                    for work in works {
                        last = Some(end.worker.post(&end.qp, work?)?);
                    }
                    continue;
                }
                let mut batch = end.worker.batch(&end.qp);
                for work in works {
                    last = Some(batch.push(work?)?);
                }
                batch.submit()?;
            }
            let deadline = Deadline::after(PATIENCE);
            while last.is_some() {
                let Some(done) = end.worker.poll()? else {
                    if deadline.expired() {
                        return Err("no completion for a minute".into());
                    }
                    continue;
                };
                done.result?;
                last = last.filter(|last| *last != done.id);
            }
        }
        Ok(())
    })?;
    pair::say(&seconds.to_string())?;
    Ok(())
}

/// Is written to, all of it.
///
/// # Errors
///
/// When the device refuses, or something was not written.
pub fn be_written(wire: Wire, list: List) -> Outcome<()> {
    let end = connect(wire, list.bytes, 1)?;
    end.region.copy_in(0, &vec![2; list.bytes])?;
    pair::stay()?;
    let mut written = vec![0; list.bytes];
    end.region.copy_out(0, &mut written)?;
    match written.iter().position(|byte| *byte != 1) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of {} was not written", list.bytes).into()),
    }
}

/// The seconds that one thread takes to copy the list inside this process, by `memcpy`.
///
/// # Errors
///
/// None: it is as other measurements are.
pub fn copy(list: List) -> Outcome<f64> {
    copy_by(list, <[u8]>::copy_from_slice)
}

/// The seconds that one thread takes for such copies around the caches, as the library makes them.
///
/// # Errors
///
/// None: it is as other measurements are.
pub fn copy_around_caches(list: List) -> Outcome<f64> {
    copy_by(list, |target, source| copy_slice(source, target, CacheHint::Streamed))
}

fn copy_by(list: List, copy: impl Fn(&mut [u8], &[u8])) -> Outcome<f64> {
    let (source, mut target) = (vec![1_u8; list.bytes], vec![2_u8; list.bytes]);
    let blocks: Vec<_> = list.offsets().collect();
    median_of(|| {
        for &(from, to) in &blocks {
            copy(&mut target[to..to + list.block], &source[from..from + list.block]);
            std::hint::black_box(&mut target);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_comes_from_somewhere_and_goes_somewhere_once() {
        for count in [1, 2, 4, 64, 4096, 65536] {
            let list = List { bytes: count * 16, block: 16, times: 1, batch: 1, scattered: true };
            let (mut from, mut to): (Vec<_>, Vec<_>) = list.offsets().unzip();
            assert!(count < 64 || from != to);
            for offsets in [&mut from, &mut to] {
                offsets.sort_unstable();
                assert!(offsets.iter().copied().eq((0..count).map(|at| at * 16)), "{count}");
            }
        }
    }

    #[test]
    fn one_message_comes_to_a_mebibyte_or_itself() {
        assert_eq!((List::one(1 << 16).moved(), List::one(1 << 24).moved()), (1 << 20, 1 << 24));
        assert!(List::one(8).offsets().all(|offsets| offsets == (0, 0)));
    }
}
