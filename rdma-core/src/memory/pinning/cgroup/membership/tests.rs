//! Lines of both versions, malformed lines and arbitrary bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn a_v1_controller_wins_over_the_unified_hierarchy() {
    let groups = parse("5:rdma:/a\n4:cpu,memory:/b:c\n1:name=systemd:/s\n0::/u\n").unwrap();
    assert_eq!(find(&groups, "rdma"), Some((Version::V1, "/a")));
    assert_eq!(find(&groups, "memory"), Some((Version::V1, "/b:c")));
    assert_eq!(find(&groups, "pids"), Some((Version::V2, "/u")));
    assert_eq!(find(&parse("4:cpu:/b\n").unwrap(), "rdma"), None);
}

#[test]
fn malformed_lines_are_refused() {
    for text in ["x", "0:", "0::", "0::relative", "0::/\n\n"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        if let Ok(groups) = parse(&String::from_utf8_lossy(&bytes)) {
            let _ = find(&groups, "memory");
        }
    }

    #[test]
    fn lines_round_trip(number in 1..20_u32, group in "/[ -~]{0,30}") {
        let text = format!("{number}:memory:{group}\n");
        let groups = parse(&text).unwrap();
        prop_assert_eq!(find(&groups, "memory"), Some((Version::V1, group.as_str())));
    }
}
