//! Raw system calls: forks, signals, filters, and limits on mappings.

use std::ffi::c_void;
use std::fs;
use std::ops::Range;
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Unmaps these pages from this process. Touching them afterwards ends the process, so it must do nothing else with
/// them.
pub fn unmap(pages: Range<usize>) {
    let start = std::ptr::with_exposed_provenance_mut::<c_void>(pages.start);
    // SAFETY: the caller's process exists to be ended, so a signal at a later use of the pages is what the test
    // expects.
    unsafe { rustix::mm::munmap(start, pages.len()) }.unwrap();
}

/// Forks a child that holds copies of all descriptors of this process, and sleeps for a minute.
pub fn fork_a_holder() -> i32 {
    // SAFETY: the child only calls `sleep` and `_exit`, so it waits for no lock of another thread and allocates
    // nothing.
    match unsafe { libc::fork() } {
        // SAFETY: both calls are safe in a forked child, because they take no lock; `_exit` does not return.
        0 => unsafe {
            libc::sleep(60);
            libc::_exit(0)
        },
        child => child,
    }
}

/// Whether `holds` is true in a forked child. It must take no lock that another thread may hold.
pub fn in_a_child(holds: impl FnOnce() -> bool) -> bool {
    // SAFETY: the caller promises that `holds` takes no lock of another thread, so the child cannot wait for ever.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(holds));
        // SAFETY: `_exit` does not return, so nothing of the parent runs in the child.
        unsafe { libc::_exit(i32::from(!matches!(held, Ok(true)))) };
    }
    let mut status = -1;
    // SAFETY: `status` is a local integer, so the call writes only to it.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status == 0
}

/// From now on, any system call of this thread ends the process by SIGSYS, except `clock_gettime`: the library reads
/// the time, which is a system call where the kernel has no vDSO clock.
pub fn forbid_system_calls() {
    let clock = libc::SYS_clock_gettime as u32;
    let statement = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut program = [
        // The number of the call is the first word that a filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, clock),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: this prctl takes numbers alone, so no memory is accessed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program pointer and its length are those of the array, which outlives the call, so the kernel reads
    // in bounds.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Mappings that take the place of others, so that no more can be made.
pub struct Mappings(Vec<Range<usize>>);

impl Drop for Mappings {
    fn drop(&mut self) {
        self.0.drain(..).for_each(unmap);
    }
}

/// Takes all mappings that this process may have, but for `left`.
pub fn take_mappings(left: usize) -> Mappings {
    let page = rustix::param::page_size();
    // Shared mappings are never merged with their neighbours.
    let flags = MapFlags::SHARED | MapFlags::NORESERVE;
    let mut taken = Vec::with_capacity(1 << 20);
    while taken.len() < taken.capacity() {
        // SAFETY: the kernel chooses a free range, so the mapping replaces nothing.
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

/// Ranges of this process that are mapped from the library's shared memfds.
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

/// Sleeps until the process is killed.
pub fn linger() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(60));
    }
}
