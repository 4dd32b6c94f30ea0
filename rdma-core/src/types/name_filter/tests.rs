//! Lists as NCCL reads them, and those that are refused.

use super::*;

/// The ports that a list takes, of devices with two ports each.
fn taken(list: &str) -> String {
    let filter = NameFilter::parse(list, true).unwrap_or_else(|| panic!("{list}"));
    let devices = ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_bond_0", "rxe0"];
    let ports = devices.into_iter().flat_map(|name| [1, 2].map(|port| (name, port)));
    let taken = ports.filter(|(name, port)| filter.takes(name, Some(*port)));
    taken.map(|(name, port)| format!("{name}:{port}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn lists_are_nccls() {
    for (list, names) in [
        ("mlx5_0", "mlx5_0:1 mlx5_0:2"),
        ("mlx5_1", "mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_10:2"),
        ("=mlx5_1", "mlx5_1:1 mlx5_1:2"),
        ("=mlx5_1:2,rxe0:1", "mlx5_1:2 rxe0:1"),
        ("mlx5_bond_0", "mlx5_bond_0:1 mlx5_bond_0:2"),
        ("mlx5_bond_0:1,,", "mlx5_bond_0:1"),
        ("^mlx5", "rxe0:1 rxe0:2"),
        ("^mlx5_0:1,mlx5_1,rxe,mlx5_b", "mlx5_0:2"),
        ("^=mlx5_1,mlx5_0,mlx5_bond_0,rxe0", "mlx5_10:1 mlx5_10:2"),
        ("mlx5:1,^mlx5_1", "mlx5_0:1 mlx5_bond_0:1"),
        ("mlx4", ""),
    ] {
        assert_eq!(taken(list), names, "{list}");
    }
    assert!(NameFilter::default().takes("anything", Some(9)));
    for (list, some) in [
        ("=mlx5_0:2", true),
        ("^mlx5_0:1", true),
        ("mlx5_0,^mlx5_0:1", true),
        ("^mlx5_0", false),
        ("mlx5,^mlx5_0", false),
        ("mlx5_1:1", false),
    ] {
        let filter = NameFilter::parse(list, true).unwrap();
        assert_eq!(filter.takes("mlx5_0", None), some, "some port of it: {list}");
    }
}

#[test]
fn what_is_no_list_is_refused() {
    for list in
        [",", "^", "=", "^=", "^=,", "mlx5_0:", "mlx5_0:0", "mlx5_0:256", "mlx5_0:+1", ":1", "a b", "a=b"]
    {
        assert!(NameFilter::parse(list, true).is_none(), "{list}");
    }
    assert!(NameFilter::parse(&"a,".repeat(ENTRIES_MAX + 1), true).is_none());
    // An interface may have an alias after a colon, and no port.
    assert!(NameFilter::parse("eth0:1", false).unwrap().takes("eth0:1", None));
}
