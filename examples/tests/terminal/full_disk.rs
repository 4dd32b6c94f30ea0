//! A full disk under output, files and logs: an error that names the file, or a run that goes on; never another rank.

use crate::ALLREDUCE;
use crate::common::{Running, unsteered};
use std::fs::File;
use std::process::{Command, Stdio};

const FLAGS: &str = "--device soft --ranks 3 -b 8 -e 64 -n 10 -w 0 -T 60";
const FULL: &str = "No space left on device";

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

fn allreduce() -> Command {
    let mut command = Command::new(ALLREDUCE);
    unsteered(&mut command);
    command.args(FLAGS.split(' ')).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn ranks_go_on_though_the_disk_under_their_log_is_full() {
    let mut command = allreduce();
    command.env("NCCL_DEBUG", "TRACE").stderr(full());
    let ended = Running::spawn(command).finish().expect(0);
    assert!(ended.stdout.contains("Avg bus bandwidth"), "{}", ended.stdout);
}

#[test]
fn a_full_disk_under_standard_output_is_the_error_of_the_rank_that_prints() {
    let mut command = allreduce();
    command.stdout(full());
    let ended = Running::spawn(command).finish().expect(1);
    let own = |line: &&str| line.starts_with("allreduce: rank 0: ");
    let own: Vec<&str> = ended.stderr.lines().filter(own).collect();
    assert!(
        own.len() == 1 && own[0].contains("standard output") && own[0].contains(FULL),
        "{}",
        ended.stderr
    );
    // The other ranks lose the one that prints, and say nothing of each other.
    for line in ended.stderr.lines().filter(|line| !line.starts_with("allreduce: rank 0: ")) {
        let said = line.strip_prefix("allreduce: rank ").unwrap_or(line);
        assert!(said.contains("rank 0") && !said.contains("rank 1") && !said.contains("rank 2"), "{line}");
    }
}

/// Checks that one rank ends, by an error that names the file, after a table that is whole.
fn assert_names(command: Command, file: &str) {
    let ended = Running::spawn(command).finish().expect(1);
    assert!(ended.stdout.contains("Avg bus bandwidth"), "{}", ended.stdout);
    let [line] = ended.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{}", ended.stderr) };
    assert!(line.contains(file) && line.contains(FULL), "{line}");
}

#[test]
fn a_full_disk_under_a_plot_names_the_file_and_no_rank() {
    let mut command = allreduce();
    command.args(["--plot", "/dev/full"]);
    assert_names(command, "--plot /dev/full");
}

#[test]
fn a_full_disk_under_json_names_the_file_and_no_rank() {
    let folder = tempfile::tempdir().unwrap();
    // The mount is in a namespace of its own, and goes with it.
    let apart = |script: &str| {
        let mut command = Command::new("unshare");
        unsteered(&mut command);
        command.args(["--mount", "--map-root-user", "sh", "-c", script]).arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mount = "mount -t tmpfs -o size=4k none \"$0\"";
    if !apart(mount).status().is_ok_and(|status| status.success()) {
        println!("skipped: this machine lets nobody mount in a namespace of their own");
        return;
    }
    let fill = "head -c 4096 /dev/zero > \"$0\"/filled";
    let run = format!("{mount} && {fill} && exec {ALLREDUCE} {FLAGS} -J \"$0\"/run.json");
    assert_names(apart(&run), "/run.json");
}
