//! Headers of traces, right and wrong.

use proptest::prelude::*;

use super::*;

const RIGHT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in of {
        headers.append(*name, value.parse().unwrap());
    }
    headers
}

#[test]
fn headers_go_on_unchanged_and_other_headers_do_not() {
    let asked = headers(&[(PARENT, RIGHT), (STATE, "a=1"), (STATE, "b=2"), ("authorization", "secret")]);
    assert_eq!(onward(&asked), headers(&[(PARENT, RIGHT), (STATE, "a=1,b=2")]));
    assert_eq!(onward(&headers(&[(PARENT, RIGHT)])), headers(&[(PARENT, RIGHT)]));
}

#[test]
fn headers_that_break_the_rules_are_left_out_with_their_state() {
    for wrong in [
        "",
        "00",
        &RIGHT[..54],
        &RIGHT.replace("00-4b", "ff-4b"),
        &RIGHT.replace("4bf", "4BF"),
        &RIGHT.replace("4bf", "+bf"),
        &RIGHT.replace("00-4b", "0-04b"),
        &RIGHT.replace("-01", "_01"),
        &format!("{RIGHT}-"),
        &format!("{RIGHT}-more"),
        &format!("{RIGHT}0"),
        &RIGHT.replace("00-4b", "cc-4b").replace("-01", "-01.more"),
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
    ] {
        assert!(onward(&headers(&[(PARENT, wrong), (STATE, "a=1")])).is_empty(), "{wrong}");
    }
    assert!(onward(&headers(&[(PARENT, RIGHT), (PARENT, RIGHT)])).is_empty(), "two parents");
    assert!(onward(&headers(&[(STATE, "a=1")])).is_empty(), "a state without a parent");
    let later = format!("{}-more", RIGHT.replace("00-4b", "cc-4b"));
    assert_eq!(onward(&headers(&[(PARENT, &later)])), headers(&[(PARENT, &later)]), "a later version");
}

proptest! {
    #[test]
    fn a_parent_is_right_only_by_its_grammar(
        kept in 0_usize..60,
        more in "[-0-9a-fA-Fx+]{0,8}",
        version in prop::sample::select(vec!["00", "01", "cc", "fe", "ff"]),
    ) {
        let right = RIGHT.replacen("00", version, 1);
        let text = format!("{}{more}", right.get(..kept).unwrap_or(&right));
        let bytes = text.as_bytes();
        let hex = |range: std::ops::Range<usize>| {
            text.get(range).is_some_and(|digits| digits.bytes().all(|digit| b"0123456789abcdef".contains(&digit)))
        };
        let places = [2, 35, 52].iter().all(|place| bytes.get(*place) == Some(&b'-'));
        let digits = hex(0..2) && hex(3..35) && hex(36..52) && hex(53..55);
        let end = bytes.len() == 55 || version != "00" && bytes.get(55) == Some(&b'-');
        let ids = text.get(3..35).is_some_and(|id| id.contains(|digit| digit != '0'))
            && text.get(36..52).is_some_and(|id| id.contains(|digit| digit != '0'));
        let changed = !text.starts_with(version);
        prop_assume!(!changed);
        prop_assert_eq!(is_parent(bytes), places && digits && end && ids && version != "ff");
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        prop_assert!(!is_parent(&bytes) || bytes.len() >= 55);
    }
}
