//! System calls: children by `fork`, here and in a new pid namespace, and how they end. Calls that are unsafe.

use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma_core::memory::InPlace;
use rdma_core::{Access, Memory};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// The kind of child that makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Forked,
    /// The first process of a new pid namespace, so that its pid is 1.
    InNamespace,
}

/// The library's promise: a call in a child takes no longer.
const PROMISED: Duration = Duration::from_secs(1);
/// The promised time where there is a device: in an emulated machine, threads of the parent keep all processors busy.
const PROMISED_ON_DEVICE: Duration = Duration::from_secs(5);
/// Children that make a call, at most, until one ends in the promised time. A call that waits is slow in each of them.
const CHILDREN_MAX: usize = 10;
/// Time after which a child hangs.
const BOUND: Duration = Duration::from_secs(30);

/// The end of a child.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
    /// The child was killed after this time.
    Hung(Duration),
    /// Each child took longer than promised.
    Slow,
}

/// The exit code of a child that panicked.
pub const PANICKED: i32 = 99;

/// Makes a child that runs `run` on its copy of `value` and exits with the result; waits for its end.
pub fn in_child<T>(kind: Kind, value: &T, run: impl FnOnce(T) -> i32) -> End {
    if kind == Kind::InNamespace {
        enter_namespace();
    }
    // SAFETY: the child runs only `run`, which is there to show that it waits for no lock of another thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: only the child uses this copy, and the original is never dropped there, because the child ends below.
        let copy = unsafe { std::ptr::read(value) };
        let code = catch_unwind(AssertUnwindSafe(|| run(copy))).unwrap_or(PANICKED);
        // SAFETY: `_exit` must end the child, because exit handlers and destructors belong to the parent.
        unsafe { libc::_exit(code) };
    }
    if kind == Kind::InNamespace {
        leave_namespace();
    }
    wait(Pid::from_raw(child).expect("the kernel makes a child"))
}

/// Makes a child that must end in the time that is promised, and others in its place if it does not: other processes of
/// a busy machine, or of an emulated one with a single processor, may have come first.
pub fn in_child_in_time<T>(kind: Kind, value: &T, run: impl Fn(T) -> i32) -> End {
    let has_device = std::env::var_os("ROCE_DEVICE").is_some();
    let promised = if has_device { PROMISED_ON_DEVICE } else { PROMISED };
    for _ in 0..CHILDREN_MAX {
        let begin = Instant::now();
        let end = in_child(kind, value, &run);
        if begin.elapsed() < promised || !matches!(end, End::Exit(_)) {
            return end;
        }
    }
    End::Slow
}

/// Whether this process may make pid namespaces. Says so if not.
pub fn may_make_namespaces() -> bool {
    let may = rustix::process::geteuid().is_root() && in_child_that_unshares();
    if !may {
        println!("children in a new pid namespace are left out: this process may not make one");
    }
    may
}

fn in_child_that_unshares() -> bool {
    // SAFETY: the child makes two system calls, so it waits for no lock.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `unshare` changes only the child, which must end by `_exit`.
        unsafe { libc::_exit(i32::from(libc::unshare(libc::CLONE_NEWPID) != 0)) };
    }
    wait(Pid::from_raw(child).expect("the kernel makes a child")) == End::Exit(0)
}

/// Puts the next child of this thread into a new pid namespace.
fn enter_namespace() {
    // SAFETY: the call touches no memory. The thread makes no other thread before `leave_namespace`, since that would
    // fail.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0, "{}", std::io::Error::last_os_error());
}

/// Puts later children of this thread into its own pid namespace again.
fn leave_namespace() {
    let own = std::fs::File::open("/proc/thread-self/ns/pid").unwrap();
    let kind = Some(rustix::thread::LinkNameSpaceType::ProcessID);
    rustix::thread::move_into_link_name_space(own.as_fd(), kind).unwrap();
}

fn wait(child: Pid) -> End {
    let begin = Instant::now();
    loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            return match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => End::Exit(code),
                (None, signal) => End::Signal(signal.unwrap_or(-1)),
            };
        }
        if begin.elapsed() > BOUND {
            kill_process(child, Signal::KILL).unwrap();
            waitpid(Some(child), WaitOptions::empty()).unwrap();
            return End::Hung(begin.elapsed());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Starts this executable again as the first process of a pid namespace, to run the test `name` there, and returns
/// whether the test passed within the time of one child.
pub fn passes_as_first_process(name: &str) -> bool {
    let end = in_child(Kind::InNamespace, &(), |()| {
        let this = std::env::current_exe().unwrap();
        let arguments = [name, "--exact", "--nocapture"];
        let error = std::process::Command::new(this).args(arguments).exec();
        say(&format!("{error}\n"));
        1
    });
    end == End::Exit(0)
}

/// Says on the child's standard error what went wrong. Without `eprintln!`, because another thread of the parent may
/// have had its lock.
pub fn say(text: &str) {
    let _ = rustix::io::write(std::io::stderr(), text.as_bytes());
}

/// Reads bytes in place.
pub struct Reads(pub u8);

// SAFETY: `run` only reads, and only by volatile accesses, as `NEEDS` says.
unsafe impl InPlace for Reads {
    const NEEDS: Access = Access::REMOTE_READ;

    unsafe fn run(&mut self, at: *mut u8, range: Range<usize>) {
        for byte in 0..range.len() {
            // SAFETY: the index is below the length of the range, and the caller must have all of it mapped.
            self.0 ^= unsafe { at.add(byte).read_volatile() };
        }
    }
}

/// Calls `InPlace::run` by itself.
pub fn reads_in_place(bytes: &mut [u8]) -> u8 {
    let mut reads = Reads(0);
    // SAFETY: the slice is mapped for the whole call, because it is borrowed.
    unsafe { reads.run(bytes.as_mut_ptr(), 0..bytes.len()) };
    reads.0
}

/// Describes bytes by their address.
pub fn from_raw_parts(len: usize) -> Memory {
    let mut bytes = vec![0_u8; len].into_boxed_slice();
    let data = NonNull::from(&mut bytes[..]).cast();
    let keep = Arc::new(std::sync::Mutex::new(bytes));
    // SAFETY: the bytes live as long as the memory, because `keep` has them, and nobody else uses them.
    unsafe { Memory::from_raw_parts(data, len, keep) }
}

/// Allows that the pages of `memory` are shared in place.
pub fn share_in_place(memory: Memory) -> Memory {
    // SAFETY: only the memory knows its bytes, since the callers pass what they have just made, so nobody accesses them
    // while pages are replaced.
    unsafe { memory.share_in_place() }
}
