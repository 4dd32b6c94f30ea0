//! Pages replaced under a writer, those that cannot be replaced, and their lock.

use super::*;
use crate::memory::Mapping;

const PAGE: usize = 4096;

fn memory(pages: usize) -> (Mapping, Arc<Pages>) {
    let memory = Mapping::allocate(pages * PAGE).unwrap();
    let pages = Arc::clone(&memory.backing().unwrap().pages);
    (memory, pages)
}

fn bytes(memory: &Mapping) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    // SAFETY: only this test knows the memory, and `bytes` is as long, so nobody writes it meanwhile.
    unsafe { memory.as_ptr().as_ptr().copy_to(bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

fn fill(memory: &Mapping, with: u8) {
    // SAFETY: only this test knows the memory, so nobody else accesses it.
    unsafe { memory.as_ptr().as_ptr().write_bytes(with, memory.len()) };
}

fn page() -> u64 {
    rustix::param::page_size() as u64
}

#[test]
fn other_pages_have_the_same_bytes_and_what_is_written_to_the_old_ones_is_not_seen() {
    let (memory, pages) = memory(4 * page() as usize / PAGE);
    fill(&memory, 7);
    // SAFETY: the memory is mapped at this address, and only this test writes it, so no write is lost.
    unsafe { pages.replace(memory.as_ptr(), &[page()..2 * page(), 3 * page()..4 * page()], true) }.unwrap();
    assert!(bytes(&memory).iter().all(|byte| *byte == 7));
    assert_eq!(pages.version(), 2);
    rustix::io::pwrite(&*memory.backing().unwrap().memfd, &vec![9; memory.len()], 0).unwrap();
    let seen: Vec<u8> = bytes(&memory).chunks(page() as usize).map(|page| page[0]).collect();
    assert_eq!(seen, [9, 7, 9, 7]);
    let told = pages.patches(1);
    assert_eq!((told.len(), told[0].version, told[0].offset), (1, 2, 3 * page()));
    rustix::io::pwrite(&*told[0].memfd, &[5], 0).unwrap();
    assert_eq!(bytes(&memory)[3 * page() as usize], 5, "the pages that are told are those that are there");
}

#[test]
fn what_cannot_be_replaced_says_why() {
    let (memory, pages) = memory(1);
    // SAFETY: the memory is mapped at this address, and only this test writes it, so no write is lost.
    let refused = |range, owned| unsafe { pages.replace(memory.as_ptr(), &[range], owned) }.unwrap_err();
    assert!(matches!(refused(0..2 * page(), true), Irreplaceable::Unknown));
    assert!(matches!(refused(page()..page(), true), Irreplaceable::Unknown));
    assert_eq!(pages.version(), 0);
    pages.check(PATCHES_MAX, false).unwrap();
    assert!(matches!(pages.check(PATCHES_MAX + 1, true), Err(Irreplaceable::TooOften)));
    pages.lend_part();
    assert!(matches!(pages.check(1, false), Err(Irreplaceable::Shared)));
    assert!(matches!(refused(0..page(), false), Irreplaceable::Shared), "it was lent since the check");
    pages.check(1, true).unwrap();
    pages.lend();
    assert!(matches!(pages.check(1, true), Err(Irreplaceable::Shared)));
}

#[test]
fn whoever_holds_the_pages_is_waited_for() {
    let (memory, pages) = memory(1);
    let held = pages.hold();
    let at = memory.as_ptr().as_ptr() as usize;
    std::thread::scope(|scope| {
        let replaced = scope.spawn(|| {
            let whole = 0..page();
            // SAFETY: the memory is mapped at this address, and the only writer holds it, so no write is
            // lost.
            unsafe {
                let base = NonNull::new(std::ptr::with_exposed_provenance_mut(at)).unwrap();
                pages.replace(base, std::slice::from_ref(&whole), true)
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!replaced.is_finished());
        fill(&memory, 3);
        drop(held);
        replaced.join().unwrap().unwrap();
    });
    assert!(bytes(&memory).iter().all(|byte| *byte == 3));
}
