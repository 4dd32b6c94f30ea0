//! Mends of each refusal to open, resident memory, and sizes of rings.

use super::*;
use crate::memory::Mapping;

#[test]
fn memory_is_resident_once_all_of_it_is_touched() {
    let len = 300 * rustix::param::page_size();
    let mapping = Mapping::allocate(len).unwrap();
    let start = mapping.as_ptr().as_ptr();
    let touch = |range: std::ops::Range<usize>| {
        for at in range.step_by(1024) {
            // SAFETY: the byte is within the mapping, which only this test uses.
            unsafe { start.add(at).write_volatile(1) };
        }
    };
    assert!(!is_resident(start as usize, len));
    touch(0..len / 2);
    assert!(!is_resident(start as usize, len));
    touch(len / 2..len);
    assert!(is_resident(start as usize, len));
    let fresh = Mapping::allocate(len).unwrap();
    let page = rustix::param::page_size() as u64;
    assert_eq!(registration(start, len).new_bytes(page), 0);
    assert_eq!(registration(fresh.as_ptr().as_ptr(), len).new_bytes(page), len as u64);
}

#[test]
fn each_refusal_to_open_has_a_mend_of_its_own() {
    let said = |errno| opening("mlx5_3", "uverbs7", io::Error::from_raw_os_error(errno)).to_string();
    for errno in [libc::EACCES, libc::EPERM, libc::ENOENT] {
        let said = said(errno);
        assert!(
            said.contains("device mlx5_3 does not open") && said.contains("/dev/infiniband/uverbs7"),
            "{said}"
        );
    }
    assert!(said(libc::EACCES).contains("let this user read and write"));
    assert!(said(libc::ENOENT).contains("modprobe ib_uverbs"));
    assert!(said(libc::ENODEV).contains("removed or reset"));
    assert!(said(libc::EMFILE).contains("ulimit -n"));
    // The explanation depends on the limits of this machine, so only its form is checked.
    assert!(said(libc::EAGAIN).contains("mend: "), "{}", said(libc::EAGAIN));
    assert!(!said(libc::EAGAIN).contains("/dev/infiniband"));
}

#[test]
fn rings_are_sized_in_powers_of_two_and_cache_lines() {
    assert_eq!(ring(100, 48), 128 * 64);
    assert_eq!(ring(128, 65), 128 * 128);
    assert_eq!(ring(0, 16), 64);
    assert!(ring(u32::MAX, u32::MAX) > 0);
}
