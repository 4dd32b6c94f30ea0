//! RLIMIT_MEMLOCK, and how much the process has pinned and locked.
//!
//! Reads `limits` and the `VmPin` and `VmLck` lines of `status`. Whether CAP_IPC_LOCK lifts the limit is left
//! to `capability`.

use super::reading::{Limit, Quoted, Reading, parse_number, read_as};
use std::path::Path;

/// The memory lock limit of a process, and the bytes that count against it.
///
/// `ibv_reg_mr` adds the pages that are pinned and those of the new registration, and compares the sum with
/// the soft limit, rounded down to pages. Bytes that `mlock(2)` holds are counted separately since Linux 3.2,
/// and use up nothing of it.
///
/// # References
///
/// `getrlimit(2)`, `proc_pid_status(5)`, `proc_pid_limits(5)`
///
/// A part of [`PinningSnapshot`](crate::memory::pinning::PinningSnapshot).
#[doc(alias = "RLIMIT_MEMLOCK")]
#[doc(alias = "VmPin")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memlock {
    /// The limit in force, in bytes.
    pub soft: Reading<Limit>,
    /// The value up to which the process may raise `soft` itself, in bytes.
    pub hard: Reading<Limit>,
    /// Bytes that memory registrations and other long-lived pins hold (`VmPin`).
    pub pinned_bytes: Reading<u64>,
    /// Bytes that `mlock(2)` holds (`VmLck`); they do not count against registrations.
    pub locked_bytes: Reading<u64>,
}

impl Memlock {
    pub(super) fn read(process: &Path) -> Self {
        let limits = read_as(&process.join("limits"), parse_limits);
        let status = process.join("status");
        Self {
            soft: limits.clone().map(|(soft, _)| soft),
            hard: limits.map(|(_, hard)| hard),
            pinned_bytes: read_as(&status, |text| parse_kib(text, "VmPin:")),
            locked_bytes: read_as(&status, |text| parse_kib(text, "VmLck:")),
        }
    }
}

/// Parses the soft and the hard limit from the line `Max locked memory` of `limits`.
fn parse_limits(text: &str) -> Result<(Limit, Limit), String> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let mut fields = line.ok_or("no line `Max locked memory`")?.split_ascii_whitespace();
    let mut limit = || match fields.next() {
        Some("unlimited") => Ok(Limit::Unlimited),
        Some(number) => parse_number(number).map(Limit::AtMost),
        None => Err("the line `Max locked memory` ends early".to_owned()),
    };
    Ok((limit()?, limit()?))
}

/// Parses an amount of `status` or `meminfo`, which the kernel always writes in kB, and returns bytes.
pub(super) fn parse_kib(text: &str, key: &str) -> Result<u64, String> {
    let value = text.lines().find_map(|line| line.strip_prefix(key)).ok_or(format!("no line `{key}`"))?;
    let number = value.trim().strip_suffix(" kB").ok_or(format!("{} is not in kB", Quoted(value)))?;
    parse_number(number)?.checked_mul(1024).ok_or(format!("{} kB is too many", Quoted(number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_line_of_limits() {
        let text = "Max processes             500                  600                  processes \n\
                    Max locked memory         65536                unlimited            bytes     \n";
        assert_eq!(parse_limits(text), Ok((Limit::AtMost(65536), Limit::Unlimited)));
        assert!(parse_limits("").unwrap_err().contains("no line"));
        assert!(parse_limits("Max locked memory 12").unwrap_err().contains("ends early"));
        assert!(parse_limits("Max locked memory -1 12 bytes").unwrap_err().contains("not a number"));
    }

    #[test]
    fn the_lines_of_status() {
        let text = "VmPeak:\t  10 kB\nVmLck:\t       4 kB\nVmPin:\t    1024 kB\n";
        assert_eq!(parse_kib(text, "VmPin:"), Ok(1 << 20));
        assert_eq!(parse_kib(text, "VmLck:"), Ok(4096));
        assert!(parse_kib("Name:\tx\n", "VmPin:").is_err());
        assert!(parse_kib("VmPin: 12 MB\n", "VmPin:").is_err());
        assert!(parse_kib("VmPin: 18446744073709551615 kB\n", "VmPin:").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..99), tail in "\\PC*") {
            let text = String::from_utf8_lossy(&bytes);
            let _ = parse_limits(&text);
            let _ = parse_limits(&format!("Max locked memory {tail}"));
            let _ = parse_kib(&text, "VmPin:");
            let _ = parse_kib(&format!("VmPin:{tail}"), "VmPin:");
        }

        #[test]
        fn limits_round_trip(soft in any::<u64>(), hard in any::<u64>()) {
            let text = format!("Max locked memory         {soft:<20} {hard:<20} bytes     \n");
            prop_assert_eq!(parse_limits(&text), Ok((Limit::AtMost(soft), Limit::AtMost(hard))));
        }
    }
}
