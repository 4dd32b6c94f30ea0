//! Errors of meeting: tokens, frames, and the store's refusals.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::env::Setting;

/// Why a process did not meet the others, or could not serve them.
///
/// After an error that names the connection as lost the client is of no more use; all others leave it usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// The system has no random numbers.
    #[error("the system gives no random numbers ({reason}); see whether getrandom is allowed here")]
    Random {
        /// What the system says.
        reason: String,
    },
    /// Text that is no token.
    #[error(
        "a job token is 32 hexadecimal digits, not {len} characters; hand on what JobToken::to_hex gives"
    )]
    NotAToken {
        /// Its length; the text itself may be a secret.
        len: usize,
    },
    /// The number of ranks is not one that a store serves.
    #[error("a job of {world} ranks cannot meet here; use 1 to {world_max}")]
    WorldSize {
        /// The number asked for.
        world: u32,
        /// The largest.
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
        /// Where they were tried.
        host: IpAddr,
        /// Which were tried.
        ports: Vec<u16>,
    },
    /// Whoever listens at the places where the store may be is not this job's.
    #[error(
        "no store of this job at {host}, ports {ports:?}, within {waited:.1?}; see whether rank 0 runs there{}. The \
         last that answered: {source}",
        told(by.as_ref())
    )]
    NotFound {
        /// Where was looked.
        host: IpAddr,
        /// At which ports.
        ports: Vec<u16>,
        /// How long was looked.
        waited: Duration,
        /// What was found instead.
        source: Box<BootstrapError>,
        /// The variable that says so, when one does.
        by: Option<Setting>,
    },
    /// A host has no address.
    #[error("the host {host:?} has no address: {reason}; see MASTER_ADDR, and whether its pod has started")]
    UnknownHost {
        /// The host.
        host: String,
        /// What the system says.
        reason: String,
    },
    /// Another process holds the job's name on this host.
    #[error(
        "the name {name} of this job is taken on this host ({source}): another process is its rank 0; give each job \
         its own MASTER_PORT, and MASTER_ADDR"
    )]
    NameTaken {
        /// The name.
        name: String,
        /// The system's reason.
        source: io::Error,
    },
    /// No rank 0 of the job on this host.
    #[error(
        "no rank 0 of {name} on this host within {waited:.1?}; see whether it runs, and when it runs on another host \
         or in another container set MASTER_ADDR and MASTER_PORT on all ranks"
    )]
    NobodyByName {
        /// The name.
        name: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Another user holds the job's name on this host.
    #[error(
        "user {uid} holds the name {name} on this host, and this job is of user {own}; ask why, or set MASTER_ADDR and MASTER_PORT"
    )]
    Impostor {
        /// The name.
        name: String,
        /// Who holds it.
        uid: u32,
        /// Who we are.
        own: u32,
    },
    /// The store cannot start to serve, or had to stop.
    #[error(
        "the store cannot {what}: {source}; see the limits on descriptors, threads and memory (ulimit -a)"
    )]
    Serve {
        /// What failed.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Ranks were still connected when the time to close was over.
    #[error("{ranks} had not left the store when it closed; let every rank leave before, or allow more time")]
    StillJoined {
        /// Those ranks.
        ranks: RankList,
    },
    /// Nobody answers at the store's address.
    #[error(
        "no store at {address} within {waited:.1?}: {source}; see whether the first rank runs and \
         whether a firewall is between"
    )]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// How long was tried.
        waited: Duration,
        /// Why the last try failed.
        source: io::Error,
    },
    /// What answers is no store, or damaged.
    #[error("what answers at {address} is not this library's store: {source}; check address and port")]
    NotAStore {
        /// The address.
        address: SocketAddr,
        /// What is wrong with the answer.
        source: FrameError,
    },
    /// The store did not answer before the deadline.
    #[error(
        "the store at {address} did not answer within {waited:.1?}; see whether its process is stopped or overloaded"
    )]
    NoAnswer {
        /// The store's address.
        address: SocketAddr,
        /// How long was waited.
        waited: Duration,
    },
    /// The connection to the store is lost; the client is of no more use.
    #[error("the connection to the store at {address} is lost: {source}; see whether its process has ended")]
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
        /// Ours.
        client: u16,
    },
    /// The store is another job's.
    #[error(
        "the store is of the job with token {store:08x}…, this process of {client:08x}…; \
         start all ranks with one token, and each job with its own port"
    )]
    OtherToken {
        /// Fingerprint of the store's token.
        store: u32,
        /// Fingerprint of ours.
        client: u32,
    },
    /// The store expects another number of ranks.
    #[error(
        "the store expects {store} ranks, this process was started as one of {client}; start all with one number"
    )]
    OtherWorld {
        /// What the store expects.
        store: u32,
        /// What we were told.
        client: u32,
    },
    /// The rank is beyond the number of ranks.
    #[error("rank {rank} is not one of {world}; ranks count from 0")]
    NoSuchRank {
        /// Our rank.
        rank: u32,
        /// The number of ranks.
        world: u32,
    },
    /// Another process has joined as this rank.
    #[error(
        "rank {rank} has joined from {first} before, this process comes from {second}; give each process its own rank"
    )]
    JoinedTwice {
        /// The rank.
        rank: u32,
        /// Where the first process came from.
        first: String,
        /// Where this one comes from.
        second: SocketAddr,
    },
    /// A key, value or gathering is beyond its bound.
    #[error(
        "{what} of {bytes} bytes is longer than {bytes_max}; exchange an address and send data over links"
    )]
    TooLarge {
        /// What is too long.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// The store has no room.
    #[error("the store holds its {bytes_max} bytes; set fewer or shorter values")]
    Full {
        /// The bound.
        bytes_max: u64,
    },
    /// Nobody set the key in time.
    #[error("key {key:?} was not set within {waited:.1?}; {}", hint(absent))]
    KeyMissing {
        /// The key.
        key: String,
        /// How long was waited.
        waited: Duration,
        /// Ranks that have not joined.
        absent: RankList,
    },
    /// Some ranks did not come to a gathering in time.
    #[error(
        "{missing} did not come to {name:?} within {waited:.1?}; see whether they run and where they wait{}",
        elsewhere.as_ref().map(|elsewhere| format!(": {elsewhere}")).unwrap_or_default()
    )]
    RanksMissing {
        /// The gathering.
        name: String,
        /// How long was waited.
        waited: Duration,
        /// The ranks.
        missing: RankList,
        /// Why they may look for rank 0 where it is not, at rank 0.
        elsewhere: Option<Box<Elsewhere>>,
    },
    /// A rank left, so that no gathering can be complete.
    #[error("rank {rank} has left the store, and {name:?} needs all ranks; see why its process ended")]
    RankLeft {
        /// The rank that left.
        rank: u32,
        /// The gathering.
        name: String,
    },
}

/// Rank 0 is not where the others are told to look for it, unless that leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The variable that says where rank 0 is.
    pub by: Setting,
    /// The address that its value stands for, which is none of this host's.
    pub ip: IpAddr,
    /// Where rank 0 listens instead.
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

/// Some ranks: how many they are, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList {
    count: u32,
    first: Vec<u32>,
}

impl RankList {
    pub(crate) fn new(count: u32, first: Vec<u32>) -> Self {
        Self { count, first }
    }

    /// How many ranks they are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The lowest of them, at most 16.
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

/// What is wrong with bytes that should be a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// They do not begin like a frame.
    #[error("the first bytes are not a frame's")]
    NotAStore,
    /// They are of another version.
    #[error("the frame is of version {theirs}")]
    OtherVersion {
        /// The version they say.
        theirs: u16,
    },
    /// The frame is longer than allowed at this point.
    #[error("the frame announces {bytes} bytes where {bytes_max} are allowed")]
    TooLarge {
        /// The length it announces.
        bytes: u32,
        /// The bound.
        bytes_max: u32,
    },
    /// There is no such message.
    #[error("there is no message of kind {kind}")]
    UnknownKind {
        /// The kind it says.
        kind: u8,
    },
    /// Something in the message does not add up.
    #[error("the message has a wrong {what}")]
    Malformed {
        /// What is wrong.
        what: &'static str,
    },
}
