//! The driver thread of software devices: it exists while a device is open, and sleeps while nothing happens.
//!
//! A single test alone in its process, because a device of another test would keep the thread alive.

use std::time::{Duration, Instant};

use rdma_core::{Device, SoftOptions};

/// Returns the ids of this process's driver threads.
fn drivers() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    tasks
        // A thread may end between the listing and the read.
        .filter(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "rdma-soft")
        })
        .map(|task| task.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

fn wait_for(count: usize) -> Vec<String> {
    let begin = Instant::now();
    loop {
        let found = drivers();
        if found.len() == count {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{count} threads expected: {found:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns how often a thread gave up its core in order to wait.
fn waits(thread: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

#[test]
fn one_thread_serves_all_devices_sleeps_and_ends_with_the_last() {
    assert_eq!(drivers().len(), 0);
    for _ in 0..3 {
        let first = Device::soft(SoftOptions::default()).open().unwrap();
        let second = Device::soft(SoftOptions::default()).open().unwrap();
        let thread = wait_for(1).remove(0);
        drop(first);
        std::thread::sleep(Duration::from_millis(50));
        let before = waits(&thread);
        std::thread::sleep(Duration::from_millis(300));
        let woken = waits(&thread) - before;
        assert!(woken <= 1, "woken {woken} times with nothing to do");
        drop(second);
        wait_for(0);
    }
}
