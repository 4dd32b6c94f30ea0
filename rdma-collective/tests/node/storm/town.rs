//! All processes of a storm, as the test has them: it starts and ends them, and carries lines between them.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{DEVICE, ELDERS, NAME, PATIENCE};
use crate::common::random::Random;

/// A process that runs.
struct Resident {
    child: Child,
    /// The blob of its node, once it has said so.
    blob: Option<String>,
    /// Whether it has been told to leave.
    leaves: bool,
}

/// A line of the process that came as the `generation`th under the name of the slot.
struct Said {
    slot: usize,
    generation: u32,
    /// Absent when the process has ended.
    line: Option<String>,
}

pub struct Town {
    pub random: Random,
    device: String,
    /// Slots of each role: prefills come first.
    each: usize,
    residents: Vec<Option<Resident>>,
    /// Processes that have come under each name.
    generations: Vec<u32>,
    /// Whether decodes ask for blocks.
    asks: bool,
    says: Sender<Said>,
    hears: Receiver<Said>,
    /// Requests that were to be the last of two, and have not moved.
    owed: BTreeSet<u64>,
    books: Option<String>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    joined: u32,
    left: u32,
    killed: u32,
    moved: u32,
    failed: u32,
    unpushed: u32,
    unmet: u32,
}

impl Town {
    pub fn new(device: &str, each: usize, seed: u64) -> Self {
        let (says, hears) = channel();
        Self {
            random: Random::of(seed),
            device: device.to_owned(),
            each,
            residents: (0..2 * each).map(|_| None).collect(),
            generations: vec![0; 2 * each],
            asks: false,
            says,
            hears,
            owed: BTreeSet::new(),
            books: None,
            counts: Counts::default(),
        }
    }

    fn name(&self, slot: usize) -> String {
        if slot < self.each { format!("p{slot}") } else { format!("d{}", slot - self.each) }
    }

    fn slot(&self, name: &str) -> usize {
        let number: usize = name[1..].parse().unwrap();
        if name.starts_with('p') { number } else { self.each + number }
    }

    /// Whether the process of a slot stays all the time.
    fn is_elder(&self, slot: usize) -> bool {
        slot % self.each < ELDERS
    }

    pub fn is_there(&self, slot: usize) -> bool {
        self.residents[slot].is_some()
    }

    /// Tells a process something, if it is there.
    fn tell(&mut self, slot: usize, told: &str) {
        let Some(resident) = &mut self.residents[slot] else { return };
        // A process that has ended meanwhile hears nothing more.
        let _ = resident.child.stdin.as_mut().unwrap().write_all(format!("{told}\n").as_bytes());
    }

    /// Starts a process of that name, which others meet once it says where it is.
    pub fn start(&mut self, slot: usize) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["storm::process::one_process", "--exact", "--ignored", "--nocapture"])
            .env(NAME, self.name(slot))
            .env(DEVICE, &self.device)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        self.generations[slot] += 1;
        self.counts.joined += 1;
        let (generation, says) = (self.generations[slot], self.says.clone());
        let out = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            let lines = out.lines().map_while(Result::ok).map(Some).chain([None]);
            lines.map(|line| Said { slot, generation, line }).try_for_each(|said| says.send(said))
        });
        self.residents[slot] = Some(Resident { child, blob: None, leaves: false });
    }

    pub fn kill(&mut self, slot: usize) {
        let Some(mut resident) = self.residents[slot].take() else { return };
        resident.child.kill().unwrap();
        resident.child.wait().unwrap();
        self.counts.killed += 1;
    }

    /// Has a node leave; its process ends a little later.
    pub fn leave(&mut self, slot: usize) {
        self.tell(slot, "leave");
        if let Some(resident) = &mut self.residents[slot] {
            resident.leaves = true;
            self.counts.left += 1;
        }
    }

    /// Has decodes ask for blocks, from now on.
    pub fn ask(&mut self) {
        self.asks = true;
        for slot in self.each..2 * self.each {
            let told = format!("ask {}", self.random.below(1 << 60));
            self.tell(slot, &told);
        }
    }

    /// Has decodes ask for no more.
    pub fn quiet(&mut self) {
        self.asks = false;
        (self.each..2 * self.each).for_each(|slot| self.tell(slot, "quiet"));
    }

    /// Has each decode ask each prefill for blocks, which must arrive.
    pub fn all_move_one(&mut self) {
        self.until("who leaves has ended, and who comes is there", |town| {
            town.residents.iter().flatten().all(|resident| !resident.leaves && resident.blob.is_some())
        });
        for decode in self.each..2 * self.each {
            for prefill in 0..self.each {
                if self.is_there(decode) && self.is_there(prefill) {
                    let request = self.random.below(u64::MAX);
                    self.owed.insert(request);
                    self.tell(decode, &format!("last {} {request}", self.name(prefill)));
                }
            }
        }
        self.until("each decode has blocks of each prefill", |town| town.owed.is_empty());
    }

    /// Waits until so many processes are left.
    pub fn settle(&mut self, left: usize) {
        self.until("the others have left", |town| town.residents.iter().flatten().count() == left);
    }

    /// The books of a process, once nothing is under way there and it has no other peers than those that stay.
    pub fn books(&mut self, slot: usize) -> String {
        self.tell(slot, &format!("books {ELDERS}"));
        self.until("a process has read its books", |town| town.books.is_some());
        self.books.take().unwrap()
    }

    /// Asserts that the books of a process are those of before.
    pub fn assert_books(&mut self, slot: usize, before: &str) {
        let counts = |books: &str| books.split("; maps ").next().unwrap().to_owned();
        let maps = |books: &str| books.split("; maps ").nth(1).unwrap().parse::<usize>().unwrap();
        let patience = Instant::now() + Duration::from_secs(30);
        let mut now = self.books(slot);
        while counts(&now) != counts(before) && Instant::now() < patience {
            thread::sleep(Duration::from_millis(50));
            now = self.books(slot);
        }
        println!("{}: {before} before, {now} after", self.name(slot));
        assert_eq!(counts(&now), counts(before), "{}", self.name(slot));
        // Stacks and arenas of threads that have ended are kept for the next ones.
        assert!(maps(&now) <= maps(before) + 100, "{}: {before} before, {now} after", self.name(slot));
    }

    /// Carries lines for that long.
    pub fn carry_on(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok(said) = self.hears.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.hear(said);
        }
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(Instant::now() < until, "in vain until {what}; {} are owed; {self}", self.owed.len());
            self.carry_on(Duration::from_millis(5));
        }
    }

    fn hear(&mut self, Said { slot, generation, line }: Said) {
        // Lines of a process that is gone, whose name another one may have.
        let is_present = self.generations[slot] == generation && self.is_there(slot);
        let Some(line) = line else {
            if is_present {
                let mut resident = self.residents[slot].take().unwrap();
                let status = resident.child.wait().unwrap();
                assert!(resident.leaves && status.success(), "{} has ended: {status}", self.name(slot));
            }
            return;
        };
        let words: Vec<&str> = line.split(' ').collect();
        match &words[..] {
            ["blob", _] if is_present => self.introduce(slot, line.clone()),
            ["want", peer, request] => {
                let told = format!("push {} {request}", self.name(slot));
                let peer = self.slot(peer);
                self.tell(peer, &told);
            }
            ["moved", _, request] => {
                self.counts.moved += 1;
                self.owed.remove(&request.parse().unwrap());
            }
            ["failed", peer, request, told @ ..] => {
                self.counts.failed += 1;
                self.judge(slot, peer, request, &told.join(" "));
            }
            ["unpushed", peer, request, told @ ..] => {
                self.counts.unpushed += 1;
                self.judge(slot, peer, request, &told.join(" "));
            }
            ["unmet", peer, generation, told @ ..] => {
                self.counts.unmet += 1;
                let other = self.slot(peer);
                let is_same = self.generations[other] == generation.parse::<u32>().unwrap();
                let leaves = |slot: usize| self.residents[slot].as_ref().is_none_or(|one| one.leaves);
                let excused = !is_present || !is_same || leaves(slot) || leaves(other);
                assert!(excused, "{} has not met {peer}: {}", self.name(slot), told.join(" "));
            }
            ["books", ..] => self.books = Some(line.clone()),
            _ => {}
        }
    }

    /// Has a process meet those of the other role, from either side.
    fn introduce(&mut self, slot: usize, blob: String) {
        let meet = |town: &Self, slot: usize, blob: &str| {
            format!("meet {} {} {blob}", town.name(slot), town.generations[slot])
        };
        let others = if slot < self.each { self.each..2 * self.each } else { 0..self.each };
        for other in others {
            let Some(Resident { blob: Some(theirs), .. }) = &self.residents[other] else { continue };
            let (asked, told) = if self.random.is_one_in(2) {
                (slot, meet(self, other, theirs))
            } else {
                (other, meet(self, slot, &blob))
            };
            self.tell(asked, &told);
        }
        self.residents[slot].as_mut().unwrap().blob = Some(blob);
        if self.asks && slot >= self.each {
            let told = format!("ask {}", self.random.below(1 << 60));
            self.tell(slot, &told);
        }
    }

    /// Asserts that an error names the peer, and that no error comes to two that stay.
    fn judge(&self, slot: usize, peer: &str, request: &str, told: &str) {
        let own = self.name(slot);
        // A name that the node does not know any more is quoted.
        let names =
            [format!("node {peer}"), format!("node \"{peer}\"")].iter().any(|name| told.contains(name));
        assert!(names, "{own}: the error of request {request} does not name {peer}: {told}");
        let stay = self.is_elder(slot) && self.is_elder(self.slot(peer));
        assert!(!stay, "{own} and {peer} stay, and request {request} has failed: {told}");
        let is_owed = request.parse().is_ok_and(|request| self.owed.contains(&request));
        assert!(!is_owed, "{own} and {peer} have survived, and request {request} has failed: {told}");
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        (0..self.residents.len()).for_each(|slot| self.kill(slot));
    }
}

impl fmt::Display for Town {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { joined, left, killed, moved, failed, unpushed, unmet } = self.counts;
        write!(
            f,
            "{joined} processes have come, {left} have left, {killed} were killed; {moved} requests have moved, \
             {failed} grants, {unpushed} pushes and {unmet} meetings have failed"
        )
    }
}
