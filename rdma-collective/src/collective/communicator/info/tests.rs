//! Round trips of an introduction, and the options in which two ranks differ.

use super::*;

fn introduction() -> Introduction {
    let info = RankInfo { pid: 7, host: "node-1".to_owned(), device: "mlx5_bond_0".to_owned(), soft: false };
    Introduction {
        info,
        host_id: "rack-7".to_owned(),
        host_is_named: true,
        slots: 8,
        slot_bytes: 1 << 18,
        chunk_bytes_min: 1 << 14,
        lanes: 1,
        reproducible: false,
        algorithms: Algorithms::default(),
        tuning: TableInfo::of(&Tuning::default()),
    }
}

#[test]
fn it_comes_back_and_its_pieces_do_not() {
    let bytes = introduction().encode();
    assert_eq!(Introduction::decode(&bytes, 1).unwrap(), introduction());
    for len in 0..bytes.len() {
        let error = Introduction::decode(&bytes[..len], 1).unwrap_err();
        assert!(matches!(error, CommunicatorError::Introduction { rank: 1 }), "{error}");
    }
    assert!(Introduction::decode(&[&bytes[..], b"x"].concat(), 1).is_err());
    let mut other = bytes;
    other[0] = 9;
    let error = Introduction::decode(&other, 1).unwrap_err().to_string();
    assert!(error.contains("version") && error.contains('9'), "{error}");
}

#[test]
fn names_longer_than_what_is_told_are_cut() {
    let mut long = introduction();
    long.info.host = "h".repeat(300);
    let back = Introduction::decode(&long.encode(), 0).unwrap();
    assert_eq!(back.info.host.len(), NAME_BYTES_MAX);
    let [one, other] = ["1", "2"].map(|end| shortened(&format!("{}{end}", "ä".repeat(100))));
    assert!(one != other && one.len() <= NAME_BYTES_MAX, "{one} {other}");
    assert_eq!(shortened("rack-7"), "rack-7");
}

#[test]
fn what_differs_is_named_with_both_values() {
    let ours = introduction();
    let mut theirs = introduction();
    assert!(ours.check(&theirs, 2).is_ok());
    theirs.slot_bytes = 4096;
    let error = ours.check(&theirs, 2).unwrap_err().to_string();
    assert!(error.contains("slot_bytes") && error.contains("262144") && error.contains("4096"), "{error}");
    theirs = introduction();
    theirs.reproducible = true;
    assert!(ours.check(&theirs, 2).unwrap_err().to_string().contains("reproducible"));
    theirs = introduction();
    theirs.lanes = 2;
    assert!(ours.check(&theirs, 2).unwrap_err().to_string().contains("lanes is 1 here and 2 on rank 2"));
    theirs = introduction();
    theirs.algorithms = "tree".parse().unwrap();
    let error = ours.check(&theirs, 2).unwrap_err().to_string();
    assert!(error.contains("algorithms") && error.contains("ring,tree,flat,pieces,direct"), "{error}");
    theirs = introduction();
    theirs.tuning.source = "table".to_owned();
    assert!(ours.check(&theirs, 2).is_ok(), "the same table by another name");
    theirs.tuning.digest ^= 1;
    let error = ours.check(&theirs, 2).unwrap_err().to_string();
    assert!(error.contains("tuning is built in (") && error.contains("table ("), "{error}");
    theirs = introduction();
    theirs.info.soft = true;
    assert!(ours.check(&theirs, 2).unwrap_err().to_string().contains("software device"));
}
