//! Runs a program as people do, with an end to every wait and no process left behind.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine; a test that passes takes a small part of it.
pub const LONG: Duration = Duration::from_secs(180);

/// A program that runs; killed when dropped.
pub struct Running {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// A program that ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Starts a program with its arguments given as one line, without variables that would steer it.
pub fn start(program: &str, line: &str) -> Running {
    start_with(program, line, &[])
}

/// Starts a program with more environment.
pub fn start_with(program: &str, line: &str, variables: &[(&str, &str)]) -> Running {
    let mut command = Command::new(program);
    for name in ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"] {
        command.env_remove(name);
    }
    let mut child = command
        .args(line.split_whitespace())
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    Running { child, stdout, stderr }
}

/// Runs a program to its end.
pub fn run(program: &str, line: &str) -> Ended {
    start(program, line).finish()
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

impl Running {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end, which comes within [`LONG`] or the test fails.
    pub fn finish(mut self) -> Ended {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                let text = |pipe: &mut Option<JoinHandle<String>>| pipe.take().unwrap().join().unwrap();
                let (stdout, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
                return Ended { status, stdout, stderr };
            }
            assert!(Instant::now() < deadline, "still running after {LONG:?}");
            thread::sleep(Duration::from_millis(10));
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

/// A port that nobody listened on just now.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
