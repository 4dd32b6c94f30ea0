//! Lines of `limits` and `status`, and arbitrary bytes.

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
