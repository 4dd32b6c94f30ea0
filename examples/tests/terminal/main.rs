//! Where output goes: a bar for whoever looks, none in a file, a reader that leaves or never reads, and a full disk.

#[path = "../common/mod.rs"]
mod common;

mod full_disk;
mod unread;

use common::{LONG, free_port};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

const ALLREDUCE: &str = env!("CARGO_BIN_EXE_allreduce");
const KVCACHE: &str = env!("CARGO_BIN_EXE_kvcache_transfer");
const WRITE_BW: &str = env!("CARGO_BIN_EXE_write_bw");

/// Runs it with standard error on a terminal; what is there afterwards, and standard output.
fn on_a_terminal(line: &str) -> (String, String) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let end = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut command = Command::new(KVCACHE);
    command.args(line.split_whitespace()).env("TERM", "xterm").stdin(Stdio::null()).stderr(end);
    let seen = thread::spawn(move || {
        let (mut terminal, mut seen) = (File::from(terminal), Vec::new());
        // The read ends with an error when the last process has closed its end.
        let _ = terminal.read_to_end(&mut seen);
        String::from_utf8_lossy(&seen).into_owned()
    });
    let ended = command.output().unwrap();
    drop(command);
    assert!(ended.status.success(), "{ended:?}");
    (seen.join().unwrap(), String::from_utf8(ended.stdout).unwrap())
}

#[test]
fn a_terminal_shows_a_bar_that_files_and_json_do_not_have() {
    let (seen, text) = on_a_terminal("--device soft --prompt 1024");
    assert!(seen.contains("128.00 MiB") && seen.contains("/32 layers verified"), "{seen}");
    assert!(text.contains("2048 of 2048 OK") && !text.contains('\u{1b}'), "{text}");
    let (seen, text) = on_a_terminal("--device soft --prompt 1024 --json");
    assert_eq!(seen, "");
    assert!(text.starts_with('{') && text.ends_with("}\n"), "{text}");
}

#[test]
fn a_reader_that_leaves_is_an_error_and_no_panic() {
    let port = free_port();
    for (program, line) in [
        (KVCACHE, "--device soft --prompt 16".to_owned()),
        (KVCACHE, "--device soft --prompt 16 --json".to_owned()),
        (ALLREDUCE, "--device soft --ranks 2 -b 8 -e 8 -n 1".to_owned()),
        (WRITE_BW, format!("-d soft -p {port} --timeout 60")),
    ] {
        // The reader leaves before the program begins, which otherwise writes its first lines in time, and waits.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = Command::new(program)
            .args(line.split_whitespace())
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = String::new();
        let deadline = Instant::now() + LONG;
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let status = child.wait().unwrap();
        assert!(Instant::now() < deadline);
        assert_eq!(status.code(), Some(1), "{program} {line}: {stderr}");
        assert!(stderr.contains("standard output") && !stderr.contains("panicked"), "{stderr}");
    }
}
