//! Limits of both versions, groups that cannot be read, and arbitrary bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

#[test]
fn limits_of_both_versions() {
    assert_eq!(parse_limit("max\n"), Ok(Limit::Unlimited));
    assert_eq!(parse_limit("9223372036854771712\n"), Ok(Limit::Unlimited));
    assert_eq!(parse_limit("1073741824\n"), Ok(Limit::AtMost(1 << 30)));
    assert!(parse_limit("maximum\n").is_err());
    assert!(parse_limit("").is_err());
}

#[test]
fn names_of_stat_are_whole_words() {
    let text = "active_file_x 1\ninactive_file 20\nactive_file 3\n";
    assert_eq!(parse_stat(text, ["active_file", "inactive_file"]), Ok(23));
    assert!(parse_stat("active_file 3\n", ["active_file", "inactive_file"]).is_err());
}

#[test]
fn a_group_that_cannot_be_read_is_not_known_to_refuse_or_to_admit() {
    let group = MemoryCgroup::read(Version::V2, Path::new("/nowhere").to_owned());
    assert!(group.limit.is_err() && group.used_bytes.is_err() && group.reclaimable_bytes.is_err());
    assert_eq!(group.shortfall_bytes(u64::MAX), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..99), tail in "\\PC*") {
        let text = String::from_utf8_lossy(&bytes);
        let _ = (parse_limit(&text), parse_stat(&text, ["active_file", "inactive_file"]));
        let _ = parse_stat(&format!("a {tail}\nb {tail}"), ["a", "b"]);
    }

    #[test]
    fn a_limit_is_what_was_written(bytes in 0..V1_UNLIMITED) {
        prop_assert_eq!(parse_limit(&format!("{bytes}\n")), Ok(Limit::AtMost(bytes)));
    }
}
