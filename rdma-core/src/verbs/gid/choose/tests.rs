//! Tables of GIDs, with the entry that is chosen and the reasons against the others.

use super::*;
use crate::Gid;
use std::net::Ipv4Addr;

fn entry(index: u32, gid: &str, kind: GidType, netdev: Option<&str>) -> GidEntry {
    let gid = match gid.parse::<Ipv4Addr>() {
        Ok(v4) => Gid::from(v4),
        Err(_) => Gid::from(gid.parse::<std::net::Ipv6Addr>().unwrap()),
    };
    GidEntry::new(index, gid, kind, netdev.map(str::to_owned))
}

fn why(chosen: &Chosen) -> Vec<(u32, GidRejection)> {
    chosen.rejected.iter().map(|(entry, why)| (entry.index, *why)).collect()
}

#[test]
fn takes_the_routable_v2_address_and_says_why_not_the_others() {
    let table = [
        entry(0, "fe80::1", GidType::ROCE_V1, Some("eth0")),
        entry(1, "fe80::1", GidType::ROCE_V2, Some("eth0")),
        entry(2, "10.0.0.9", GidType::ROCE_V1, Some("eth0")),
        entry(3, "2001:db8::1", GidType::ROCE_V2, Some("eth0")),
        entry(4, "10.0.0.8", GidType::ROCE_V2, None),
        entry(5, "10.0.0.9", GidType::ROCE_V2, Some("macvlan0")),
    ];
    let chosen = choose(PortNum(1), &table, &Preference::new(LinkLayer::ETHERNET)).unwrap();
    assert_eq!(chosen.entry.index, 5);
    assert_eq!(
        why(&chosen),
        [
            (0, GidRejection::WrongType),
            (1, GidRejection::LinkLocal),
            (2, GidRejection::WrongType),
            (3, GidRejection::RankedLower),
            (4, GidRejection::NoNetdev)
        ]
    );
    let v6 = Preference { family: Some(AddressFamily::V6), ..Preference::new(LinkLayer::ETHERNET) };
    assert_eq!(choose(PortNum(1), &table, &v6).unwrap().entry.index, 3);
}

#[test]
fn link_local_is_taken_when_it_is_all_there_is() {
    let table = [entry(0, "fe80::1", GidType::ROCE_V2, Some("eth0"))];
    assert_eq!(choose(PortNum(1), &table, &Preference::new(LinkLayer::ETHERNET)).unwrap().entry.index, 0);
}

#[test]
fn nothing_usable_names_every_entry() {
    let table =
        [entry(0, "10.0.0.1", GidType::ROCE_V2, None), entry(1, "10.0.0.1", GidType::ROCE_V1, Some("e"))];
    let error = choose(PortNum(1), &table, &Preference::new(LinkLayer::ETHERNET)).unwrap_err().to_string();
    assert!(error.contains("not in this network namespace") && error.contains("wrong type"), "{error}");
}
