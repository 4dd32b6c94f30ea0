//! Numbers and bytes as text, and files that are missing or never end.

use super::*;
use proptest::prelude::*;

#[test]
fn bytes_are_exact_and_human() {
    let shown = |n| Bytes(n).to_string();
    assert_eq!(shown(0), "0 bytes");
    assert_eq!(shown(1023), "1023 bytes");
    assert_eq!(shown(1024), "1024 bytes (1 KiB)");
    assert_eq!(shown(1536), "1536 bytes (1.5 KiB)");
    assert_eq!(shown(8 << 20), "8388608 bytes (8 MiB)");
    assert_eq!(shown(u64::MAX), "18446744073709551615 bytes (16.0 EiB)");
}

#[test]
fn a_file_that_never_ends_is_not_known() {
    let reading = read_as(Path::new("/dev/zero"), |text| Ok(text.len()));
    assert_eq!(reading.unwrap_err().to_string(), "not known (/dev/zero: longer than 4194304 bytes)");
}

#[test]
fn a_missing_file_says_so() {
    let missing = read_as(Path::new("/nowhere/at/all"), parse_number).unwrap_err();
    assert_eq!(missing.path, Path::new("/nowhere/at/all"));
    assert!(missing.why.contains("No such file"), "{missing}");
}

#[test]
fn messages_do_not_quote_a_screenful() {
    let long = parse_number(&"x\n".repeat(1000)).unwrap_err();
    assert!(long.len() < 120, "{long}");
}

proptest! {
    #[test]
    fn shortfall_is_what_is_missing(most in any::<u64>(), used in any::<u64>(), need in any::<u64>()) {
        let oracle = (u128::from(used) + u128::from(need)).min(u128::from(u64::MAX));
        let oracle = oracle.saturating_sub(u128::from(most));
        prop_assert_eq!(u128::from(Limit::AtMost(most).shortfall(used, need)), oracle);
        prop_assert_eq!(Limit::Unlimited.shortfall(used, need), 0);
    }

    #[test]
    fn numbers_round_trip_and_nothing_else_parses(number in any::<u64>(), junk in "\\PC*") {
        prop_assert_eq!(parse_number(&format!(" {number}\n")), Ok(number));
        let digits = !junk.trim().is_empty() && junk.trim().bytes().all(|b| b.is_ascii_digit());
        prop_assert!(digits || parse_number(&junk).is_err());
    }
}
