//! Features of this processor that matter for copies, detected once.

#![allow(unused_unsafe, reason = "asking the processor is unsafe up to Rust 1.93 only")]
#![expect(unsafe_code, reason = "asks the processor")]

use std::arch::x86_64::{__cpuid, __cpuid_count, CpuidResult};
use std::sync::OnceLock;

/// Features that decide between kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cpu {
    pub(super) avx: bool,
    pub(super) avx512: bool,
    /// `rep movsb` is fast (ERMS), and is not emulated.
    pub(super) fast_rep_movsb: bool,
    /// The shortest copy that is stored around the caches without a hint, in bytes.
    pub(super) stream_from: usize,
    /// A core stores more slowly around the caches than through them.
    pub(super) slow_streams: bool,
}

impl Cpu {
    /// Returns the features of this processor. All cores are assumed to be alike.
    pub(super) fn this() -> Self {
        // Asked only once, because `cpuid` traps to the hypervisor in a virtual machine.
        static THIS: OnceLock<Cpu> = OnceLock::new();
        *THIS.get_or_init(|| Self {
            avx: is_x86_feature_detected!("avx"),
            avx512: is_x86_feature_detected!("avx512f"),
            fast_rep_movsb: has_fast_rep_movsb() && !is_emulated(),
            stream_from: stream_from_of(last_level_cache()),
            slow_streams: leaf(0, 0)
                .zip(leaf(1, 0))
                .is_some_and(|(vendor, model)| is_skylake_server(vendor, model)),
        })
    }
}

/// Returns the shortest copy that is stored around the caches, in bytes.
pub(in super::super) fn stream_from() -> usize {
    Cpu::this().stream_from
}

/// Returns half of the last-level cache: source and target then fill it. From there on a stored line is
/// written back to memory anyway, so fetching it first was in vain.
///
/// At most 16 MiB, because a larger cache is shared by many cores, or by virtual machines, and one thread
/// gets a part.
fn stream_from_of(last_level_cache: Option<usize>) -> usize {
    const MOST: usize = 16 << 20;
    last_level_cache.map_or(MOST, |bytes| (bytes / 2).clamp(1 << 20, MOST))
}

fn has_fast_rep_movsb() -> bool {
    const ERMS: u32 = 1 << 9;
    leaf(7, 0).is_some_and(|features| features.ebx & ERMS != 0)
}

/// Returns whether this is one of Intel's servers with a Skylake core: Skylake, Cascade Lake or Cooper Lake.
///
/// Measured on a Cascade Lake at 2.5 GHz, scattered blocks of 4, 16, 64 and 256 KiB, in GB/s: around the caches 3.0,
/// 4.2, 4.7 and 4.8, by a loop of vectors 4.0, 4.9, 5.2 and 5.4. Servers from Sapphire Rapids on, and AMD's, are the
/// other way round.
fn is_skylake_server(vendor: CpuidResult, model: CpuidResult) -> bool {
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
    let (family, number) = (model.eax >> 8 & 0xF, model.eax >> 12 & 0xF0 | model.eax >> 4 & 0xF);
    name.as_flattened() == b"GenuineIntel" && (family, number) == (6, 0x55)
}

/// Returns whether QEMU's TCG interprets the processor. TCG reports ERMS but copies byte by byte.
fn is_emulated() -> bool {
    const HYPERVISOR: u32 = 1 << 31;
    if leaf(1, 0).is_none_or(|features| features.ecx & HYPERVISOR == 0) {
        return false;
    }
    // SAFETY: every 64-bit processor has `cpuid`. Under a hypervisor this leaf is defined, and returns its
    // name only.
    let name = unsafe { __cpuid(0x4000_0000) };
    [name.ebx, name.ecx, name.edx].map(u32::to_le_bytes).as_flattened() == b"TCGTCGTCGTCG"
}

/// Returns the size of the largest cache in bytes, from Intel's leaf 4 or AMD's leaf 0x8000_001D, which have
/// one layout.
fn last_level_cache() -> Option<usize> {
    let caches = |number| (0..16).map_while(move |index| cache_bytes(leaf(number, index)?));
    caches(4).chain(caches(0x8000_001D)).max()
}

/// Returns the size of the cache that a leaf describes, in bytes; `None` after the last cache.
fn cache_bytes(leaf: CpuidResult) -> Option<usize> {
    let kind = leaf.eax & 0x1F;
    let one_more = |value: u32| value as usize + 1;
    let (ways, partitions, line) = (leaf.ebx >> 22, leaf.ebx >> 12 & 0x3FF, leaf.ebx & 0xFFF);
    (kind != 0).then(|| one_more(ways) * one_more(partitions) * one_more(line) * one_more(leaf.ecx))
}

/// Returns a leaf of `cpuid`; `None` when the processor does not have it.
fn leaf(number: u32, index: u32) -> Option<CpuidResult> {
    // SAFETY: every 64-bit processor has `cpuid`, and the first leaf of a group returns the last one, so
    // `number` is defined.
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
    fn servers_with_a_skylake_core_are_told_apart() {
        let [ebx, edx, ecx] = [*b"Genu", *b"ineI", *b"ntel"].map(u32::from_le_bytes);
        let (intel, none) =
            (CpuidResult { eax: 0, ebx, ecx, edx }, CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 });
        let model = |eax: u32| CpuidResult { eax, ..none };
        assert!(is_skylake_server(intel, model(0x0005_0657)), "Cascade Lake");
        assert!(!is_skylake_server(none, model(0x0005_0657)), "not Intel's");
        assert!(!is_skylake_server(intel, model(0x0008_06f8)), "Sapphire Rapids");
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
