//! What this processor has for copies, found once.

#![allow(unused_unsafe, reason = "asking the processor is unsafe up to Rust 1.93 only")]
#![expect(unsafe_code, reason = "asks the processor")]

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use std::sync::OnceLock;

/// What decides between kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) avx: bool,
    pub(super) avx512: bool,
    /// Whether `rep movsb` is fast.
    pub(super) fast_rep_movsb: bool,
    /// The fewest bytes of a copy that is stored around the caches.
    pub(super) stream_from: usize,
}

impl Cpu {
    /// The one that runs this.
    pub(super) fn this() -> Self {
        static THIS: OnceLock<Cpu> = OnceLock::new();
        *THIS.get_or_init(|| Self {
            avx: is_x86_feature_detected!("avx"),
            avx512: is_x86_feature_detected!("avx512f"),
            fast_rep_movsb: has_fast_rep_movsb() && !is_emulated(),
            stream_from: stream_from_of(last_level_cache()),
        })
    }
}

/// The fewest bytes that are stored around the caches.
pub(in super::super) fn stream_from() -> usize {
    Cpu::this().stream_from
}

/// Half of the last cache: source and target then fill it, and a line that is stored is written back to memory anyway,
/// after it was fetched for nothing. No more than 16 MiB: large caches are those of many cores, or of a host that is
/// shared with other machines, and one thread has a part.
fn stream_from_of(last_level_cache: Option<usize>) -> usize {
    const MOST: usize = 16 << 20;
    last_level_cache.map_or(MOST, |bytes| (bytes / 2).clamp(1 << 20, MOST))
}

fn has_fast_rep_movsb() -> bool {
    const ERMS: u32 = 1 << 9;
    leaf(7, 0).is_some_and(|features| features.ebx & ERMS != 0)
}

/// Whether QEMU interprets the processor: it says that strings are fast, and makes them byte by byte.
fn is_emulated() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    if leaf(1, 0).is_none_or(|features| features.ecx & HYPERVISOR == 0) {
        return false;
    }
    // SAFETY: every processor of 64 bits answers; under a hypervisor this leaf is its name.
    let name = unsafe { __cpuid(0x4000_0000) };
    [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).as_flattened() == b"TCGTCGTCGTCG"
}

/// Bytes of the largest cache, as it is told by Intel's leaf or by AMD's, which look the same.
fn last_level_cache() -> Option<usize> {
    let caches = |number| (0..16).map_while(move |index| cache_bytes(leaf(number, index)?));
    caches(4).chain(caches(0x8000_001D)).max()
}

/// Bytes of the cache that a leaf describes; `None` behind the last one.
fn cache_bytes(leaf: CpuidResult) -> Option<usize> {
    let kind = leaf.eax & 0x1F;
    let one_more = |value: u32| value as usize + 1;
    let (ways, partitions, line) = (leaf.ebx >> 22, leaf.ebx >> 12 & 0x3FF, leaf.ebx & 0xFFF);
    (kind != 0).then(|| one_more(ways) * one_more(partitions) * one_more(line) * one_more(leaf.ecx))
}

/// What the processor says under a number, if it knows it.
fn leaf(number: u32, index: u32) -> Option<CpuidResult> {
    // SAFETY: every processor of 64 bits answers, and the first of a group tells the last of it.
    unsafe {
        let last = __cpuid(number & 0x8000_0000).eax;
        (number <= last).then(|| __cpuid_count(number, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_begin_at_half_of_the_last_cache_within_bounds() {
        assert_eq!(stream_from_of(Some(8 << 20)), 4 << 20);
        assert_eq!(stream_from_of(Some(480 << 20)), 16 << 20);
        assert_eq!(stream_from_of(Some(4096)), 1 << 20);
        assert_eq!(stream_from_of(None), 16 << 20);
    }

    #[test]
    fn a_leaf_tells_the_bytes_of_its_cache() {
        // 16 ways, one partition, lines of 64 bytes, 32768 sets: 32 MiB, unified, third level.
        let third = CpuidResult { eax: 0x163, ebx: 15 << 22 | 63, ecx: 32767, edx: 0 };
        assert_eq!(cache_bytes(third), Some(32 << 20));
        assert_eq!(cache_bytes(CpuidResult { eax: 0, ..third }), None);
        assert!(last_level_cache().is_none_or(|bytes| bytes >= 16 << 10), "{:?}", last_level_cache());
    }
}
