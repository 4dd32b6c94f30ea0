//! Processes that are alive, that have ended, and whose user or number is hidden.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn this_process_is_the_same_user_and_alive() {
    let (here, _there) = UnixStream::pair().unwrap();
    let pidfd = Credentials::new().check(here.as_fd()).unwrap();
    assert!(!has_ended(pidfd.as_fd()));
}

#[test]
fn a_child_that_ended_is_seen_to_have() {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    child.wait().unwrap();
    assert!(has_ended(pidfd.as_fd()));
}

#[test]
fn a_user_that_stands_for_others_is_nobody() {
    let (here, _there) = UnixStream::pair().unwrap();
    let own = Credentials::new();
    let overflow = own.overflow;
    let theirs = Credentials { peer: |_| Ok(libc::ucred { pid: 1, uid: 7, gid: 0 }), ..own };
    // This process reads as the same number itself.
    let refused = Credentials { uid: 7, overflow: 7, ..theirs }.check(here.as_fd()).unwrap_err();
    assert!(matches!(refused, UnmappedReason::OverflowUser { uid: 7 }), "{refused}");
    assert!(Credentials { uid: 7, ..theirs }.check(here.as_fd()).is_ok());
    let said = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap();
    assert_eq!(said.trim(), overflow.to_string());
}

#[test]
fn a_process_whose_number_is_not_seen_is_refused_though_its_end_could_be_told() {
    let (here, _there) = UnixStream::pair().unwrap();
    let own =
        Credentials { uid: 7, peer: |_| Ok(libc::ucred { pid: 0, uid: 7, gid: 0 }), ..Credentials::new() };
    assert!((own.pidfd)(here.as_fd()).is_ok());
    let refused = own.check(here.as_fd()).unwrap_err();
    assert!(
        matches!(refused, UnmappedReason::OtherPidNamespace)
            && refused.to_string().contains("process numbers")
    );
}
