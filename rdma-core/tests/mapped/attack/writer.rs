//! A writer process: writes the stripe that the owner names until it names the next.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use rdma_core::{
    Access, AckTimeout, Attached, CompletionStatus, Deadline, Endpoint, PathOptions, QueuePair, ReadyToSend,
    RemoteMemory, RetryOptions, Work, Worker,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::ground::{OLD, STRIPE};
use crate::end::{self, End, soon};
use crate::processes::{line, parse};
use crate::random::Random;

/// Time between two checks for a new order.
const LOOK: Duration = Duration::from_millis(10);
/// First word of the line that a writer prints when it may write no more; its status number follows.
const ENDED: &str = "ended ";

/// A writer process, as its owner has it.
pub struct Writer {
    child: Child,
    says: ChildStdin,
    hears: Receiver<String>,
    pub qp: Option<QueuePair<ReadyToSend>>,
}

impl Writer {
    pub fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attack::writer::a_writer_of_the_attacks", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (says, hears) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, says, hears: lines(BufReader::new(hears)), qp: None }
    }

    /// Orders the writer to write that stripe, as a whole each time if `whole`. With `impatient` its writes soon fail
    /// when nobody answers.
    pub fn tell(&mut self, ours: &Endpoint, stripe: RemoteMemory, whole: bool, impatient: bool) {
        let said = format!("{whole} {impatient} {}", line(ours, stripe));
        self.says.write_all(said.as_bytes()).expect("the writer listens");
    }

    /// Returns the endpoint that the writer writes from.
    pub fn endpoint(&self) -> Endpoint {
        self.hear("where it is", |line| Some(parse(line)?.0))
    }

    /// Returns the status of the writer's last write, which may have been refused.
    pub fn ending(&self) -> CompletionStatus {
        self.hear("how it has ended", ending)
    }

    /// Returns the status of a write that has failed by now, if one has.
    pub fn ended(&self) -> Option<CompletionStatus> {
        self.hears.try_iter().find_map(|line| ending(&line))
    }

    /// Waits for the next line that `about` accepts.
    fn hear<T>(&self, what: &str, about: impl Fn(&str) -> Option<T>) -> T {
        let patience = soon();
        loop {
            let line = self.hears.recv_timeout(patience.remaining());
            let line = line.unwrap_or_else(|error| panic!("the writer does not say {what}: {error}"));
            if let Some(said) = about(&line) {
                return said;
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Stops the writer; it executes nothing more when this returns.
    pub fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "a writer has ended: {status:?}");
    }

    pub fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    pub fn kill(&self) {
        kill_process(self.pid(), Signal::KILL).unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the status that such a line tells.
fn ending(line: &str) -> Option<CompletionStatus> {
    Some(CompletionStatus(line.strip_prefix(ENDED)?.parse().unwrap()))
}

/// Reads the lines of the other side as they come.
fn lines(from: impl BufRead + Send + 'static) -> Receiver<String> {
    let (says, hears) = channel();
    std::thread::spawn(move || from.lines().map_while(Result::ok).try_for_each(|line| says.send(line)));
    hears
}

#[test]
#[ignore = "it is one end of two: the other tests start it"]
fn a_writer_of_the_attacks() {
    // The writer must not outlive the thread that started it, however that ends.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let hears = lines(BufReader::new(std::io::stdin()));
    let End { qp, mut worker, pd, context: _context, retry: patient } = End::new();
    // Few retries, so that the writer soon notices that it was fenced.
    let impatient = RetryOptions { ack_timeout: AckTimeout::new(15), retry_cnt: 1, ..patient };
    worker.fence(qp, soon()).unwrap();
    let source = pd.alloc_region(2 * STRIPE, Access::LOCAL_WRITE).unwrap();
    for half in [0, 1] {
        source.copy_in(half * STRIPE, &vec![OLD + half as u8; STRIPE]).unwrap();
    }
    let mut hammer = Hammer { source: worker.attach(&source), worker, hears };
    let path = PathOptions { gid_index: end::GID_INDEX, ..PathOptions::default() };
    let mut told = hammer.hears.recv().ok();
    while let Some(said) = told {
        let [whole, is_impatient] = [0, 1].map(|word| said.split(' ').nth(word) == Some("true"));
        let (peer, stripe) = parse(&said).expect("what to write");
        let idle = end::queue_pair(&mut hammer.worker, &pd);
        print!("{}", line(&idle.endpoint(&hammer.worker, end::GID_INDEX).unwrap(), stripe));
        std::io::stdout().flush().unwrap();
        let retry = if is_impatient { &impatient } else { &patient };
        let qp = idle.connect(&mut hammer.worker, &peer, &path, retry).unwrap();
        // A first write that waited for an owner on a busy machine could use up the few retries.
        hammer.worker.peer_slice(&qp, stripe, soon()).ready().unwrap();
        told = hammer.write_on(&qp, stripe, whole);
        hammer.worker.fence(qp, soon()).unwrap();
        while hammer.worker.poll().unwrap().is_some() {}
    }
}

struct Hammer {
    /// Two stripes with different bytes, written in turn.
    source: Attached,
    worker: Worker,
    hears: Receiver<String>,
}

impl Hammer {
    /// Writes until there is a new order, and returns that.
    fn write_on(&mut self, qp: &QueuePair<ReadyToSend>, stripe: RemoteMemory, whole: bool) -> Option<String> {
        let mut random = Random::of(u64::from(std::process::id()) ^ u64::from(qp.num().0));
        for message in 0.. {
            let most = 1 << random.below(21);
            let len = if whole || message == 0 { STRIPE } else { 1 + random.below(most) };
            let at = random.below(STRIPE - len + 1);
            let target = stripe.slice(at as u64..(at + len) as u64).unwrap();
            let source = self.source.range(message % 2 * STRIPE + at, len);
            self.worker.post(qp, Work::write(source, target)).unwrap();
            loop {
                match self.hears.try_recv() {
                    Ok(said) => return Some(said),
                    Err(TryRecvError::Disconnected) => return None,
                    Err(TryRecvError::Empty) => {}
                }
                let Ok(done) = self.worker.wait(Deadline::after(LOOK)) else { continue };
                match done.result {
                    Ok(_) => break,
                    Err(error) => {
                        println!("{ENDED}{}", error.status.0);
                        return self.hears.recv().ok();
                    }
                }
            }
        }
        None
    }
}
