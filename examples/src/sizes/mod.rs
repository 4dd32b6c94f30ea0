//! Sizes in bytes as nccl-tests reads them: `8`, `4K`, `1M`, `2G`. Which sizes a sweep visits is [`sweep`]'s.

pub mod sweep;

use thiserror::Error;

/// The most bytes one buffer can hold: what an allocation may not exceed.
pub const SIZE_MAX: u64 = i64::MAX as u64;

/// Why a size was not understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SizeError {
    /// The text is not digits with at most one unit letter.
    #[error(
        "`{0}` is not a size: write a whole number of bytes, or one followed by K, M or G (8, 4K, 1M, 2G)"
    )]
    Syntax(String),
    /// The number is larger than a buffer can be.
    #[error("`{0}` overflows: a buffer holds at most {SIZE_MAX} bytes; write a smaller size")]
    Overflow(String),
}

/// Reads a size in bytes; K, M and G are powers of 1024, in either case.
///
/// # Errors
///
/// [`SizeError::Syntax`] for anything but digits and one unit letter, [`SizeError::Overflow`] above [`SIZE_MAX`].
///
/// ```
/// use examples::sizes::parse_size;
/// assert_eq!(parse_size("4K"), Ok(4096));
/// assert!(parse_size("9999999999G").is_err());
/// ```
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let trimmed = text.trim();
    let (digits, unit) = match trimmed.char_indices().last() {
        Some((at, 'k' | 'K')) => (&trimmed[..at], 1 << 10),
        Some((at, 'm' | 'M')) => (&trimmed[..at], 1 << 20),
        Some((at, 'g' | 'G')) => (&trimmed[..at], 1 << 30),
        _ => (trimmed, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(SizeError::Syntax(text.to_owned()));
    }
    let overflow = || SizeError::Overflow(text.to_owned());
    let number: u64 = digits.parse().map_err(|_| overflow())?; // only digits: the one error left is overflow
    number.checked_mul(unit).filter(|&bytes| bytes <= SIZE_MAX).ok_or_else(overflow)
}

/// Writes a size as [`parse_size`] reads it, in the largest unit that divides it.
///
/// ```
/// assert_eq!(examples::sizes::format_size(4096), "4K");
/// assert_eq!(examples::sizes::format_size(4097), "4097");
/// ```
pub fn format_size(bytes: u64) -> String {
    for (shift, letter) in [(30, 'G'), (20, 'M'), (10, 'K')] {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{letter}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Writes a size for people, rounded to a tenth: `512 B`, `64.0 KiB`, `1.5 GiB`.
pub fn format_rounded(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} EiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_nccl_tests_reads() {
        for (text, bytes) in [
            ("8", 8),
            ("0", 0),
            ("4K", 4096),
            ("4k", 4096),
            ("1M", 1 << 20),
            ("2G", 2 << 30),
            (" 16m ", 16 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_size() {
        for text in ["", "K", "-1", "+8", "1.5M", "4KB", "4 K", "0x10", "8é", "T", "1T"] {
            assert_eq!(parse_size(text), Err(SizeError::Syntax(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn a_size_that_overflows_is_an_error() {
        for text in ["18446744073709551616", "9223372036854775808", "8589934592G", "99999999999999999999999K"]
        {
            assert_eq!(parse_size(text), Err(SizeError::Overflow(text.to_owned())), "{text}");
        }
        assert_eq!(parse_size("9223372036854775807"), Ok(SIZE_MAX));
        assert_eq!(parse_size("8589934591G"), Ok(8_589_934_591 << 30));
    }

    #[test]
    fn rounds_for_people() {
        assert_eq!(format_rounded(512), "512 B");
        assert_eq!(format_rounded(65536), "64.0 KiB");
        assert_eq!(format_rounded(3 << 29), "1.5 GiB");
        assert_eq!(format_rounded(u64::MAX), "16.0 EiB");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes in 0..=SIZE_MAX, shift in 0u32..40) {
            let bytes = bytes >> shift << (shift % 31);
            prop_assume!(bytes <= SIZE_MAX);
            prop_assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,24}") {
            let _ = parse_size(&text);
        }
    }
}
