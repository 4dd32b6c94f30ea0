//! Children and connections that end, and a channel that wakes.

use super::*;
use std::process::{Child, Command, Stdio};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

fn child() -> (Child, OwnedFd) {
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    (child, pidfd_open(pid, PidfdFlags::empty()).unwrap())
}

fn is_readable(deaths: &Deaths, seconds: i64) -> bool {
    let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(deaths, PollFlags::IN)], Some(&timeout)).unwrap() > 0
}

fn look(deaths: &mut Deaths) -> Vec<u64> {
    let mut died = Vec::new();
    deaths.look_next();
    deaths.look(Instant::now(), |key, _| died.push(key));
    died
}

#[test]
fn deaths_wake_and_are_told_once_in_their_order() {
    let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let mut deaths = Deaths::new([channel.as_fd()]).unwrap();
    let mut children: Vec<Child> = Vec::new();
    for key in 0..4 {
        let (child, process) = child();
        deaths.watch(key, Sign::Process(child.id()), process).unwrap();
        children.push(child);
    }
    assert!(!is_readable(&deaths, 0) && look(&mut deaths).is_empty());
    deaths.forget(1);
    for index in [3, 1, 0] {
        children[index].kill().unwrap();
        children[index].wait().unwrap();
    }
    assert!(is_readable(&deaths, 60));
    assert_eq!(look(&mut deaths), [3, 0]);
    assert!(!is_readable(&deaths, 0) && look(&mut deaths).is_empty());
    children[2].kill().unwrap();
    children[2].wait().unwrap();
    assert_eq!(look(&mut deaths), [2]);
}

#[test]
fn the_channel_wakes_and_is_nobody() {
    let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let mut deaths = Deaths::new([channel.as_fd()]).unwrap();
    let (mut child, process) = child();
    deaths.watch(7, Sign::Process(child.id()), process).unwrap();
    rustix::io::write(&channel, &1_u64.to_ne_bytes()).unwrap();
    assert!(is_readable(&deaths, 60));
    assert!(look(&mut deaths).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(look(&mut deaths), [7]);
}

#[test]
fn a_connection_that_closes_is_a_death_and_what_comes_over_it_is_none() {
    let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let mut deaths = Deaths::new([channel.as_fd()]).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut theirs = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    deaths.watch(5, Sign::Connection, ours.into()).unwrap();
    assert!(deaths.is_watched(5));
    std::io::Write::write_all(&mut theirs, b"?").unwrap();
    assert!(!is_readable(&deaths, 0) && look(&mut deaths).is_empty());
    drop(theirs);
    assert!(is_readable(&deaths, 60));
    assert_eq!(look(&mut deaths), [5]);
    assert!(!deaths.is_watched(5) && !is_readable(&deaths, 0));
}

#[test]
fn looks_that_come_too_soon_are_none() {
    let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let mut deaths = Deaths::new([channel.as_fd()]).unwrap();
    let (mut child, process) = child();
    deaths.watch(7, Sign::Process(child.id()), process).unwrap();
    let now = Instant::now();
    deaths.look(now, |key, _| panic!("{key}"));
    child.kill().unwrap();
    child.wait().unwrap();
    deaths.look(now + LOOK_EVERY / 2, |key, _| panic!("{key}"));
    let mut died = None;
    deaths.look(now + LOOK_EVERY, |key, sign| died = Some((key, sign)));
    assert_eq!(died, Some((7, Sign::Process(child.id()))));
}

#[test]
fn a_watch_that_has_moved_tells_under_its_new_key() {
    let channel = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    let mut deaths = Deaths::new([channel.as_fd()]).unwrap();
    let (mut first, watched) = child();
    let (mut second, other) = child();
    deaths.watch(1, Sign::Process(first.id()), watched).unwrap();
    deaths.watch(2, Sign::Process(second.id()), other).unwrap();
    deaths.rename(1, 7);
    assert!(!deaths.is_watched(1) && deaths.is_watched(7));
    // A key that is watched already keeps its own.
    deaths.rename(2, 7);
    assert!(!deaths.is_watched(2));
    for child in [&mut first, &mut second] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert_eq!(look(&mut deaths), [7]);
}
