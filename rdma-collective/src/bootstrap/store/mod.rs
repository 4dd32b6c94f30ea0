//! The state and the decisions of the store, without I/O and without a clock of its own.
//!
//! Events come in by `join` and `handle_*`, together with the time. After each event the caller must carry out the
//! effects from [`Store::poll_effect`] until there are none. [`Store::poll_timeout`] is the latest time for the next
//! call. A connection has at most one request under way: while [`Store::is_waiting`], the caller must not read on.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::JobToken;
use super::frame::Frame;
use super::message::{GATHERED_BYTES_MAX, Hello, KEY_BYTES_MAX, Ranks, Refusal, Reply, Request, run_hash};

/// The most that the store keeps for one rank, in bytes: 1 MiB. A rank puts two blobs into the store for each
/// communicator, which take 500 bytes with their keys, and 5 KB at most; so this is room for some 2,000 communicators.
const RANK_BYTES_MAX: usize = 1 << 20;

/// The number by which the server names a connection.
pub(super) type ConnectionId = u64;

/// An action that the server must carry out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Send {
        connection: ConnectionId,
        frame: Frame,
    },
    /// The connection was replaced by another attempt of the same process.
    Close {
        connection: ConnectionId,
    },
}

/// The process that serves the store, and its job.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// The job's number: random, so that no other job has it.
    pub(super) number: u64,
    /// The launcher's name for the job; empty if there is none.
    pub(super) run: String,
    pub(super) host: String,
    pub(super) pid: u32,
    /// Whether ranks find the store at a port that another job may have been given, too.
    pub(super) at_ports: bool,
}

/// The store of one job.
#[derive(Debug)]
pub(super) struct Store {
    token: JobToken,
    world: u32,
    served: Served,
    /// The rank as which a second process came before all ranks had met. Nobody can know then which ranks belong to
    /// which job, so the store refuses everything from now on.
    two_jobs: Option<u32>,
    /// Whether the server ends, so that nobody joins any more.
    ends: bool,
    /// The ranks that have joined. A rank stays here after it has left, so that it cannot join twice.
    joined: BTreeMap<u32, Joined>,
    /// The first rank that has left. Errors name this one, because the others may have ended because of it.
    first_left: Option<u32>,
    /// The rank of each open connection that joined.
    connections: HashMap<ConnectionId, u32>,
    values: HashMap<String, Kept>,
    /// The gatherings that a rank waits for, by name.
    pub(super) gatherings: HashMap<String, Gathering>,
    waits: BTreeMap<ConnectionId, Wait>,
    effects: VecDeque<Effect>,
}

/// A value, and the rank that has set it.
#[derive(Debug)]
struct Kept {
    rank: u32,
    value: Vec<u8>,
}

/// A gathering that is not complete.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    /// The values of the ranks that have come and still wait.
    values: BTreeMap<u32, Vec<u8>>,
    /// The ranks that had come, and have stopped waiting.
    gave_up: BTreeSet<u32>,
}

/// A rank that has joined.
#[derive(Debug)]
struct Joined {
    attempt: u64,
    from: SocketAddr,
    /// The rank's connection; `None` once the rank has left.
    connection: Option<ConnectionId>,
    /// Whether the rank has made a request, and so knows that it has joined.
    confirmed: bool,
    /// Bytes of the keys and values that the store keeps for this rank.
    kept: usize,
}

/// A request that waits for its answer.
#[derive(Debug)]
struct Wait {
    id: u32,
    until: Instant,
    what: Awaited,
}

#[derive(Debug, PartialEq, Eq)]
enum Awaited {
    Key(String),
    Gathering(String),
}

impl Served {
    fn two_jobs(&self, rank: u32) -> Refusal {
        Refusal::TwoJobs { rank, pid: self.pid, host: self.host.clone() }
    }
}

impl Store {
    pub(super) fn new(token: JobToken, world: u32, served: Served) -> Self {
        Self {
            token,
            world,
            served,
            two_jobs: None,
            ends: false,
            joined: BTreeMap::new(),
            first_left: None,
            connections: HashMap::new(),
            values: HashMap::new(),
            gatherings: HashMap::new(),
            waits: BTreeMap::new(),
            effects: VecDeque::new(),
        }
    }

    /// Lets a connection join as a rank, or returns the reason why not.
    ///
    /// A rank joins once. Only the same process may try again (its attempt number shows it), and only if its connection
    /// was lost before it knew that it had joined. The new connection then takes the place of the old one.
    pub(super) fn join(
        &mut self,
        connection: ConnectionId,
        from: SocketAddr,
        hello: &Hello,
    ) -> Result<(), Refusal> {
        self.is_ours(hello)?;
        if let Some(rank) = self.two_jobs {
            return Err(self.served.two_jobs(rank));
        }
        if let Some(rank) = self.first_left.filter(|_| self.ends) {
            return Err(Refusal::Left { rank });
        }
        let Hello { rank, world, attempt, .. } = *hello;
        if world != self.world {
            return Err(Refusal::OtherWorld { store: self.world, client: world });
        }
        if rank >= world {
            return Err(Refusal::NoSuchRank { rank, world });
        }
        if let Some(first) = self.joined.get(&rank) {
            if first.attempt != attempt && first.connection.is_some() && self.served.at_ports {
                return Err(self.second(rank));
            }
            if first.attempt != attempt || first.confirmed {
                return Err(Refusal::JoinedTwice { rank, first: first.from.to_string() });
            }
            if let Some(connection) = first.connection {
                self.connections.remove(&connection);
                self.effects.push_back(Effect::Close { connection });
            }
        }
        self.joined
            .insert(rank, Joined { attempt, from, connection: Some(connection), confirmed: false, kept: 0 });
        self.connections.insert(connection, rank);
        Ok(())
    }

    /// Returns the answer to a rank 0 that serves a store of its own, and wants to know whether this one has the same
    /// job.
    pub(super) fn claim(&mut self, hello: &Hello) -> Refusal {
        match self.is_ours(hello) {
            Err(refusal) => refusal,
            // The sizes tell the ranks of the two jobs apart, so this job may go on.
            Ok(()) if hello.world != self.world => self.served.two_jobs(0),
            Ok(()) => self.second(0),
        }
    }

    /// Whether a process has the token and the run of this job.
    fn is_ours(&self, hello: &Hello) -> Result<(), Refusal> {
        if hello.token != self.token {
            return Err(Refusal::OtherToken);
        }
        if hello.run != run_hash(&self.served.run) {
            let mut store = self.served.run.clone();
            while store.len() > KEY_BYTES_MAX {
                store.pop();
            }
            return Err(Refusal::OtherRun { store });
        }
        Ok(())
    }

    /// Refuses a second process that came as `rank`: another job uses the same port. Ends this job, too, if its ranks
    /// have not all met, because some of them may be the other job's.
    fn second(&mut self, rank: u32) -> Refusal {
        let refusal = self.served.two_jobs(rank);
        if self.served.at_ports && self.joined.len() < self.world as usize {
            self.two_jobs.get_or_insert(rank);
            self.gatherings.clear();
            for (connection, wait) in std::mem::take(&mut self.waits) {
                self.reply(connection, wait.id, Reply::Refused(refusal.clone()));
            }
        }
        refusal
    }

    /// The job's number.
    pub(super) fn number(&self) -> u64 {
        self.served.number
    }

    /// Takes a request of a connection that has joined and is not waiting.
    pub(super) fn handle_request(
        &mut self,
        now: Instant,
        connection: ConnectionId,
        id: u32,
        request: Request,
    ) {
        let Some(&rank) = self.connections.get(&connection) else { return };
        debug_assert!(!self.is_waiting(connection));
        if let Some(joined) = self.joined.get_mut(&rank) {
            joined.confirmed = true;
        }
        if let Some(rank) = self.two_jobs {
            return self.reply(connection, id, Reply::Refused(self.served.two_jobs(rank)));
        }
        match request {
            // The rank has joined already, so another hello changes nothing.
            Request::Hello(_) | Request::Claim(_) => {
                self.reply(connection, id, Reply::Welcome { number: self.served.number });
            }
            Request::Set { key, value } => self.set((connection, rank), id, key, value),
            Request::Get { wait_ms, key } => match self.values.get(&key) {
                Some(kept) => self.reply(connection, id, Reply::Value(kept.value.clone())),
                None => self.wait(now, connection, id, wait_ms, Awaited::Key(key)),
            },
            Request::Gather { wait_ms, name, value } => {
                if let Err(refusal) = self.may_gather(value.len()) {
                    return self.reply(connection, id, Reply::Refused(refusal));
                }
                let gathering = self.gatherings.entry(name.clone()).or_default();
                gathering.gave_up.remove(&rank);
                gathering.values.insert(rank, value);
                self.wait(now, connection, id, wait_ms, Awaited::Gathering(name.clone()));
                self.complete(&name);
            }
        }
    }

    /// Answers the requests whose wait is over at `now`.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let over: Vec<ConnectionId> = self
            .waits
            .iter()
            .filter(|(_, wait)| wait.until <= now)
            .map(|(connection, _)| *connection)
            .collect();
        // All answers are made before any rank is taken out of its gathering: ranks that time out together did come,
        // and must not appear in each other's lists of missing ranks.
        for connection in &over {
            let Some(Wait { id, what, .. }) = self.waits.get(connection) else { continue };
            let missing = match what {
                Awaited::Key(_) => self.missing(|rank| self.joined.contains_key(&rank)),
                Awaited::Gathering(name) => self.missing_from(name),
            };
            let frame = Reply::TimedOut(missing).encode(*id);
            self.effects.push_back(Effect::Send { connection: *connection, frame });
        }
        for connection in over {
            self.stop_waiting(connection);
        }
    }

    /// Handles the end of a connection. The rank has left, so no gathering can become complete, and all fail now.
    pub(super) fn handle_disconnect(&mut self, connection: ConnectionId) {
        let given_up = self.given_up_by(connection);
        self.stop_waiting(connection);
        let Some(rank) = self.connections.remove(&connection) else { return };
        match self.joined.get_mut(&rank) {
            Some(joined) if joined.confirmed => joined.connection = None,
            // The process may not know that it had joined, and no other rank has seen it: it may try again.
            _ => {
                self.joined.remove(&rank);
                return;
            }
        }
        let rank = *self.first_left.get_or_insert(rank);
        self.gatherings.clear();
        let (gathering, others) = std::mem::take(&mut self.waits)
            .into_iter()
            .partition(|(_, wait)| matches!(wait.what, Awaited::Gathering(_)));
        self.waits = others;
        let gathering: BTreeMap<ConnectionId, Wait> = gathering;
        for (connection, wait) in gathering {
            let missing = match &wait.what {
                Awaited::Gathering(name) => given_up.get(name).cloned(),
                Awaited::Key(_) => None,
            };
            let reply = missing.map_or(Reply::Refused(Refusal::Left { rank }), Reply::TimedOut);
            self.reply(connection, wait.id, reply);
        }
    }

    /// The gatherings for which a connection has waited in vain, with the ranks that are missing from each. If the rank
    /// leaves now, those ranks are at fault, and not the one that leaves.
    fn given_up_by(&self, connection: ConnectionId) -> HashMap<String, Ranks> {
        let Some(rank) = self.connections.get(&connection) else { return HashMap::new() };
        let given_up = self.gatherings.iter().filter(|(_, gathering)| gathering.gave_up.contains(rank));
        given_up.map(|(name, _)| (name.clone(), self.missing_from(name))).collect()
    }

    /// Lets nobody join any more. Returns whether this call is the first.
    pub(super) fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.ends, true)
    }

    /// Tells all ranks that are here who is at fault, as far as that is known: the ranks that did not come in time, two
    /// jobs at one port, or the rank that was the first to leave. The server says so before it ends, because otherwise
    /// they would take the end of the store for the cause.
    pub(super) fn say_why(&mut self) {
        for connection in self.connections.keys().copied().collect::<Vec<_>>() {
            let (id, late) = match self.waits.get(&connection) {
                Some(Wait { id, what: Awaited::Gathering(name), .. }) => {
                    let is_late = self.gatherings.get(name).is_some_and(|of| !of.gave_up.is_empty());
                    (*id, is_late.then(|| self.missing_from(name)))
                }
                _ => (0, None),
            };
            let two_jobs = self.two_jobs.map(|rank| self.served.two_jobs(rank));
            let why = two_jobs.or(self.first_left.map(|rank| Refusal::Left { rank })).map(Reply::Refused);
            if let Some(reply) = late.map(Reply::TimedOut).or(why) {
                self.reply(connection, id, reply);
            }
        }
    }

    /// Takes the next effect, in order.
    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The time at which the next wait is over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.waits.values().map(|wait| wait.until).min()
    }

    /// Whether a request of the connection is still to be answered.
    pub(super) fn is_waiting(&self, connection: ConnectionId) -> bool {
        self.waits.contains_key(&connection)
    }

    /// The ranks that have joined and not left.
    pub(super) fn present(&self) -> Ranks {
        Ranks::collect(
            self.joined.iter().filter(|(_, joined)| joined.connection.is_some()).map(|(rank, _)| *rank),
        )
    }

    fn set(&mut self, (connection, rank): (ConnectionId, u32), id: u32, key: String, value: Vec<u8>) {
        // A rough price for an entry of the map, so that empty values are not free.
        const ENTRY_BYTES: usize = 64;
        let refuse = |refusal| Reply::Refused(refusal);
        if let Some(owner) = owner(&key).filter(|owner| *owner != rank) {
            return self.reply(connection, id, refuse(Refusal::KeyOwned { owner }));
        }
        let price = |value: &[u8]| ENTRY_BYTES + key.len() + value.len();
        let old = self.values.get(&key).map(|old| (old.rank, price(&old.value)));
        let own = old.filter(|(by, _)| *by == rank).map_or(0, |(_, bytes)| bytes);
        let before = self.joined.get(&rank).map_or(0, |joined| joined.kept - own);
        if before + price(&value) > RANK_BYTES_MAX {
            return self.reply(connection, id, refuse(Refusal::Full { bytes_max: RANK_BYTES_MAX as u64 }));
        }
        if let Some((by, bytes)) = old
            && let Some(joined) = self.joined.get_mut(&by)
        {
            joined.kept -= bytes;
        }
        if let Some(joined) = self.joined.get_mut(&rank) {
            joined.kept = before + price(&value);
        }
        self.reply(connection, id, Reply::Done);
        let awaited = Awaited::Key(key.clone());
        let woken: Vec<ConnectionId> = self
            .waits
            .iter()
            .filter(|(_, wait)| wait.what == awaited)
            .map(|(connection, _)| *connection)
            .collect();
        for connection in woken {
            if let Some(wait) = self.waits.remove(&connection) {
                self.reply(connection, wait.id, Reply::Value(value.clone()));
            }
        }
        self.values.insert(key, Kept { rank, value });
    }

    fn may_gather(&self, value_bytes: usize) -> Result<(), Refusal> {
        if let Some(rank) = self.first_left {
            return Err(Refusal::Left { rank });
        }
        let (bytes, bytes_max) =
            ((value_bytes + 4) as u64 * u64::from(self.world), GATHERED_BYTES_MAX as u64);
        if bytes > bytes_max {
            return Err(Refusal::TooLarge { bytes, bytes_max });
        }
        Ok(())
    }

    /// Answers all ranks of a gathering, if its last rank has come.
    fn complete(&mut self, name: &str) {
        if self.gatherings.get(name).is_none_or(|gathering| gathering.values.len() < self.world as usize) {
            return;
        }
        let gathering = self.gatherings.remove(name).unwrap_or_default();
        let values: Vec<Vec<u8>> = gathering.values.into_values().collect();
        let here = |wait: &Wait| matches!(&wait.what, Awaited::Gathering(awaited) if awaited == name);
        let complete: Vec<ConnectionId> =
            self.waits.iter().filter(|(_, wait)| here(wait)).map(|(connection, _)| *connection).collect();
        let frame = Reply::Gathered(values).encode(0);
        for connection in complete {
            if let Some(Wait { id, .. }) = self.waits.remove(&connection) {
                self.effects.push_back(Effect::Send { connection, frame: Frame { id, ..frame.clone() } });
            }
        }
    }

    fn wait(&mut self, now: Instant, connection: ConnectionId, id: u32, wait_ms: u32, what: Awaited) {
        let until = now + Duration::from_millis(wait_ms.into());
        self.waits.insert(connection, Wait { id, until, what });
    }

    /// Takes the connection's value back out of its gathering: a rank that has given up must not make the gathering of
    /// the others complete.
    fn stop_waiting(&mut self, connection: ConnectionId) {
        let Some(Wait { what: Awaited::Gathering(name), .. }) = self.waits.remove(&connection) else {
            return;
        };
        let (Some(rank), Some(gathering)) =
            (self.connections.get(&connection), self.gatherings.get_mut(&name))
        else {
            return;
        };
        gathering.values.remove(rank);
        gathering.gave_up.insert(*rank);
        if gathering.values.is_empty() {
            self.gatherings.remove(&name);
        }
    }

    /// The ranks that did not come to a gathering. If all have come at some time, those that have stopped waiting.
    fn missing_from(&self, name: &str) -> Ranks {
        let gathering = self.gatherings.get(name);
        let is_here = |rank: u32| gathering.is_some_and(|of| of.values.contains_key(&rank));
        let came = |rank: u32| is_here(rank) || gathering.is_some_and(|of| of.gave_up.contains(&rank));
        if (0..self.world).all(came) { self.missing(is_here) } else { self.missing(came) }
    }

    fn missing(&self, here: impl Fn(u32) -> bool) -> Ranks {
        Ranks::collect((0..self.world).filter(|rank| !here(*rank)))
    }

    fn reply(&mut self, connection: ConnectionId, id: u32, reply: Reply) {
        self.effects.push_back(Effect::Send { connection, frame: reply.encode(id) });
    }
}

/// The only rank that may set the key: RANK of `comm/…/RANK/…`, under which a rank of a communicator puts a blob.
fn owner(key: &str) -> Option<u32> {
    key.strip_prefix("comm/")?.rsplit('/').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests;
