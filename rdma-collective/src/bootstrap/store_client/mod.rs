//! A rank's side of the store: blocking calls, each with a deadline.

mod find;

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rdma_core::Deadline;

use super::JobToken;
use super::connection::notice_vanishing;
use super::frame::{FrameReader, VERSION};
use super::message::{
    GATHERED_BYTES_MAX, Hello, KEY_BYTES_MAX, REPLY_BYTES_MAX, Ranks, Refusal, Reply, Request,
    VALUE_BYTES_MAX,
};
use crate::bootstrap::{BootstrapError, Elsewhere, FrameError, RankList};

/// The longest that one attempt to connect takes, so that one lost packet does not cost a minute.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(3);
/// The longest pause between two attempts.
const CONNECT_PAUSE_MAX: Duration = Duration::from_millis(200);

/// Reads after the deadline: header and payload of the answer, and of one that was given up before.
const LATE_READS_MAX: u32 = 4;

/// Which store to join, and as whom.
#[derive(Clone, Debug)]
pub struct Join {
    /// Where the store listens.
    pub address: SocketAddr,
    /// The job's token.
    pub token: JobToken,
    /// This process's rank.
    pub rank: u32,
    /// How many ranks the job has.
    pub world: u32,
}

/// One rank's connection to the store.
///
/// A rank that drops it has left: gatherings of the others then fail at once, naming it. Keep it as long as
/// others may need this rank.
#[derive(Debug)]
pub struct StoreClient {
    join: Join,
    stream: TcpStream,
    reader: FrameReader,
    next_id: u32,
    lost: bool,
    /// What others may have been told of where this is, when they do not come.
    elsewhere: Option<Box<Elsewhere>>,
}

impl StoreClient {
    /// Joins the store, trying again until the deadline while nobody listens there.
    ///
    /// # Errors
    /// [`BootstrapError`]: unreachable or silent until the deadline, not a store, or refused, with both sides' values
    /// of what does not match.
    pub fn connect(join: Join, deadline: Deadline) -> Result<Self, BootstrapError> {
        let started = Instant::now();
        let address = join.address;
        let attempt =
            getrandom::u64().map_err(|error| BootstrapError::Random { reason: error.to_string() })?;
        let mut pause = Duration::from_millis(5);
        loop {
            let source = match Self::attempt(&join, attempt, deadline) {
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

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.join.rank
    }

    /// How many ranks the job has.
    #[must_use]
    pub fn world(&self) -> u32 {
        self.join.world
    }

    /// The job's token.
    pub(crate) fn token(&self) -> JobToken {
        self.join.token
    }

    /// From now on, whose ranks do not come is told this as well.
    pub(crate) fn set_elsewhere(&mut self, elsewhere: Elsewhere) {
        self.elsewhere = Some(Box::new(elsewhere));
    }

    /// The address by which this machine reaches the store, and so likely the one by which others reach it.
    ///
    /// # Errors
    /// [`BootstrapError::Lost`] when the connection is gone.
    pub fn local_address(&self) -> Result<SocketAddr, BootstrapError> {
        self.stream.local_addr().map_err(|source| self.lost(source))
    }

    /// Sets `key`, in place of what it had.
    ///
    /// # Errors
    /// [`BootstrapError::TooLarge`], [`BootstrapError::Full`], or no answer before the deadline.
    pub fn set(&mut self, key: &str, value: &[u8], deadline: Deadline) -> Result<(), BootstrapError> {
        check_len("a key", key.len(), KEY_BYTES_MAX)?;
        check_len("a value", value.len(), VALUE_BYTES_MAX)?;
        let request = |_| Request::Set { key: key.to_owned(), value: value.to_vec() };
        match self.call("", request, deadline)? {
            Reply::Done => Ok(()),
            _ => Err(self.unexpected()),
        }
    }

    /// The value of `key`, waiting until somebody sets it.
    ///
    /// # Errors
    /// [`BootstrapError::KeyMissing`] with the ranks that have not joined when nobody sets it in time.
    pub fn get(&mut self, key: &str, deadline: Deadline) -> Result<Vec<u8>, BootstrapError> {
        check_len("a key", key.len(), KEY_BYTES_MAX)?;
        let started = Instant::now();
        let request = |wait_ms| Request::Get { wait_ms, key: key.to_owned() };
        match self.call("", request, deadline)? {
            Reply::Value(value) => Ok(value),
            Reply::TimedOut(absent) => Err(BootstrapError::KeyMissing {
                key: key.to_owned(),
                waited: started.elapsed(),
                absent: absent.into(),
            }),
            _ => Err(self.unexpected()),
        }
    }

    /// The values that all ranks come with to `name`, by rank, once the last one has come.
    ///
    /// All values together are bounded: 4 MiB, so 1 KiB each of 4096 ranks.
    ///
    /// # Errors
    /// [`BootstrapError::RanksMissing`] names the ranks that did not come in time; this rank has then not come either.
    /// [`BootstrapError::RankLeft`] as soon as a rank that had joined is gone.
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

    /// Waits until all ranks have come to `name`.
    ///
    /// # Errors
    /// As [`StoreClient::all_gather`].
    pub fn barrier(&mut self, name: &str, deadline: Deadline) -> Result<(), BootstrapError> {
        self.all_gather(name, &[], deadline).map(|_| ())
    }

    /// One attempt to join. An error that is `Lost` may pass, all others are final.
    fn attempt(join: &Join, attempt: u64, deadline: Deadline) -> Result<Self, BootstrapError> {
        let address = join.address;
        let lost = |source| BootstrapError::Lost { address, source };
        let wait = deadline.remaining().clamp(Duration::from_millis(1), CONNECT_ATTEMPT);
        let stream = TcpStream::connect_timeout(&address, wait).map_err(lost)?;
        // Without a listener, a port of the range that clients are given may by chance be connected to itself.
        if stream.local_addr().map_err(lost)? == address {
            return Err(lost(ErrorKind::ConnectionRefused.into()));
        }
        stream.set_nodelay(true).map_err(lost)?;
        notice_vanishing(&stream);
        let mut client = Self {
            join: join.clone(),
            stream,
            reader: FrameReader::new(REPLY_BYTES_MAX),
            next_id: 0,
            lost: false,
            elsewhere: None,
        };
        let Join { token, rank, world, .. } = *join;
        match client.call("", |_| Request::Hello(Hello { token, rank, world, attempt }), deadline)? {
            Reply::Welcome => Ok(client),
            _ => Err(client.unexpected()),
        }
    }

    /// Sends a request, made with the time that the store may wait, and gives its answer.
    fn call(
        &mut self,
        name: &str,
        request: impl FnOnce(u32) -> Request,
        deadline: Deadline,
    ) -> Result<Reply, BootstrapError> {
        if self.lost {
            return Err(self.lost(ErrorKind::NotConnected.into()));
        }
        let started = Instant::now();
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let bytes = request(store_wait(deadline.remaining())).encode(id).encode();
        let outcome = self.send(&bytes, deadline).and_then(|()| self.receive(id, deadline));
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

    fn send(&mut self, mut bytes: &[u8], deadline: Deadline) -> Result<(), Failed> {
        remaining(deadline)?;
        // Half a request cannot be taken back.
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

    /// The answer to request `id`; those to requests that were given up are passed over.
    fn receive(&mut self, id: u32, deadline: Deadline) -> Result<Reply, Failed> {
        let mut buffer = [0; 8192];
        let mut late_reads = 0;
        loop {
            // What has arrived by the deadline is taken, even when this process was not looking.
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
                // A store of another version cannot know where our request has its identifier.
                let reply = Reply::decode(&frame).map_err(Failed::Frame)?;
                if frame.id == id || matches!(reply, Reply::Refused(Refusal::OtherVersion { .. })) {
                    return Ok(reply);
                }
            }
        }
    }

    fn refused(&mut self, refusal: Refusal, name: &str) -> BootstrapError {
        match refusal {
            Refusal::OtherVersion { store, client } => BootstrapError::OtherVersion { store, client },
            Refusal::OtherToken { store, client } => BootstrapError::OtherToken { store, client },
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
            Refusal::Left { rank } => BootstrapError::RankLeft { rank, name: name.to_owned() },
        }
    }

    /// An answer to something else: there is no telling what the next one would be.
    fn unexpected(&mut self) -> BootstrapError {
        self.lost = true;
        let source = FrameError::Malformed { what: "answer for its request" };
        BootstrapError::NotAStore { address: self.join.address, source }
    }

    fn lost(&self, source: io::Error) -> BootstrapError {
        BootstrapError::Lost { address: self.join.address, source }
    }
}

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

/// What is left, for a socket: not 0, which would be for ever.
fn remaining(deadline: Deadline) -> Result<Duration, Failed> {
    let remaining = deadline.remaining();
    if remaining.is_zero() { Err(Failed::Deadline) } else { Ok(remaining.max(Duration::from_millis(1))) }
}

/// How long the store may wait, in milliseconds: a little less than the caller, so that it is the store that
/// says what is missing.
fn store_wait(remaining: Duration) -> u32 {
    let wait = remaining - (remaining / 8).min(Duration::from_millis(500));
    u32::try_from(wait.as_millis()).unwrap_or(u32::MAX)
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn check_len(what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), BootstrapError> {
    if bytes > bytes_max {
        return Err(BootstrapError::TooLarge { what, bytes: bytes as u64, bytes_max: bytes_max as u64 });
    }
    Ok(())
}
