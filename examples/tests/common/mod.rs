//! Runs a program as people do, with an end to every wait and no process left behind.

#![allow(dead_code, reason = "each test file uses its part")]

use examples::collectives::Collective;
use rdma_collective::bootstrap::meeting_ports;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; a test that passes takes a small part of it.
pub const LONG: Duration = Duration::from_secs(180);
/// A job's token, for programs that a test starts one by one.
pub const TOKEN: (&str, &str) = ("RDMA_JOB_TOKEN", "5c9f0d1e6a7b48239c0d1e2f3a4b5c6d");
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A program that runs; killed when dropped.
pub struct Running {
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
}

/// The bytes that came through a pipe so far.
struct Pipe {
    text: Arc<Mutex<String>>,
    reader: JoinHandle<()>,
}

/// A program that ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// The program of a collective.
pub const fn program(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => env!("CARGO_BIN_EXE_allreduce"),
        Collective::AllGather => env!("CARGO_BIN_EXE_allgather"),
        Collective::ReduceScatter => env!("CARGO_BIN_EXE_reducescatter"),
        Collective::Broadcast => env!("CARGO_BIN_EXE_broadcast"),
        Collective::Reduce => env!("CARGO_BIN_EXE_reduce"),
        Collective::AllToAll => env!("CARGO_BIN_EXE_alltoall"),
        Collective::Gather => env!("CARGO_BIN_EXE_gather"),
        Collective::Scatter => env!("CARGO_BIN_EXE_scatter"),
        Collective::SendRecv => env!("CARGO_BIN_EXE_sendrecv"),
    }
}

/// Starts a program with its arguments given as one line, without variables that would steer it.
pub fn start(program: &str, line: &str) -> Running {
    start_with(program, line, &[])
}

/// Starts a program with more environment.
pub fn start_with(program: &str, line: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = Command::new(program);
    unsteered(&mut command);
    command.args(line.split_whitespace()).envs(variables.iter().copied());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::spawn(command)
}

/// Takes away what a launcher around the tests, or a person, may have set.
pub fn unsteered(command: &mut Command) {
    const FAMILIES: [&str; 12] = [
        "OMPI_",
        "PMI",
        "MPI_",
        "SLURM_",
        "LWS_",
        "PET_",
        "VC_",
        "VK_",
        "JOB_COMPLETION_INDEX",
        "TORCHELASTIC_",
        "NCCL_",
        "RDMA_",
    ];
    let torch = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let of_launchers = |name: &String| FAMILIES.iter().any(|family| name.starts_with(family));
    for name in set.filter(of_launchers).chain(torch.map(str::to_owned)) {
        command.env_remove(name);
    }
}

/// Runs a program to its end.
pub fn run(program: &str, line: &str) -> Ended {
    start(program, line).finish()
}

impl Pipe {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let Some(pipe) = pipe else { return };
            for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
                let mut text = into.lock().unwrap();
                text.push_str(&String::from_utf8_lossy(&line));
                text.push('\n');
            }
        });
        Self { text, reader }
    }

    fn all(&self) -> String {
        let deadline = Instant::now() + LONG;
        while !self.reader.is_finished() {
            assert!(Instant::now() < deadline, "something still holds the pipe of a program that ended");
            thread::sleep(LOOK_EVERY);
        }
        self.text.lock().unwrap().clone()
    }
}

impl Running {
    /// Starts a program, without input. What of its output goes through a pipe is kept.
    pub fn spawn(mut command: Command) -> Self {
        let child = command.stdin(Stdio::null()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{:?}: {error}", command.get_program()));
        // The command may hold the writer of a pipe whose end is waited for.
        drop(command);
        let stdout = Pipe::read(child.stdout.take());
        let stderr = Pipe::read(child.stderr.take());
        Self { child, stdout, stderr }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The program's standard output so far.
    pub fn stdout(&self) -> String {
        self.stdout.text.lock().unwrap().clone()
    }

    /// The program's standard error so far.
    pub fn stderr(&self) -> String {
        self.stderr.text.lock().unwrap().clone()
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has printed a line that contains `text`.
    pub fn wait_for(&mut self, text: &str) {
        let printed = Arc::clone(&self.stdout.text);
        self.wait_until(&printed, text);
    }

    /// Waits until it has printed a line that contains `text` to standard error.
    pub fn wait_for_error(&mut self, text: &str) {
        let printed = Arc::clone(&self.stderr.text);
        self.wait_until(&printed, text);
    }

    fn wait_until(&mut self, printed: &Mutex<String>, text: &str) {
        let deadline = Instant::now() + LONG;
        while !printed.lock().unwrap().contains(text) {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?} before {text:?}:\n{}", self.stderr.text.lock().unwrap());
            assert!(Instant::now() < deadline, "no {text:?} after {LONG:?}");
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits for the end, which comes within [`LONG`] or the test fails.
    pub fn finish(mut self) -> Ended {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return Ended { status, stdout: self.stdout.all(), stderr: self.stderr.all() };
            }
            assert!(Instant::now() < deadline, "still running after {LONG:?}");
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Fails the test with everything that was printed unless the status is this one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

/// Devices that a header says were not used, each with a reason.
pub fn refused(text: &str) -> usize {
    let after = text.split_once("# Not used\n").map_or("", |(_, after)| after);
    let lines = after.lines().map_while(|line| line.strip_prefix("#  "));
    lines.filter(|line| line.split_once(": ").is_some_and(|(_, reason)| !reason.is_empty())).count()
}

/// The ports of this host at which somebody listens.
pub fn listening() -> BTreeSet<u16> {
    // A kernel without IPv6 has no second table.
    let tables = [
        fs::read_to_string("/proc/net/tcp").unwrap(),
        fs::read_to_string("/proc/net/tcp6").unwrap_or_default(),
    ];
    let port = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let (local, state) = (columns.next()?, columns.nth(1)?);
        let (_, port) = local.rsplit_once(':')?;
        (state == "0A").then(|| u16::from_str_radix(port, 16).ok())?
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(port).collect()
}

/// A port at which nobody listens, nor at those that ranks derive from it; below the ports that the kernel gives to
/// connections. The next 1,000 calls give others, because a job listens only later, and another job may ask until then.
pub fn free_port() -> u16 {
    static FIRST: LazyLock<u32> = LazyLock::new(|| RandomState::new().hash_one(0) as u32);
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let distance = meeting_ports(1, false).len() as u32;
    let listening = listening();
    for _ in 0..100 {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (FIRST.wrapping_add(given * distance) % 20_000) as u16;
        if !meeting_ports(port, false).iter().any(|port| listening.contains(port)) {
            return port;
        }
    }
    panic!("no free range of ports")
}
