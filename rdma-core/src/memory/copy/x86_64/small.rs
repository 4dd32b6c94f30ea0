//! Copies of at most 128 bytes: all loads, then all stores, by what every x86-64 processor has.

#![expect(unsafe_code, reason = "copies from and to memory that a device may be writing")]

use std::arch::asm;

/// Loads from the begin and from the end, which overlap where the length is between two powers of two; then stores both.
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

/// As [`both_ends`] in vectors of 16 bytes: of each pair one at so many bytes, the other so many before the end.
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
    // SAFETY: what is loaded and stored is within `len` bytes of `from` and `to`, for the length is at
    // least as long as each of the two parts and at most as long as both. Moves change no flag, the registers written are
    // declared, the stack is not used.
    unsafe {
        if len > 64 {
            // SSE2 is a part of the architecture.
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
