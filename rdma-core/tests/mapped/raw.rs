//! System calls that no library offers safely, and what these tests take from them.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Takes these pages from this process. To touch them ends it, so it must do nothing else with them.
pub fn unmap(pages: Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(pages.start);
    // SAFETY: whoever still uses the pages gets a signal, and the caller's process is there to be ended.
    unsafe { rustix::mm::munmap(start, pages.len()) }.unwrap();
}

/// A child of this process that holds all of its descriptors, and does nothing but that for a minute.
pub fn fork_a_holder() -> i32 {
    // SAFETY: the child calls nothing that waits for another thread or takes memory.
    match unsafe { libc::fork() } {
        // SAFETY: as above, and the second does not return.
        0 => unsafe {
            libc::sleep(60);
            libc::_exit(0)
        },
        child => child,
    }
}

/// Whether `holds` says so in a child of this process. It takes no lock that another thread may have.
pub fn in_a_child(holds: impl FnOnce() -> bool) -> bool {
    // SAFETY: what the child calls waits for no other thread: the C library's allocator is whole after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(holds));
        // SAFETY: it does not return.
        unsafe { libc::_exit(i32::from(!matches!(held, Ok(true)))) };
    }
    let mut status = -1;
    // SAFETY: it takes the place of a number.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// From now on a system call of this thread ends the process by SIGSYS. What the library asks the time by is none where
/// the kernel lends it a clock.
pub fn forbid_system_calls() {
    let clock = libc::SYS_clock_gettime as u32;
    let statement = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut program = [
        // The number of the call is the first word of what a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, clock),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: it takes numbers alone.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its length are those of the array.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Mappings that are there so that no more can be made.
pub struct Mappings(Vec<Range<usize>>);

impl Drop for Mappings {
    fn drop(&mut self) {
        self.0.drain(..).for_each(unmap);
    }
}

/// Takes all mappings that this process may have, but for so many.
pub fn take_mappings(left: usize) -> Mappings {
    let page = rustix::param::page_size();
    // Shared ones are never joined with their neighbours.
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let mut taken = Vec::with_capacity(1 << 20);
    while taken.len() < taken.capacity() {
        // SAFETY: a mapping at an address of the kernel's choice overlaps nothing.
        let Ok(at) = (unsafe { mmap_anonymous(std::ptr::null_mut(), page, ProtFlags::empty(), flags) })
        else {
            break;
        };
        let at = at.expose_provenance();
        taken.push(at..at + page);
    }
    taken.drain(taken.len() - left..).for_each(unmap);
    Mappings(taken)
}

/// Where memory is mapped that this library shares.
pub fn shared_mappings() -> Vec<Range<usize>> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("memfd:rdma"));
    let range = |line: &str| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        usize::from_str_radix(start, 16).unwrap()..usize::from_str_radix(end, 16).unwrap()
    };
    shared.map(range).collect()
}

/// Does nothing until it is killed.
pub fn linger() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}
