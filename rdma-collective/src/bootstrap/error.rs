//! Errors of the bootstrap: tokens, frames, the search for the store, and the store's refusals.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::env::Setting;

/// The reason why a process did not meet the others, or could not serve the store.
///
/// After [`Lost`](Self::Lost), [`NotAStore`](Self::NotAStore) and [`OtherVersion`](Self::OtherVersion) the client is of
/// no more use. The other errors leave it usable.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The system gives no random numbers, which a token and a join need.
    #[error("the system gives no random numbers ({reason}); see whether getrandom is allowed here")]
    Random {
        /// The system's reason.
        reason: String,
    },
    /// The text is no job token.
    #[error(
        "a job token is 32 hexadecimal digits, not {len} characters; hand on what JobToken::to_hex gives"
    )]
    NotAToken {
        /// The length of the text, in bytes. The text itself is not kept, because it may be a secret.
        len: usize,
    },
    /// The number of ranks is out of the range that a store serves.
    #[error("a job of {world} ranks cannot meet here; use 1 to {world_max}")]
    WorldSize {
        /// The number that was asked for.
        world: u32,
        /// The largest number allowed.
        world_max: u32,
    },
    /// The store cannot listen at the address.
    #[error(
        "the store cannot listen at {address}: {source}; choose an address of this machine, and port 0 for a free one"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// Every port at which the store may be looked for is taken.
    #[error("the ports {ports:?} of {host} are all taken; set MASTER_PORT to another one, on all ranks")]
    NoFreePort {
        /// The address at which the ports were tried.
        host: IpAddr,
        /// The ports that were tried.
        ports: Vec<u16>,
    },
    /// None of the ports at which the store may listen is the store of this job.
    #[error(
        "no store of this job at {host}, ports {ports:?}, within {waited:.1?}; see whether rank 0 runs there{}; if it \
         has ended, its log says why. The last that answered: {source}",
        told(by.as_ref())
    )]
    NotFound {
        /// The host that was searched.
        host: IpAddr,
        /// The ports that were searched.
        ports: Vec<u16>,
        /// Time that the search took.
        waited: Duration,
        /// The most telling answer of another server.
        source: Box<BootstrapError>,
        /// The variable that names the host, if one does.
        by: Option<Setting>,
    },
    /// The name of a host could not be resolved.
    #[error(
        "the host {:?} has no address: {reason}; see MASTER_ADDR, and whether its pod has started",
        crate::quoted::Quoted(host)
    )]
    UnknownHost {
        /// The host.
        host: String,
        /// The system's reason.
        reason: String,
    },
    /// Another process holds the job's name on this host.
    #[error(
        "the name {name} of this job is taken on this host ({source}): {} is its rank 0; give each job \
         its own MASTER_PORT, and MASTER_ADDR",
        holder.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The pid of the process that holds the name, if the system tells it.
        holder: Option<u32>,
        /// The system's reason.
        source: io::Error,
    },
    /// No process of this host serves the job's name.
    #[error(
        "no rank 0 of {name} on this host within {waited:.1?}; see whether it runs, and when it runs on another host \
         or in another container set MASTER_ADDR and MASTER_PORT on all ranks"
    )]
    NobodyByName {
        /// The name.
        name: String,
        /// Time that this process waited.
        waited: Duration,
    },
    /// Another user holds the job's name on this host.
    #[error(
        "user {uid} holds the name {name} on this host, and this job is of user {own}; ask why, or set MASTER_ADDR and MASTER_PORT"
    )]
    Impostor {
        /// The name.
        name: String,
        /// The user id of the holder.
        uid: u32,
        /// The user id of this process.
        own: u32,
    },
    /// The store cannot start to serve, or had to stop.
    #[error(
        "the store cannot {what}: {source}; see the limits on descriptors, threads and memory (ulimit -a)"
    )]
    Serve {
        /// The action that failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Some ranks were still connected at the deadline of the close.
    #[error("{ranks} had not left the store when it closed; let every rank leave before, or allow more time")]
    StillJoined {
        /// The ranks that were connected.
        ranks: RankList,
    },
    /// No process accepted a connection at the store's address.
    #[error(
        "no store at {address} within {waited:.1?}: {source}; see whether the first rank runs and \
         whether a firewall is between"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// Time for which it was tried.
        waited: Duration,
        /// Why the last try failed.
        source: io::Error,
    },
    /// The answer is not that of a store, or is damaged.
    #[error("what answers at {address} is not this library's store: {source}; check address and port")]
    NotAStore {
        /// The address.
        address: SocketAddr,
        /// The defect of the answer.
        source: FrameError,
    },
    /// The store did not answer before the deadline.
    #[error(
        "the store at {address} did not answer within {waited:.1?}; see whether the process that serves it (rank 0, or the \
         launcher) is stopped or overloaded"
    )]
    NoAnswer {
        /// The store's address.
        address: SocketAddr,
        /// Time that this process waited.
        waited: Duration,
    },
    /// The connection to the store is lost; the client is of no more use.
    #[error(
        "the connection to the store at {address} is lost: {source}; see whether the process that serves it (rank 0, or the \
         launcher) has ended"
    )]
    Lost {
        /// The store's address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The store runs another version.
    #[error("the store speaks version {store}, this process version {client}; run one release on all ranks")]
    OtherVersion {
        /// The store's version.
        store: u16,
        /// The version of this process.
        client: u16,
    },
    /// The store has another token. The store says nothing of its token, because a stranger could work it out.
    #[error(
        "the store has another token than this process ({client:08x}…); start all ranks with one token, and each job \
         with its own port; the fingerprint of the store's token is in the log of its process (NCCL_DEBUG=TRACE)"
    )]
    OtherToken {
        /// The fingerprint of this process's token.
        client: u32,
    },
    /// The store serves another job, or two jobs use one port.
    #[error(transparent)]
    Mixed(#[from] MixedJobs),
    /// The store expects another number of ranks.
    #[error(
        "the store expects {store} ranks, this process was started as one of {client}; start all with one number"
    )]
    OtherWorld {
        /// The number of ranks that the store expects.
        store: u32,
        /// The number of ranks that this process was started with.
        client: u32,
    },
    /// The rank is beyond the number of ranks.
    #[error("rank {rank} is not one of {world}; ranks count from 0")]
    NoSuchRank {
        /// The rank of this process.
        rank: u32,
        /// The number of ranks.
        world: u32,
    },
    /// Another process has joined as this rank.
    #[error(
        "rank {rank} has joined from {} before, this process comes from {second}; give each process its own rank",
        crate::quoted::Quoted(first)
    )]
    JoinedTwice {
        /// The rank.
        rank: u32,
        /// The address of the process that joined first.
        first: String,
        /// The address of this process.
        second: SocketAddr,
    },
    /// A key, value or gathering is beyond its bound.
    #[error(
        "{what} of {bytes} bytes is longer than {bytes_max}; exchange an address and send data over links"
    )]
    TooLarge {
        /// The item that is too long.
        what: &'static str,
        /// The length of the item, in bytes.
        bytes: u64,
        /// The longest allowed, in bytes.
        bytes_max: u64,
    },
    /// The store has no room for the value.
    #[error("the store keeps {bytes_max} bytes for a rank, and no more; set fewer or shorter values")]
    Full {
        /// The most that the store keeps for one rank, in bytes.
        bytes_max: u64,
    },
    /// The key belongs to another rank: `comm/…/RANK/…` is set by RANK alone.
    #[error("key {key:?} is set by rank {owner} alone; choose a key that does not begin with comm/")]
    KeyOwned {
        /// The key.
        key: String,
        /// The rank that may set it.
        owner: u32,
    },
    /// No rank set the key in time.
    #[error("key {key:?} was not set within {waited:.1?}; {}", hint(absent))]
    KeyMissing {
        /// The key.
        key: String,
        /// Time that this process waited.
        waited: Duration,
        /// The ranks that have not joined.
        absent: RankList,
    },
    /// Some ranks did not come to a gathering in time.
    #[error(
        "{missing} did not come to {name:?} within {waited:.1?}; see whether they run and where they wait{}",
        elsewhere.as_ref().map(|elsewhere| format!(": {elsewhere}")).unwrap_or_default()
    )]
    RanksMissing {
        /// The name of the gathering.
        name: String,
        /// Time that this process waited.
        waited: Duration,
        /// The ranks that did not come.
        missing: RankList,
        /// The reason why they may look for rank 0 in the wrong place; known at rank 0 only.
        elsewhere: Option<Box<Elsewhere>>,
    },
    /// A rank has left, so no gathering can become complete any more.
    #[error("rank {rank} has left the store, and {name:?} needs all ranks; see why its process ended")]
    RankLeft {
        /// The rank that left.
        rank: u32,
        /// The name of the gathering.
        name: String,
    },
    /// This process was forked from the one that met the others, or serves the store.
    #[error(transparent)]
    Forked(#[from] rdma_core::error::Forked),
}

/// A mismatch of addresses: the one that the ranks were given for rank 0 is none of rank 0's host.
///
/// This may be in order, if a service or an address translation leads from there to rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The variable that gives the address of rank 0.
    pub by: Setting,
    /// The address that the variable stands for, which is none of this host's.
    pub ip: IpAddr,
    /// The address at which rank 0 listens instead.
    pub listens: SocketAddr,
}

impl fmt::Display for Elsewhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, ip, listens } = self;
        write!(
            f,
            "rank 0 listens on {listens}, all interfaces, since {by} ({ip}) is no address of its host; unless a \
             service or a translation leads from there to here, the others do not find it: set {} to an address of \
             rank 0's host, on all ranks",
            by.name
        )
    }
}

/// The name of a run, quoted because it comes from the network.
fn run(name: &str) -> String {
    if name.is_empty() { "a job without a launcher's name".to_owned() } else { format!("the run {name:?}") }
}

fn told(by: Option<&Setting>) -> String {
    by.map(|by| format!(", since {by} says so; rank 0 warns where that is no address of its host"))
        .unwrap_or_default()
}

fn hint(absent: &RankList) -> String {
    if absent.count() == 0 {
        "all ranks have joined, see which one is to set it".to_owned()
    } else {
        format!("{absent} have not joined, see whether they run")
    }
}

/// A set of ranks for an error: their number, and the first of them.
///
/// A part of [`BootstrapError`](crate::bootstrap::BootstrapError).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList {
    count: u32,
    first: Vec<u32>,
}

impl RankList {
    pub(crate) fn new(count: u32, first: Vec<u32>) -> Self {
        Self { count, first }
    }

    /// The number of ranks.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The lowest ranks of the set, at most 16.
    #[must_use]
    pub fn first(&self) -> &[u32] {
        &self.first
    }
}

impl fmt::Display for RankList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed: Vec<String> = self.first.iter().map(u32::to_string).collect();
        let more = u64::from(self.count).saturating_sub(self.first.len() as u64);
        match (&listed[..], more) {
            ([one], 0) => write!(f, "rank {one}"),
            ([init @ .., last], 0) if !init.is_empty() => write!(f, "ranks {} and {last}", init.join(", ")),
            ([], _) => write!(f, "{} ranks", self.count),
            (listed, more) => write!(f, "ranks {} and {more} more", listed.join(", ")),
        }
    }
}

/// The reason why bytes are no frame of a store.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes do not begin like a frame.
    #[error("the first bytes are not a frame's")]
    NotAStore,
    /// The frame has another version.
    #[error("the frame is of version {theirs}")]
    OtherVersion {
        /// The version of the frame.
        theirs: u16,
    },
    /// The frame is longer than allowed at this point.
    #[error("the frame announces {bytes} bytes where {bytes_max} are allowed")]
    TooLarge {
        /// The length that the frame announces, in bytes.
        bytes: u32,
        /// The longest allowed at this point, in bytes.
        bytes_max: u32,
    },
    /// The frame's kind is none of this protocol.
    #[error("there is no message of kind {kind}")]
    UnknownKind {
        /// The kind of the frame.
        kind: u8,
    },
    /// A field of the message is wrong.
    #[error("the message has a wrong {what}")]
    Malformed {
        /// The field that is wrong.
        what: &'static str,
    },
}

/// The store is not that of this process's job.
///
/// The text names the jobs, or the process that serves the store, and says what to set. Show it: no program can mend
/// one cause and not another.
///
/// Raised as [`BootstrapError::Mixed`].
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct MixedJobs(#[from] pub(crate) MixedJobsKind);

/// The reason why the store is not that of this process's job.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MixedJobsKind {
    /// The launcher gives the store's job another name than this process's.
    #[error(
        "the store is of {}, this process of {}; this process looks on for its own job",
        run(store),
        run(client)
    )]
    OtherRun { store: String, client: String },
    /// The store has another job number than the one that this process joined.
    #[error(
        "the store is of job number {store:016x}, this process joined job number {client:016x}; another store has taken \
         its place, so start the job again"
    )]
    OtherNumber { store: u64, client: u64 },
    /// Two jobs use one port, and nothing tells their ranks apart.
    #[error(
        "two jobs use one port: process {pid} on {} serves the job at {address}, and a second process came as rank \
         {rank}; give each job its own MASTER_PORT, or its own token: export RDMA_JOB_TOKEN=$(openssl rand -hex 16)",
        host.escape_debug()
    )]
    TwoJobs { address: SocketAddr, rank: u32, pid: u32, host: String },
}

impl From<MixedJobsKind> for BootstrapError {
    fn from(kind: MixedJobsKind) -> Self {
        Self::Mixed(kind.into())
    }
}
