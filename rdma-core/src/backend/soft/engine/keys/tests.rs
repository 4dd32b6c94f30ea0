//! Keys that are drawn again, ranges to the byte, and the reason of each refusal.

use super::*;
use std::convert::Infallible;

fn table() -> (KeyTable, u32) {
    let mut keys = KeyTable::default();
    let mut drawn = [0, 77].into_iter();
    let key = keys
        .insert(Domain(1), 0x1000, 0x100, Access::LOCAL_WRITE | Access::REMOTE_WRITE, || {
            Ok::<_, Infallible>(drawn.next().unwrap())
        })
        .unwrap();
    (keys, key)
}

#[test]
fn a_key_of_zero_and_a_taken_one_are_drawn_again() {
    let (mut keys, key) = table();
    assert_eq!(key, 77);
    let mut drawn = [77, 0, 78].into_iter();
    let second = keys.insert(Domain(1), 0, 1, Access::empty(), || Ok::<_, Infallible>(drawn.next().unwrap()));
    assert_eq!(second, Ok(78));
}

#[test]
fn ranges_are_checked_to_the_byte_and_do_not_wrap() {
    let (keys, key) = table();
    let check = |addr, len| keys.check(key, Domain(1), addr, len, Access::REMOTE_WRITE).map(|_| ());
    assert_eq!(check(0x1000, 0x100), Ok(()));
    assert_eq!(check(0x10ff, 1), Ok(()));
    assert_eq!(check(0x1100, 0), Ok(()));
    for (addr, len) in
        [(0x1000, 0x101), (0x1100, 1), (0xfff, 1), (0xfff, 2), (u64::MAX, 2), (u64::MAX, u32::MAX)]
    {
        assert_eq!(check(addr, len), Err(KeyRefusal::OutOfRange), "{addr:#x} {len:#x}");
    }
}

#[test]
fn a_key_of_ranges_reaches_no_byte_between_them_and_nothing_across() {
    let (mut keys, key) = table();
    keys.restrict(key, [0x1000..0x1010, 0x1020..0x1040, 0x10f0..0x1100].into());
    let check =
        |keys: &KeyTable, addr, len| keys.check(key, Domain(1), addr, len, Access::REMOTE_WRITE).map(|_| ());
    for (addr, len) in [(0x1000, 0x10), (0x100f, 1), (0x1020, 0x20), (0x103f, 1), (0x10f0, 0x10), (0x1040, 0)]
    {
        assert_eq!(check(&keys, addr, len), Ok(()), "{addr:#x} {len:#x}");
    }
    for (addr, len) in [
        (0x1000, 0x11),
        (0x1010, 1),
        (0x101f, 2),
        (0x1000, 0x100),
        (0x1041, 0),
        (0x10ef, 1),
        (0x10f0, 0x11),
        (0xfff, 1),
        (0x1020, u32::MAX),
    ] {
        assert_eq!(check(&keys, addr, len), Err(KeyRefusal::OutOfRange), "{addr:#x} {len:#x}");
    }
    // A later registration under the same key is not limited.
    assert!(keys.remove(key).is_some());
    keys.insert(Domain(1), 0x1000, 0x100, Access::REMOTE_WRITE, || Ok::<_, Infallible>(key)).unwrap();
    assert_eq!(check(&keys, 0x1010, 1), Ok(()));
}

#[test]
fn each_refusal_has_its_reason() {
    let (mut keys, key) = table();
    let check = |keys: &KeyTable, key, domain, needs| {
        keys.check(key, Domain(domain), 0x1000, 1_u32, needs).map(|_| ())
    };
    assert_eq!(check(&keys, key, 2, Access::REMOTE_WRITE), Err(KeyRefusal::ForeignDomain));
    assert_eq!(check(&keys, key, 1, Access::REMOTE_READ), Err(KeyRefusal::AccessDenied));
    assert_eq!(check(&keys, key + 1, 1, Access::REMOTE_WRITE), Err(KeyRefusal::Unknown));
    let serial = keys.remove(key).unwrap().serial;
    assert_eq!(check(&keys, key, 1, Access::REMOTE_WRITE), Err(KeyRefusal::Unknown));
    keys.insert(Domain(1), 0x1000, 0x100, Access::empty(), || Ok::<_, Infallible>(key)).unwrap();
    assert!(!keys.is_current(key, serial));
}
