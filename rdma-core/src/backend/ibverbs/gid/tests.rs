//! GID tables in folders as sysfs has them.

use super::*;

/// A port's folder with the entries given as (index, gid, type, netdev).
fn port_folder(entries: &[(u32, &str, Option<&str>, Option<&str>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    };
    for (index, gid, kind, netdev) in entries {
        write(format!("gids/{index}"), gid);
        kind.iter().for_each(|kind| write(format!("gid_attrs/types/{index}"), kind));
        netdev.iter().for_each(|netdev| write(format!("gid_attrs/ndevs/{index}"), netdev));
    }
    folder
}

const EMPTY: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
const LINK_LOCAL: &str = "fe80:0000:0000:0000:0000:00ff:fe00:0001";
const MAPPED: &str = "0000:0000:0000:0000:0000:ffff:0a09:0001";

#[test]
fn sysfs_gives_filled_entries_with_types_and_interfaces_of_this_namespace() {
    let folder = port_folder(&[
        (0, LINK_LOCAL, Some("IB/RoCE v1"), Some("lo")),
        (1, MAPPED, Some("RoCE v2"), Some("elsewhere0")),
        (2, EMPTY, None, None),
        (3, "not a gid", Some("RoCE v2"), Some("lo")),
    ]);
    let table = read_sysfs(folder.path(), 5, LinkLayer::ETHERNET);
    assert_eq!(table.len(), 2, "{table:?}");
    assert_eq!((table[0].index, table[0].kind), (0, GidType::ROCE_V1));
    assert_eq!(table[0].netdev.as_deref(), Some("lo"));
    assert!(table[0].gid.is_link_local());
    assert_eq!((table[1].index, table[1].kind), (1, GidType::ROCE_V2));
    assert_eq!(table[1].netdev, None, "an interface that is not in this namespace");
    assert_eq!(table[1].gid.ipv4_mapped(), Some([10, 9, 0, 1].into()));
}

#[test]
fn sysfs_of_infiniband_has_no_types() {
    let folder = port_folder(&[(0, LINK_LOCAL, None, None)]);
    let table = read_sysfs(folder.path(), 1, LinkLayer::INFINIBAND);
    assert_eq!((table[0].kind, &table[0].netdev), (GidType::INFINIBAND, &None));
}

#[test]
fn an_interface_of_the_same_name_but_another_index_is_in_another_namespace() {
    let folder = port_folder(&[(0, MAPPED, Some("RoCE v2"), Some("lo"))]);
    let here = index_of_netdev("lo").unwrap();
    assert_eq!(netdev(folder.path(), 0, here).as_deref(), Some("lo"));
    assert_eq!(netdev(folder.path(), 0, here + 1), None);
}
