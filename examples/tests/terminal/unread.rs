//! Output that nobody reads: no rank waits for a reader, and the program ends by an error that says so.

use crate::common::{Running, free_port, start, unsteered};
use crate::{ALLREDUCE, KVCACHE, WRITE_BW};
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

/// A pipe that is full, so that the first line waits already. The test keeps the reader, and does not read.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    // Only the filling must not wait, so it opens the pipe anew: the program's end is an ordinary one.
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let mut filled = File::options().write(true).custom_flags(nonblock).open(path).unwrap();
    while filled.write(&[b'\n'; 4096]).is_ok() {}
    (reader, writer)
}

/// A program whose standard output nobody reads.
fn unread(program: &str, line: &str) -> (Running, PipeReader) {
    let (reader, writer) = full_pipe();
    let mut command = Command::new(program);
    unsteered(&mut command);
    command.args(line.split_whitespace()).stdout(writer).stderr(Stdio::piped());
    (Running::spawn(command), reader)
}

/// Checks that a program ended by an error of its output alone, in which nobody else is named.
fn assert_says_unread(program: Running) {
    let ended = program.finish().expect(1);
    let [line] = ended.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{}", ended.stderr) };
    assert!(line.contains("standard output") && line.contains("nobody reads"), "{line}");
}

#[test]
fn ranks_do_not_wait_for_a_reader_and_the_program_says_that_there_is_none() {
    let rows = "-b 8 -e 8K -i 64 -n 1 -w 0 -T 5";
    let (program, _reader) = unread(ALLREDUCE, &format!("--device soft --ranks 3 {rows}"));
    assert_says_unread(program);
}

#[test]
fn sides_of_a_transfer_do_not_wait_for_a_reader() {
    let lines = ["--prompt 16 -T 5", "--prompt 16 -T 5 --json", "--prompt 16 --requests 3 -T 5"];
    let programs = lines.map(|line| unread(KVCACHE, &format!("--device soft {line}")));
    for (program, _reader) in programs {
        assert_says_unread(program);
    }
}

#[test]
fn a_twin_does_not_wait_for_a_reader() {
    let flags = format!("-d soft -p {} -s 64 -n 50", free_port());
    let (server, _reader) = unread(WRITE_BW, &format!("{flags} --timeout 5"));
    start(WRITE_BW, &format!("127.0.0.1 {flags} --timeout 60")).finish().expect(0);
    assert_says_unread(server);
}

#[test]
fn a_reader_that_comes_late_gets_every_line() {
    let rows = "-b 8 -e 8K -i 64 -n 1 -w 0 -T 60";
    let (program, mut reader) = unread(ALLREDUCE, &format!("--device soft --ranks 2 {rows}"));
    // The ranks leave though nobody reads; rank 0 alone waits for the reader.
    let mut text = String::new();
    std::thread::sleep(std::time::Duration::from_secs(1));
    reader.read_to_string(&mut text).unwrap();
    program.finish().expect(0);
    let whole = text.contains("# Using devices") && text.contains("Avg bus bandwidth");
    assert!(whole && text.lines().filter(|line| line.contains(" float ")).count() == 128, "{text}");
}

#[test]
fn ranks_do_not_wait_for_a_reader_of_their_log() {
    let (_reader, writer) = full_pipe();
    let mut command = Command::new(ALLREDUCE);
    unsteered(&mut command);
    command.args("--device soft --ranks 2 -b 8 -e 64 -n 10 -w 0 -T 60".split(' '));
    command.env("NCCL_DEBUG", "TRACE").stdout(Stdio::piped()).stderr(writer);
    let ended = Running::spawn(command).finish().expect(0);
    assert!(ended.stdout.contains("Avg bus bandwidth"), "{}", ended.stdout);
}
