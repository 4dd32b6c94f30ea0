//! Signals by which people and systems end processes, to a launcher and to one of its ranks: the process ends by the
//! signal itself, the others name the rank, and nothing of the job is left.

use crate::common::{LONG, Running, unsteered};
use crate::{ALLREDUCE, KVCACHE};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{Ipv6Addr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The variable that all processes of a job of this test have.
const MARK: &str = "MARK_OF_THE_JOB";
const SIGNALS: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// A launcher, the processes that it started, and what they hold.
struct Job {
    launcher: Running,
    mark: String,
    /// Each process with what its launcher calls it.
    processes: Vec<(String, i32)>,
    store: String,
    names: Vec<String>,
}

impl Job {
    fn start(program: &str, line: &str, connected: &str) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mark = format!("{MARK}={}-{number}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        let mut command = Command::new(program);
        unsteered(&mut command);
        command.args(line.split_whitespace()).env(name, value);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = Running::spawn(command);
        launcher.wait_for(connected);
        let own = launcher.id().cast_signed();
        let ranks = marked(&mark).into_iter().filter(|(pid, _)| *pid != own);
        let processes: Vec<(String, i32)> =
            ranks.map(|(pid, variables)| (name_of(pid, &variables), pid)).collect();
        assert_eq!(processes.len(), 2, "{processes:?}");
        let variables = &marked(&mark).into_iter().find(|(pid, _)| *pid == processes[0].1).unwrap().1;
        let store = match (variable(variables, "RDMA_STORE"), variable(variables, "MASTER_PORT")) {
            (Some(store), _) => store,
            (None, port) => format!("127.0.0.1:{}", port.unwrap()),
        };
        let names = names_of(&launcher.stdout());
        Self { launcher, mark, processes, store, names }
    }

    /// Checks that processes, sockets and names are there, as a control of [`assert_nothing_left`].
    fn assert_there(&self) {
        assert!(TcpStream::connect(&self.store).is_ok(), "no store at {}", self.store);
        assert!(!self.names.is_empty(), "no GID in {}", self.launcher.stdout());
        self.names.iter().for_each(|name| assert!(has_name(name), "no socket is called {name}"));
    }
}

/// Processes that have the mark, each with its variables.
fn marked(mark: &str) -> Vec<(i32, Vec<String>)> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let variables = |pid| {
        let bytes = fs::read(format!("/proc/{pid}/environ")).ok()?;
        Some((
            pid,
            bytes.split(|byte| *byte == 0).map(|one| String::from_utf8_lossy(one).into_owned()).collect(),
        ))
    };
    pids.filter_map(variables)
        .filter(|(_, all): &(i32, Vec<String>)| all.iter().any(|one| one == mark))
        .collect()
}

fn variable(variables: &[String], name: &str) -> Option<String> {
    variables.iter().find_map(|one| Some(one.split_once('=').filter(|(of, _)| *of == name)?.1.to_owned()))
}

/// The name by which a launcher speaks of its process.
fn name_of(pid: i32, variables: &[String]) -> String {
    if let Some(rank) = variable(variables, "RANK") {
        return format!("rank {rank}");
    }
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    line.split('\0').skip_while(|word| *word != "--role").nth(1).unwrap_or_default().to_owned()
}

/// The GIDs in a header, which are the names of the devices' sockets.
fn names_of(header: &str) -> Vec<String> {
    let words: Vec<&str> = header.split_whitespace().collect();
    let gids = words.windows(3).filter(|words| words[0] == "GID" && words[1].parse::<u32>().is_ok());
    let gid = |text: &str| text.trim_end_matches(|last: char| !last.is_ascii_hexdigit()).parse().unwrap();
    let hex = |gid: Ipv6Addr| gid.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    gids.map(|words| hex(gid(words[2]))).collect()
}

/// Whether a socket of this host has such a name.
fn has_name(name: &str) -> bool {
    fs::read_to_string("/proc/net/unix").unwrap().lines().any(|line| line.ends_with(&format!("/{name}")))
}

/// Checks that no process is left, and with it no memory (which has no name), and no socket.
fn assert_nothing_left(mark: &str, store: &str, names: &[String]) {
    let deadline = Instant::now() + LONG;
    while !marked(mark).is_empty() {
        assert!(Instant::now() < deadline, "still there: {:?}", marked(mark));
        sleep(Duration::from_millis(5));
    }
    assert!(TcpStream::connect(store).is_err(), "somebody listens at {store}");
    names.iter().for_each(|name| assert!(!has_name(name), "a socket is called {name}"));
}

fn ranks() -> Job {
    let flags = "--device soft --wire mapped --ranks 2 -b 1M -e 1M -n 100000000 -w 0 -T 60";
    Job::start(ALLREDUCE, flags, "busbw")
}

fn sides() -> Job {
    let flags = "--device soft --wire mapped --prompt 64 --requests 100000000 -T 60";
    Job::start(KVCACHE, flags, "# Using device")
}

#[test]
fn a_launcher_ends_by_a_signal_and_leaves_nothing() {
    for signal in SIGNALS {
        for job in [ranks(), sides()] {
            job.assert_there();
            let Job { launcher, mark, store, names, .. } = job;
            launcher.signal(signal);
            let ended = launcher.finish();
            assert_eq!(ended.status.signal(), Some(signal.as_raw()), "{}", ended.stderr);
            assert_nothing_left(&mark, &store, &names);
        }
    }
}

/// Ends one of two processes by each signal, and checks what is said: by the launcher, and by the survivor, whose error
/// has one of the texts that `named` returns for the name and the number of the process.
fn end_one(start: fn() -> Job, named: impl Fn(&str, i32) -> Vec<String>) {
    for (signal, victim) in SIGNALS.into_iter().flat_map(|signal| [(signal, 0), (signal, 1)]) {
        let job = start();
        job.assert_there();
        let Job { launcher, mark, processes, store, names } = job;
        let (name, pid) = &processes[victim];
        let number = signal.as_raw();
        kill_process(Pid::from_raw(*pid).unwrap(), signal).unwrap();
        let ended = launcher.finish().expect(128 + number);
        let text = format!("{name} (process {pid}) was ended: signal: {number} ");
        assert!(ended.stderr.contains(&text), "{}", ended.stderr);
        let survivor = format!("{}: ", processes[1 - victim].0);
        let line = ended.stderr.lines().find_map(|line| Some(line.split_once(&survivor)?.1));
        let line = line.unwrap_or_else(|| panic!("{survivor}nothing\n{}", ended.stderr));
        assert!(named(name, *pid).iter().any(|text| line.contains(text)), "{name} is not named: {line}");
        assert!(!line.contains(survivor.trim_end_matches(": ")), "the survivor names itself: {line}");
        assert_nothing_left(&mark, &store, &names);
    }
}

#[test]
fn a_rank_that_ends_by_a_signal_is_named_and_nothing_is_left() {
    // The words depend on where the survivor is: in an operation, or in the store.
    end_one(ranks, |name, _| vec![name.to_owned()]);
}

#[test]
fn a_side_that_ends_by_a_signal_is_lost_to_the_other_and_nothing_is_left() {
    end_one(sides, |_, pid| vec![" is lost".to_owned(), format!("process {pid}")]);
}
