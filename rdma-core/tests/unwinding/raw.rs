//! Raw means to make system calls fail: filters, limits, and memory whose pages are replaced.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_core::Memory;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Makes a system call of every thread fail from now on, with EPERM, where its argument `argument` is in `values`.
pub fn refuse(call: i64, argument: u32, values: std::ops::Range<u32>) {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = libc::BPF_JMP | libc::BPF_K;
    let mut program = [
        // The number of the call is the first word that a filter sees; arguments of 8 bytes begin at 16.
        statement(load, 0, 0, 0),
        statement(jump | libc::BPF_JEQ, 0, 4, call as u32),
        statement(load, 0, 0, 16 + 8 * argument),
        statement(jump | libc::BPF_JGE, 0, 2, values.start),
        statement(jump | libc::BPF_JGE, 1, 0, values.end),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: this prctl takes numbers alone, so no memory is accessed.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
    // SAFETY: the program pointer and its length are those of the array, which outlives the call, so the kernel reads
    // in bounds.
    let set = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Runs `work` while the process may have `more` further descriptors.
pub fn with_descriptors<T>(more: u64, work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::Nofile);
    let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(free + more), ..before }).unwrap();
    let done = work();
    setrlimit(Resource::Nofile, before).unwrap();
    done
}

/// Runs `work` while the process may not map any more pages.
pub fn crowded<T>(work: impl FnOnce() -> T) -> T {
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(1), ..before }).unwrap();
    let done = work();
    setrlimit(Resource::As, before).unwrap();
    done
}

/// Whole pages within a `Vec`, which owns them.
pub struct Aligned {
    bytes: Vec<u8>,
    len: usize,
}

impl Aligned {
    pub fn new(len: usize) -> Self {
        Self { bytes: vec![7; len + 2 * rustix::param::page_size()], len }
    }
}

impl AsMut<[u8]> for Aligned {
    fn as_mut(&mut self) -> &mut [u8] {
        // The pages at either end are shared with the allocator.
        let begin = self.bytes.as_ptr().align_offset(rustix::param::page_size());
        &mut self.bytes[begin..begin + self.len]
    }
}

/// Memory of the caller on shareable pages.
pub fn shared(len: usize) -> Memory {
    // SAFETY: the pages are within a `Vec` that the memory owns, so nothing else uses them while they are replaced.
    unsafe { Memory::adopt(Aligned::new(len)).share_in_place() }
}

/// Memory from raw pointers on shareable pages. The library does not replace these pages under a stopped writer.
pub fn at_an_address(len: usize) -> Memory {
    let mut owner = Aligned::new(len);
    let data = NonNull::from(&mut owner.as_mut()[0]);
    // SAFETY: `owner` owns the bytes and is kept with the memory, so they stay; no reference to them exists.
    unsafe { Memory::from_raw_parts(data, len, Arc::new(owner)).share_in_place() }
}
