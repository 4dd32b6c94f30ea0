//! Runs programs, with an end to every wait and no process left behind.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Long enough for a loaded or emulated machine; a test that passes takes a small part of it.
pub const LONG: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);
const PROGRAM: &str = env!("CARGO_BIN_EXE_rdma-tools");

/// A program that runs; killed when dropped.
pub struct Running {
    child: Child,
}

/// A program that ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

/// Starts a program with its arguments given as one line.
pub fn start(program: &str, line: &str) -> Running {
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running { child: command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")) }
}

/// Starts `rdma-tools pingpong`.
pub fn pingpong(line: &str) -> Running {
    start(PROGRAM, &format!("pingpong {line}"))
}

/// Waits until `server` listens on `port`.
pub fn await_listening(server: &mut Running, port: u16) {
    let ending = format!(":{port:04X}");
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.get(1).is_some_and(|local| local.ends_with(&ending)) && fields.get(3) == Some(&"0A")
    };
    let tables =
        || ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let deadline = Instant::now() + LONG;
    while !tables().iter().any(|table| table.lines().any(listens)) {
        assert!(Instant::now() < deadline, "nobody listens on {port}");
        if let Some(status) = server.child.try_wait().unwrap() {
            panic!("the server ended with {status} before it listened: {:?}", read(&mut server.child.stderr));
        }
        sleep(LOOK_EVERY);
    }
}

fn read(pipe: &mut Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    pipe.take().map(|mut pipe| pipe.read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Running {
    /// Waits for the end. Output stays in the pipes meanwhile, since it is short.
    pub fn finish(mut self) -> Ended {
        let deadline = Instant::now() + LONG;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "it runs for more than {LONG:?}");
            sleep(LOOK_EVERY);
        };
        Ended { status, stdout: read(&mut self.child.stdout), stderr: read(&mut self.child.stderr) }
    }

    /// Reads standard output up to and with the line that has `words`.
    pub fn await_line(&mut self, words: &str) {
        let pipe = self.child.stdout.as_mut().unwrap();
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !(text.ends_with(b"\n") && String::from_utf8_lossy(&text).contains(words)) {
            assert_eq!(
                pipe.read(&mut byte).unwrap(),
                1,
                "it ended after {:?}",
                text.escape_ascii().to_string()
            );
            text.extend(byte);
        }
    }

    /// Ends the program as the kernel does when memory is short.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// Checks that the program succeeded, and returns its output with each number replaced by `#`.
    pub fn shape(&self) -> String {
        assert!(self.status.success(), "{self:?}");
        assert_eq!(self.stderr, "");
        shape(&self.stdout)
    }

    /// Checks that the program failed, and that its error has all of `words`.
    pub fn failed_with(&self, words: &[&str]) {
        self.failed_with_findings(words);
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
    }

    /// Checks the same, where findings may stand below the error.
    pub fn failed_with_findings(&self, words: &[&str]) {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        for word in words {
            assert!(self.stderr.contains(word), "no `{word}` in {self:?}");
        }
    }
}

/// Replaces what differs between two runs, addresses and times, by `#`.
fn shape(text: &str) -> String {
    let word = |word: &str| {
        let (core, end) = match word.strip_suffix([',', '\n']) {
            Some(core) => (core, &word[core.len()..]),
            None => (word, ""),
        };
        // A GID has colons inside; `address:` ends with one.
        let is_gid = core.contains("::") || core.contains(':') && !core.ends_with(':');
        let differs = is_gid || core.starts_with("0x") || core.contains('.');
        if differs { format!("#{end}") } else { word.to_owned() }
    };
    text.split_inclusive('\n').map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_shape_keeps_words_and_counts() {
    let text =
        "  local address:  LID 0x0000, QPN 0x001234, GID ::\n8192 bytes in 0.01 seconds = 7.9 Mbit/sec\n";
    assert_eq!(shape(text), "  local address:  LID #, QPN #, GID #\n8192 bytes in # seconds = # Mbit/sec\n");
}
