//! Limits and counts of each device, incomplete lines and arbitrary bytes.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn limits_and_counts_of_each_device() {
    let counts =
        parse("mlx5_0 hca_handle=2 hca_object=2000 \nrxe0 hca_handle=max hca_object=3 new=1\n").unwrap();
    assert_eq!(counts.len(), 2);
    assert_eq!((counts[0].hca_handle, counts[0].hca_object), (Limit::AtMost(2), Limit::AtMost(2000)));
    assert_eq!((counts[1].hca_handle, counts[1].hca_object), (Limit::Unlimited, Limit::AtMost(3)));
    assert_eq!(parse(""), Ok(vec![]));
}

#[test]
fn a_line_that_does_not_tell_all_is_refused() {
    for text in ["rxe0", "rxe0 hca_handle=1", "rxe0 hca_handle=1 hca_object=", "rxe0 hca_object", " \n"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn usage_is_of_the_device_asked_for_and_only_where_limited() {
    let counts = |text| parse(text).map_err(|_| unreachable!());
    let group = RdmaCgroup {
        limit_file: PathBuf::new(),
        max: counts("a hca_handle=max hca_object=3\nab hca_handle=1 hca_object=1\n"),
        current: counts("a hca_handle=9 hca_object=2\n"),
    };
    assert_eq!(group.usage("a", RdmaResource::HcaObject), Some((3, 2)));
    assert_eq!(group.usage("a", RdmaResource::HcaHandle), None);
    assert_eq!(group.usage("ab", RdmaResource::HcaObject), None);
    assert_eq!(group.usage("b", RdmaResource::HcaObject), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..99), tail in "\\PC*") {
        let _ = parse(&String::from_utf8_lossy(&bytes));
        let _ = parse(&format!("rxe0 hca_handle={tail} hca_object={tail}"));
    }

    #[test]
    fn lines_round_trip(device in "[a-z0-9_]{1,16}", handle: u64, object: u64) {
        let counts = parse(&format!("{device} hca_handle={handle} hca_object={object} \n")).unwrap();
        let expected = (device, Limit::AtMost(handle), Limit::AtMost(object));
        prop_assert_eq!((counts[0].device.clone(), counts[0].hca_handle, counts[0].hca_object), expected);
    }
}
