//! The client of the store: a rank's connection, with blocking calls that each have a deadline.
//!
//! How a rank finds a store whose port is not certain is in `find`.

mod find;

pub(super) use find::claim;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rdma_core::Deadline;
use rdma_core::memory::OwnProcess;

use super::JobToken;
use super::connection::notice_vanishing;
use super::frame::{FrameReader, VERSION};
use super::message::{
    GATHERED_BYTES_MAX, Hello, KEY_BYTES_MAX, REPLY_BYTES_MAX, Ranks, Refusal, Reply, Request,
    VALUE_BYTES_MAX, run_hash, with_number,
};
use crate::bootstrap::{BootstrapError, Elsewhere, FrameError, MixedJobsKind, RankList};

/// The longest single attempt to connect, so that one lost packet does not cost a minute.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(3);
/// The longest pause between two attempts to connect.
const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Reads that are made after the deadline, for an answer that has arrived already: header and payload of the answer,
/// and of one answer that was given up before.
const LATE_READS_MAX: u32 = 4;

/// The store to join, and the rank to join it as.
///
/// The argument of [`StoreClient::connect`](crate::bootstrap::StoreClient::connect).
#[derive(Clone, Debug)]
pub struct Join {
    /// The address at which the store listens.
    pub address: SocketAddr,
    /// The job's token.
    pub token: JobToken,
    /// This process's rank.
    pub rank: u32,
    /// The number of ranks of the job.
    pub world: u32,
}

/// The connection of one rank to the store.
///
/// Dropping it means that the rank has left: gatherings of the other ranks then fail at once and name it. Keep the
/// client as long as others may need this rank. See [`StoreServer`](super::StoreServer) for an example.
#[derive(Debug)]
pub struct StoreClient {
    join: Join,
    /// The launcher's name for the job; empty if there is none.
    run: String,
    /// The job's number; `None` until this process has joined.
    number: Option<u64>,
    stream: TcpStream,
    /// The process whose requests the store answers. A forked child would mix its own into the stream.
    process: OwnProcess<()>,
    reader: FrameReader,
    next_id: u32,
    /// The connection is of no more use.
    lost: bool,
    /// The mismatch between rank 0's address and the one that others were given, for the error when they do not come.
    elsewhere: Option<Box<Elsewhere>>,
    /// The rank whose process serves the store, as far as is known.
    served_by: Option<u32>,
}

impl StoreClient {
    /// Joins the store at the address in `join`. While nobody listens there, the call tries again until the deadline.
    ///
    /// # Errors
    /// [`BootstrapError::Unreachable`] or [`BootstrapError::NoAnswer`] at the deadline. A refusal, such as
    /// [`BootstrapError::OtherToken`] or [`BootstrapError::JoinedTwice`], at once and with both sides' values.
    pub fn connect(join: Join, deadline: Deadline) -> Result<Self, BootstrapError> {
        Self::connect_run(&join, "", deadline)
    }

    /// [`connect`](Self::connect) as a rank of a launcher's run.
    pub(crate) fn connect_run(join: &Join, run: &str, deadline: Deadline) -> Result<Self, BootstrapError> {
        let started = Instant::now();
        let address = join.address;
        let attempt =
            getrandom::u64().map_err(|error| BootstrapError::Random { reason: error.to_string() })?;
        let mut pause = Duration::from_millis(5);
        loop {
            let source = match Self::attempt(join, run, attempt, deadline) {
                Err(BootstrapError::Lost { source, .. }) => source,
                outcome => return outcome,
            };
            let pausing = pause.min(deadline.remaining());
            if pausing.is_zero() {
                return Err(BootstrapError::Unreachable { address, waited: started.elapsed(), source });
            }
            std::thread::sleep(pausing);
            pause = (pause * 2).min(CONNECT_PAUSE_MAX);
        }
    }

    /// Notes which rank's process serves the store.
    pub(crate) fn set_served_by(&mut self, rank: u32) {
        self.served_by = Some(rank);
    }

    /// The rank whose end explains an error, as far as it is known.
    pub(crate) fn culprit(&self, error: &BootstrapError) -> Option<u32> {
        match error {
            BootstrapError::RankLeft { rank, .. } => Some(*rank),
            BootstrapError::Lost { .. } | BootstrapError::NoAnswer { .. } => self.served_by,
            _ => None,
        }
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.join.rank
    }

    /// The number of ranks of the job.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.join.world
    }

    /// The token for all that this rank makes with others it has met: derived from the job's token and number.
    pub(crate) fn token(&self) -> JobToken {
        self.join.token.of_job(self.number.unwrap_or_default())
    }

    /// Sets a hint that errors about missing ranks carry from now on.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: Elsewhere) {
        self.elsewhere = Some(Box::new(elsewhere));
    }

    /// The local address of the connection to the store. Other hosts can likely reach this host by it, too.
    ///
    /// # Errors
    /// [`BootstrapError::Lost`] if the connection is gone.
    pub fn local_address(&self) -> Result<SocketAddr, BootstrapError> {
        self.stream.local_addr().map_err(|source| self.lost(source))
    }

    /// Sets `key` to `value`. An earlier value is replaced.
    ///
    /// # Errors
    /// [`BootstrapError::TooLarge`] beyond [`KEY_BYTES_MAX`] or [`VALUE_BYTES_MAX`], [`BootstrapError::Full`] if the
    /// store keeps 1 MiB for this rank already, [`BootstrapError::KeyOwned`] for a key of another rank,
    /// [`BootstrapError::NoAnswer`] at the deadline.
    pub fn set(&mut self, key: &str, value: &[u8], deadline: Deadline) -> Result<(), BootstrapError> {
        check_len("a key", key.len(), KEY_BYTES_MAX)?;
        check_len("a value", value.len(), VALUE_BYTES_MAX)?;
        let request = |_| Request::Set { key: key.to_owned(), value: value.to_vec() };
        match self.call(key, request, deadline)? {
            Reply::Done => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// Returns the value of `key`, and waits until a rank sets it.
    ///
    /// # Errors
    /// [`BootstrapError::KeyMissing`] at the deadline, with the ranks that have not joined.
    pub fn get(&mut self, key: &str, deadline: Deadline) -> Result<Vec<u8>, BootstrapError> {
        check_len("a key", key.len(), KEY_BYTES_MAX)?;
        let started = Instant::now();
        let request = |wait_ms| Request::Get { wait_ms, key: key.to_owned() };
        match self.call(key, request, deadline)? {
            Reply::Value(value) => Ok(value),
            Reply::TimedOut(absent) => Err(BootstrapError::KeyMissing {
                key: key.to_owned(),
                waited: started.elapsed(),
                absent: absent.into(),
            }),
            _ => Err(self.unexpected()),
        }
    }

    /// Gathers one value of every rank under `name`, and returns them by rank. All ranks must call it with the same
    /// name; the call returns once the last one has.
    ///
    /// All values together are limited to [`GATHERED_BYTES_MAX`] (4 MiB): 1 KiB for each of 4096 ranks, for example.
    ///
    /// # Errors
    /// [`BootstrapError::RanksMissing`] at the deadline, with the ranks that did not come. The value of this rank is
    /// then taken back, so the gathering of the others stays incomplete. [`BootstrapError::RankLeft`] as soon as a rank
    /// that had joined is gone.
    pub fn all_gather(
        &mut self,
        name: &str,
        value: &[u8],
        deadline: Deadline,
    ) -> Result<Vec<Vec<u8>>, BootstrapError> {
        check_len("a name", name.len(), KEY_BYTES_MAX)?;
        check_len("a value", value.len(), VALUE_BYTES_MAX)?;
        let world = self.join.world as usize;
        check_len("a gathering of all ranks", (value.len() + 4).saturating_mul(world), GATHERED_BYTES_MAX)?;
        let started = Instant::now();
        let request = |wait_ms| Request::Gather { wait_ms, name: name.to_owned(), value: value.to_vec() };
        match self.call(name, request, deadline)? {
            Reply::Gathered(values) if values.len() == world => Ok(values),
            Reply::TimedOut(missing) => Err(BootstrapError::RanksMissing {
                name: name.to_owned(),
                waited: started.elapsed(),
                missing: missing.into(),
                elsewhere: self.elsewhere.clone(),
            }),
            _ => Err(self.unexpected()),
        }
    }

    /// Waits until all ranks have called it with the same `name`.
    ///
    /// # Errors
    /// The errors of [`StoreClient::all_gather`].
    pub fn barrier(&mut self, name: &str, deadline: Deadline) -> Result<(), BootstrapError> {
        self.all_gather(name, &[], deadline).map(|_| ())
    }

    /// Makes one attempt to join. The error `Lost` may pass, so the caller tries again; all others are final.
    fn attempt(join: &Join, run: &str, attempt: u64, deadline: Deadline) -> Result<Self, BootstrapError> {
        let mut client = Self::open(join, run, deadline)?;
        let hello = client.hello(attempt);
        match client.call("join", |_| Request::Hello(hello.clone()), deadline)? {
            Reply::Welcome { number } => client.number = Some(number),
            _ => return Err(client.unexpected()),
        }
        // A second hello tells the store that this process knows of its welcome: if the process ends now, the rank has
        // left, and the others need not wait for another attempt. The answer is skipped.
        match client.ask(&Request::Hello(hello), deadline) {
            Err(Failed::Io(source)) => Err(client.lost(source)),
            _ => Ok(client),
        }
    }

    /// Connects to the store, and sends nothing yet.
    fn open(join: &Join, run: &str, deadline: Deadline) -> Result<Self, BootstrapError> {
        let address = join.address;
        let lost = |source| BootstrapError::Lost { address, source };
        let wait = deadline.remaining().clamp(Duration::from_millis(1), CONNECT_ATTEMPT);
        let stream = TcpStream::connect_timeout(&address, wait).map_err(lost)?;
        // Without a listener, a connection to an ephemeral port of this host may by chance be connected to itself.
        if stream.local_addr().map_err(lost)? == address {
            return Err(lost(ErrorKind::ConnectionRefused.into()));
        }
        stream.set_nodelay(true).map_err(lost)?;
        notice_vanishing(&stream);
        Ok(Self {
            join: join.clone(),
            run: run.to_owned(),
            number: None,
            stream,
            process: OwnProcess::new(()),
            reader: FrameReader::new(REPLY_BYTES_MAX),
            next_id: 0,
            lost: false,
            elsewhere: None,
            served_by: None,
        })
    }

    fn hello(&self, attempt: u64) -> Hello {
        let Join { token, rank, world, .. } = self.join;
        Hello { token, rank, world, attempt, run: run_hash(&self.run), pid: std::process::id() }
    }

    /// Sends a request and returns the answer. `request` is made with the time that the store may wait, in
    /// milliseconds.
    fn call(
        &mut self,
        name: &str,
        request: impl FnOnce(u32) -> Request,
        deadline: Deadline,
    ) -> Result<Reply, BootstrapError> {
        self.process.get()?;
        if self.lost {
            return Err(self.lost(ErrorKind::NotConnected.into()));
        }
        let started = Instant::now();
        let request = request(store_wait(deadline.remaining()));
        let id = self.next_id;
        let outcome = match self.ask(&request, deadline) {
            // A store that has ended may have said why before.
            Ok(_) | Err(Failed::Io(_)) => self.receive(id, deadline),
            Err(failed) => Err(failed),
        };
        match outcome {
            Ok(Reply::Refused(refusal)) => Err(self.refused(refusal, name)),
            Ok(reply) => Ok(reply),
            Err(Failed::Deadline) => {
                Err(BootstrapError::NoAnswer { address: self.join.address, waited: started.elapsed() })
            }
            Err(Failed::Io(source)) => {
                self.lost = true;
                Err(self.lost(source))
            }
            Err(Failed::Frame(FrameError::OtherVersion { theirs })) => {
                self.lost = true;
                Err(BootstrapError::OtherVersion { store: theirs, client: VERSION })
            }
            Err(Failed::Frame(source)) => {
                self.lost = true;
                Err(BootstrapError::NotAStore { address: self.join.address, source })
            }
        }
    }

    /// Sends a request, and returns its identifier.
    fn ask(&mut self, request: &Request, deadline: Deadline) -> Result<u32, Failed> {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let frame = request.encode(id);
        let frame = self.number.map_or_else(|| frame.clone(), |number| with_number(number, &frame));
        self.send(&frame.encode(), deadline)?;
        Ok(id)
    }

    fn send(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), Failed> {
        remaining(deadline)?;
        // Lost until all is sent: half a request cannot be taken back, so a failure in between ends the connection.
        self.lost = true;
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(remaining(deadline)?)).map_err(Failed::Io)?;
            match self.stream.write(bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(Failed::Io(error)),
            }
        }
        self.lost = false;
        Ok(())
    }

    /// Receives the answer to request `id`. Answers to earlier requests, which were given up, are skipped.
    fn receive(&mut self, id: u32, deadline: Deadline) -> Result<Reply, Failed> {
        let mut buffer = [0; 8192];
        let mut late_reads = 0;
        loop {
            // An answer that arrived by the deadline counts, even if this process ran again only after it. So a few
            // reads are made after the deadline, each of which waits 1 ms at most.
            late_reads += u32::from(deadline.expired());
            if late_reads > LATE_READS_MAX {
                return Err(Failed::Deadline);
            }
            let wait = deadline.remaining().max(Duration::from_millis(1));
            self.stream.set_read_timeout(Some(wait)).map_err(Failed::Io)?;
            let len = self.reader.wanted().min(buffer.len());
            let read = match self.stream.read(&mut buffer[..len]) {
                Ok(0) => return Err(Failed::Io(ErrorKind::UnexpectedEof.into())),
                Ok(read) => read,
                Err(error) if is_pause(&error) && deadline.expired() => return Err(Failed::Deadline),
                Err(error) if is_pause(&error) => continue,
                Err(error) => return Err(Failed::Io(error)),
            };
            if let Some(frame) = self.reader.push(&buffer[..read]).map_err(Failed::Frame)? {
                // A refusal for the version counts whatever its identifier: a store of another version cannot know
                // where our request has it. The last word of a store is no answer to a request either.
                let reply = Reply::decode(&frame).map_err(Failed::Frame)?;
                use Refusal::{Left, OtherVersion, TwoJobs};
                let is_last =
                    matches!(reply, Reply::Refused(OtherVersion { .. } | Left { .. } | TwoJobs { .. }));
                if frame.id == id || is_last {
                    return Ok(reply);
                }
            }
        }
    }

    /// The error for a refusal of the store.
    fn refused(&mut self, refusal: Refusal, name: &str) -> BootstrapError {
        match refusal {
            Refusal::OtherVersion { store, client } => BootstrapError::OtherVersion { store, client },
            Refusal::OtherToken => BootstrapError::OtherToken { client: self.join.token.fingerprint() },
            Refusal::OtherRun { store } => MixedJobsKind::OtherRun { store, client: self.run.clone() }.into(),
            Refusal::OtherNumber { store, client } => MixedJobsKind::OtherNumber { store, client }.into(),
            Refusal::TwoJobs { rank, pid, host } => {
                MixedJobsKind::TwoJobs { address: self.join.address, rank, pid, host }.into()
            }
            Refusal::OtherWorld { store, client } => BootstrapError::OtherWorld { store, client },
            Refusal::NoSuchRank { rank, world } => BootstrapError::NoSuchRank { rank, world },
            Refusal::JoinedTwice { rank, first } => match self.stream.local_addr() {
                Ok(second) => BootstrapError::JoinedTwice { rank, first, second },
                Err(source) => self.lost(source),
            },
            Refusal::TooLarge { bytes, bytes_max } => {
                BootstrapError::TooLarge { what: "a gathering of all ranks", bytes, bytes_max }
            }
            Refusal::Full { bytes_max } => BootstrapError::Full { bytes_max },
            Refusal::KeyOwned { owner } => BootstrapError::KeyOwned { key: name.to_owned(), owner },
            Refusal::Left { rank } => BootstrapError::RankLeft { rank, name: name.to_owned() },
        }
    }

    /// The error for an answer of the wrong kind. The connection is given up, because later answers may be wrong, too.
    fn unexpected(&mut self) -> BootstrapError {
        self.lost = true;
        let source = FrameError::Malformed { what: "answer for its request" };
        BootstrapError::NotAStore { address: self.join.address, source }
    }

    fn lost(&self, source: io::Error) -> BootstrapError {
        BootstrapError::Lost { address: self.join.address, source }
    }
}

/// The reason why a request failed on the wire.
enum Failed {
    Deadline,
    Io(io::Error),
    Frame(FrameError),
}

impl From<Ranks> for RankList {
    fn from(ranks: Ranks) -> Self {
        Self::new(ranks.count, ranks.first)
    }
}

/// The remaining time as a socket timeout: at least 1 ms, because 0 would mean no timeout at all.
fn remaining(deadline: Deadline) -> Result<Duration, Failed> {
    let remaining = deadline.remaining();
    if remaining.is_zero() { Err(Failed::Deadline) } else { Ok(remaining.max(Duration::from_millis(1))) }
}

/// The time that the store may wait, in milliseconds: a little less than the caller does, so that the store's answer
/// (with the missing ranks) arrives before the caller gives up.
fn store_wait(remaining: Duration) -> u32 {
    let wait = remaining - (remaining / 8).min(Duration::from_millis(500));
    u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)
}

/// Whether an I/O error is temporary, so that the call is made again.
fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn check_len(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), BootstrapError> {
    if bytes > bytes_max {
        return Err(BootstrapError::TooLarge { what, bytes: bytes as u64, bytes_max: bytes_max as u64 });
    }
    Ok(())
}
