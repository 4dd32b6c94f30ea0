//! Sets of capabilities and maps of user namespaces, known and unknown.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use std::os::unix::fs::symlink;

#[test]
fn the_bit_of_the_effective_set() {
    assert_eq!(parse_effective("CapPrm:\t0\nCapEff:\t000001fffeffffff\n"), Ok(true));
    assert_eq!(parse_effective("CapEff:\t0000000000004000\n"), Ok(true));
    assert_eq!(parse_effective("CapEff:\t000001fffeffbfff\n"), Ok(false));
    assert!(parse_effective("CapEff:\tzz\n").is_err());
    assert!(parse_effective("").is_err());
}

#[test]
fn the_inode_decides_and_a_partial_map_is_proof_enough() {
    let told = |user: Option<&str>, map: Option<&str>| {
        let process = tempfile::tempdir().unwrap();
        std::fs::create_dir(process.path().join("ns")).unwrap();
        if let Some(user) = user {
            symlink(user, process.path().join("ns/user")).unwrap();
        }
        if let Some(map) = map {
            std::fs::write(process.path().join("uid_map"), map).unwrap();
        }
        read_initial_user_namespace(process.path()).ok()
    };
    let (full, partial) = (Some("         0          0 4294967295\n"), Some("0 1000 1\n"));
    assert_eq!(told(Some("user:[4026531837]"), full), Some(true));
    assert_eq!(told(Some("user:[4026532000]"), full), Some(false));
    assert_eq!(told(None, partial), Some(false));
    assert_eq!(told(None, full), None);
    assert_eq!(told(Some("user:[x]"), None), None);
}

#[test]
fn the_capability_counts_only_when_both_are_known_to_hold() {
    let unknown = || Err(NotKnown::new(Path::new("/x"), "gone"));
    let lifts =
        |effective, initial_user_namespace| IpcLock { effective, initial_user_namespace }.lifts_memlock();
    assert_eq!(lifts(Ok(true), Ok(true)), Some(true));
    assert_eq!(lifts(Ok(true), Ok(false)), Some(false));
    assert_eq!(lifts(Ok(false), unknown()), Some(false));
    assert_eq!(lifts(unknown(), Ok(false)), Some(false));
    assert_eq!(lifts(Ok(true), unknown()), None);
    assert_eq!(lifts(unknown(), Ok(true)), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..99), tail in "\\PC*") {
        let text = String::from_utf8_lossy(&bytes);
        let _ = (parse_effective(&text), parse_namespace(&text), maps_every_user_to_itself(&text));
        let _ = (parse_effective(&format!("CapEff:{tail}")), parse_namespace(&format!("user:[{tail}]")));
    }

    #[test]
    fn the_bit_is_found_in_any_set(bits in any::<u64>()) {
        prop_assert_eq!(parse_effective(&format!("CapEff:\t{bits:016x}\n")), Ok(bits >> 14 & 1 == 1));
    }
}
