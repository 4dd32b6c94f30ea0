//! Each kernel by itself, whichever the processor would choose, and the choice for other processors.

use super::super::tests::pattern;
use super::*;

const CPU: Cpu =
    Cpu { avx: true, avx512: false, fast_rep_movsb: true, stream_from: 1 << 20, slow_streams: false };

/// Returns the kernels that this processor can run.
fn kernels() -> Vec<Kernel> {
    let all = [
        Kernel::Memmove,
        Kernel::LoopSse2,
        Kernel::RepMovsb,
        Kernel::StreamSse2,
        Kernel::LoopAvx,
        Kernel::StreamAvx,
        Kernel::StreamAvx512,
    ];
    let runs = |kernel: &Kernel| match kernel {
        Kernel::LoopAvx | Kernel::StreamAvx => is_x86_feature_detected!("avx"),
        Kernel::StreamAvx512 => is_x86_feature_detected!("avx512f"),
        _ => true,
    };
    all.into_iter().filter(runs).collect()
}

/// Returns the shortest copy that a kernel may be used for, in bytes.
fn least(kernel: Kernel) -> usize {
    match kernel {
        Kernel::StreamSse2 | Kernel::StreamAvx | Kernel::StreamAvx512 => 192,
        _ => SMALL_BYTES_MAX + 1,
    }
}

/// Copies between two buffers by one kernel and checks the bytes before and behind the target, too.
fn check(kernel: Kernel, source: &[u8], len: usize, from: usize, to: usize) {
    const GUARD: u8 = 0xA5;
    let mut target = vec![GUARD; to + len + 128];
    let source = &source[from..from + len];
    // SAFETY: both ranges are inside their buffers, and `kernels` lists only kernels that this processor can
    // run.
    unsafe { kernel.copy(source.as_ptr(), target.as_mut_ptr().add(to), len) };
    let (before, rest) = target.split_at(to);
    let (copied, behind) = rest.split_at(len);
    assert!(copied == source, "{kernel:?}: {len} bytes from {from} to {to}");
    assert!(
        before.iter().chain(behind).all(|&byte| byte == GUARD),
        "{kernel:?}: {len} bytes from {from} to {to}"
    );
}

#[test]
fn every_kernel_copies_every_length_up_to_4_kib() {
    let source = pattern(8192);
    for kernel in kernels() {
        for len in least(kernel)..=4096 + 256 {
            check(kernel, &source, len, len % 67, len % 61);
        }
    }
}

#[test]
fn every_kernel_copies_from_and_to_every_alignment() {
    let source = pattern(8192);
    for kernel in kernels() {
        for (from, to) in (0..64).flat_map(|from| (0..64).map(move |to| (from, to))) {
            check(kernel, &source, least(kernel) + (from * 7 + to) % 300, from, to);
        }
    }
}

#[test]
fn every_kernel_copies_long_ranges() {
    let source = pattern((4 << 20) + 8192);
    for kernel in kernels() {
        for len in [8 << 10, 16 << 10, 64 << 10, 4 << 20] {
            for (len, from, to) in [(len, 0, 0), (len - 1, 1, 33), (len + 1, 7, 64), (len + 4095, 33, 1)] {
                check(kernel, &source, len, from, to);
            }
        }
    }
}

#[test]
fn the_kernel_follows_from_length_expectation_and_processor() {
    use CacheHint::{Cached, Streamed};
    let choose = |cpu, len, hint| Kernel::choose(cpu, len, hint, true);
    assert_eq!(choose(CPU, SMALL_BYTES_MAX + 1, Cached), Kernel::LoopAvx);
    assert_eq!(choose(CPU, LOOP_BYTES_MAX, Cached), Kernel::LoopAvx);
    assert_eq!(choose(CPU, LOOP_BYTES_MAX + 1, Cached), Kernel::RepMovsb);
    assert_eq!(choose(CPU, CPU.stream_from - 1, Cached), Kernel::RepMovsb);
    assert_eq!(choose(CPU, CPU.stream_from, Cached), Kernel::StreamAvx);
    assert_eq!(choose(CPU, STREAM_BYTES_MIN - 1, Streamed), Kernel::LoopAvx);
    assert_eq!(choose(CPU, STREAM_BYTES_MIN, Streamed), Kernel::StreamAvx);

    let newest = Cpu { avx512: true, ..CPU };
    assert_eq!(choose(newest, CPU.stream_from, Cached), Kernel::StreamAvx512);
    assert_eq!(choose(newest, STREAM_BYTES_MIN, Streamed), Kernel::StreamAvx512);
    assert_eq!(choose(newest, LOOP_BYTES_MAX, Cached), Kernel::LoopAvx);

    let skylake = Cpu { slow_streams: true, ..newest };
    assert_eq!(choose(skylake, CPU.stream_from, Cached), Kernel::LoopAvx);
    assert_eq!(choose(skylake, 64 << 10, Streamed), Kernel::LoopAvx);
    assert_eq!(choose(skylake, 64 << 10, Cached), Kernel::RepMovsb);

    let slow_rep_movsb = Cpu { fast_rep_movsb: false, ..CPU };
    assert_eq!(choose(slow_rep_movsb, CPU.stream_from - 1, Cached), Kernel::LoopAvx);
    let oldest = Cpu { avx: false, ..slow_rep_movsb };
    assert_eq!(choose(oldest, CPU.stream_from - 1, Cached), Kernel::LoopSse2);
    assert_eq!(choose(oldest, CPU.stream_from, Cached), Kernel::StreamSse2);
    assert_eq!(choose(Cpu { fast_rep_movsb: true, ..oldest }, 64 << 10, Cached), Kernel::RepMovsb);
}

#[test]
fn ranges_that_overlap_are_left_to_the_c_library() {
    for len in [SMALL_BYTES_MAX + 1, 64 << 10, CPU.stream_from] {
        for hint in [CacheHint::Cached, CacheHint::Streamed] {
            assert_eq!(Kernel::choose(CPU, len, hint, false), Kernel::Memmove);
        }
    }
}

#[test]
fn strings_are_not_taken_where_the_target_is_a_little_behind_the_source_in_its_page() {
    let page = 7 * 4096;
    for (from, to, expected) in [
        (0, page, false),
        (0, page + 1, true),
        (0, page + 16, true),
        (0, page + 63, true),
        (0, page + 64, false),
        (16, page, false),
        (4090, page + 10, true),
        (page + 4090, 10, true),
        (page, 16, true),
    ] {
        assert_eq!(has_4k_aliasing(from, to), expected, "{from} to {to}");
    }
}
