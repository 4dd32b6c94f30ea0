//! Copies of at most 128 bytes, by instructions that every x86-64 processor has.
//!
//! All loads come before the first store, so the ranges may overlap.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::arch::asm;

/// Copies two words, one from each end. They overlap unless the length is twice the width, so one branch
/// covers all lengths from the width to twice the width.
macro_rules! both_ends {
    ($from:expr, $to:expr, $len:expr, $width:literal, $bytes:literal) => {
        asm!(
            concat!("mov {begin", $width, "}, [{from}]"),
            concat!("mov {end", $width, "}, [{from} + {len} - ", $bytes, "]"),
            concat!("mov [{to}], {begin", $width, "}"),
            concat!("mov [{to} + {len} - ", $bytes, "], {end", $width, "}"),
            from = in(reg) $from,
            to = in(reg) $to,
            len = in(reg) $len,
            begin = out(reg) _,
            end = out(reg) _,
            options(nostack, preserves_flags),
        )
    };
}

/// Copies pairs of 16-byte vectors: one at `$at` bytes from the begin, the other at `$back` bytes before the
/// end. Like [`both_ends`], pairs overlap where the length is not a power of two.
macro_rules! both_ends_in_vectors {
    ($from:expr, $to:expr, $len:expr, $([$begin:ident, $end:ident, $at:literal, $back:literal]),+) => {
        asm!(
            $(concat!("movups {", stringify!($begin), "}, [{from} + ", $at, "]"),
            concat!("movups {", stringify!($end), "}, [{from} + {len} - ", $back, "]"),)+
            $(concat!("movups [{to} + ", $at, "], {", stringify!($begin), "}"),
            concat!("movups [{to} + {len} - ", $back, "], {", stringify!($end), "}"),)+
            from = in(reg) $from,
            to = in(reg) $to,
            len = in(reg) $len,
            $($begin = out(xmm_reg) _, $end = out(xmm_reg) _,)+
            options(nostack, preserves_flags),
        )
    };
}

/// Copies at most 128 bytes between ranges that may overlap.
///
/// # Safety
///
/// `from` is valid for reads and `to` for writes of `len` bytes, and `len` is at most 128.
#[inline]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: `len` is at least as long as each part and at most as long as all parts together, so every
    // access is within the ranges and no byte is left out. Moves change no flag, the registers are declared,
    // and the stack is not used.
    unsafe {
        if len > 64 {
            // `movups` needs SSE2, which is part of x86-64.
            both_ends_in_vectors!(
                from,
                to,
                len,
                [a, b, 0, 16],
                [c, d, 16, 32],
                [e, f, 32, 48],
                [g, h, 48, 64]
            );
        } else if len > 32 {
            both_ends_in_vectors!(from, to, len, [a, b, 0, 16], [c, d, 16, 32]);
        } else if len > 16 {
            both_ends_in_vectors!(from, to, len, [a, b, 0, 16]);
        } else if len >= 8 {
            both_ends!(from, to, len, ":r", 8);
        } else if len >= 4 {
            both_ends!(from, to, len, ":e", 4);
        } else if len >= 2 {
            both_ends!(from, to, len, ":x", 2);
        } else if len == 1 {
            both_ends!(from, to, len, ":l", 1);
        }
    }
}
