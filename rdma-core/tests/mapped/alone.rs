//! Runs a test in a process of its own: the executable runs itself again for that one test.

use std::io::{self, Write};
use std::process::Command;
use std::sync::{Arc, Mutex};

/// Runs `body` in a process of its own.
pub fn alone(test: &str, body: impl FnOnce()) {
    alone_by(Command::new(exe()), test, body);
}

/// Runs `body` in a process of its own, started by that command.
pub fn alone_by(mut again: Command, test: &str, body: impl FnOnce()) {
    const ALONE: &str = "RDMA_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return body();
    }
    again.args([test, "--exact", "--test-threads=1"]).env(ALONE, "1");
    let output = again.output().unwrap();
    let [said, wrong] = [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said));
    assert!(output.status.success() && said.contains("1 passed"), "{}: {said}{wrong}", output.status);
}

/// Path of this executable.
pub fn exe() -> std::path::PathBuf {
    std::env::current_exe().unwrap()
}

/// The log lines of all threads of this process, from its creation on.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn begin() -> Self {
        let log = Self(Arc::default());
        let to = log.clone();
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || to.clone()).init();
        log
    }

    /// Takes the lines that contain `what` and came since the last call.
    pub fn take(&self, what: &str) -> Vec<String> {
        let told = std::mem::take(&mut *self.0.lock().unwrap());
        let told = String::from_utf8(told).unwrap();
        told.lines().filter(|line| line.contains(what)).map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
