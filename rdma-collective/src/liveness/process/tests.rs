//! Processes that run, that have ended and that this one cannot see.

use super::*;
use std::process::{Child, Command, Stdio};

fn child() -> Child {
    Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_process_comes_back_from_its_bytes() {
    let own = Process::own();
    assert_eq!(own.pid, std::process::id());
    assert!(own.start > 0 && own.boot != [0; 16] && own.pid_namespace > 0, "{own:?}");
    let mut bytes = [0; 36];
    own.write(&mut Writer::new(&mut bytes)).unwrap();
    assert_eq!(Process::read(&mut Reader::new(&bytes)), Ok(own));
    assert_eq!(Process::read(&mut Reader::new(&bytes[1..])), Err(Ended));
}

#[test]
fn a_process_that_runs_is_watched_and_one_that_has_ended_is_not_taken_for_another() {
    let mut child = child();
    let process = Process::of(child.id());
    assert!(matches!(process.watch(), Watch::Runs(_)));
    // A difference of one tick is left to the rounding between time namespaces.
    let earlier = Process { start: process.start - 2, ..process };
    assert!(matches!(earlier.watch(), Watch::Ended), "the number is another's now");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(process.watch(), Watch::Ended));
}

#[test]
fn processes_elsewhere_this_one_and_nobody_are_not_seen() {
    let child = child();
    let process = Process::of(child.id());
    let elsewhere = [
        Process { boot: [7; 16], ..process },
        Process { pid_namespace: 1, ..process },
        Process { pid: u32::MAX, ..process },
        Process { pid: 0, ..process },
        Process::default(),
        Process::own(),
    ];
    for process in elsewhere {
        assert!(matches!(process.watch(), Watch::Unseen), "{process:?}");
    }
    let mut child = child;
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A process of another time namespace names itself, and waits until its input ends.
#[test]
#[ignore = "the process of the next test"]
fn a_process_of_another_time_namespace() {
    println!("\nstart {} of {}", Process::own().start, std::process::id());
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_process_of_another_time_namespace_is_not_taken_for_ended() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    let program = std::env::current_exe().unwrap();
    let test = "liveness::process::tests::a_process_of_another_time_namespace";
    let mut child = Command::new("unshare")
        .args(["--time", "--boottime", "1000000", "--fork", "--kill-child"])
        .arg(program)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let Some(told) = lines.find(|line| line.starts_with("start ")) else {
        // Namespaces of time need root and Linux 5.6.
        println!("not checked: {}", child.wait().unwrap());
        assert!(!rustix::process::geteuid().is_root());
        return;
    };
    let mut words = told.split(' ').filter_map(|word| word.parse::<u64>().ok());
    let (start, pid) = (words.next().unwrap(), words.next().unwrap() as u32);
    let named = Process { pid, start, ..Process::own() };
    assert!(matches!(named.watch(), Watch::Runs(_)), "{named:?}, and here it began at {:?}", start_of(pid));
    drop(child.stdin.take());
    child.wait().unwrap();
}
