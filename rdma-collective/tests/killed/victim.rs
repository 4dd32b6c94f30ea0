//! The process that is killed.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::Signal;

use crate::Phase;
use crate::pair::{line, parse};
use crate::side::{Role, Side};

const ROLE: &str = "KILLED_ROLE";
const PHASE: &str = "KILLED_PHASE";

/// As its survivor has it; killed when it is dropped.
pub struct Victim {
    child: Child,
    hears: Lines<BufReader<ChildStdout>>,
}

impl Victim {
    pub fn start(role: Role, phase: Phase) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "victim::the_one_that_is_killed", "--ignored", "--nocapture"])
            .env(ROLE, format!("{role:?}"))
            .env(PHASE, format!("{phase:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let hears = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, hears }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn blob(&mut self) -> Vec<u8> {
        let said = self.hears.by_ref().map_while(Result::ok).find_map(|line| parse(&line));
        said.expect("the victim says what it is")
    }

    pub fn say(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(line(bytes).as_bytes()).expect("the victim listens");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The next line of the survivor; never returns when it has ended.
fn hear() -> Vec<u8> {
    let mut said = String::new();
    let _ = std::io::stdin().lock().read_line(&mut said);
    parse(&said).unwrap_or_else(|| std::process::exit(0))
}

#[test]
#[ignore = "it is one end of two: the other test starts it"]
fn the_one_that_is_killed() {
    // Not longer than the thread that started it, however that ends.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let is = |name, value| std::env::var(name).is_ok_and(|is| is == value);
    let side = Side::new();
    let (idle, blob) = side.prepare(if is(ROLE, "Prefill") { Role::Prefill } else { Role::Decode });
    print!("{}", line(&blob));
    std::io::stdout().flush().unwrap();
    let theirs = hear();
    let end = idle.connect(&theirs).unwrap();
    if is(PHASE, "Copy") {
        let _ = (1..).try_for_each(|request| end.transfer(request));
    }
    if is(PHASE, "Wait") {
        let _ = end.wait();
    }
    if is(PHASE, "Close") || is(PHASE, "CloseBoth") {
        hear();
        drop(end);
    }
    // Nothing more is said: it is killed, or its survivor has ended.
    hear();
}
