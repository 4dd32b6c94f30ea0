//! The fabric: the state of every software device of the process, behind one lock.
//!
//! A single lock makes revocation exact. Keys are looked up and bytes are placed under it, so once `deregister` or
//! `destroy_qp` has held the lock, no thread of this process places another byte. Peers of other processes do not take
//! it; [`wire`](super::wire) waits for them instead.
//!
//! Posting takes the lock once a batch, polling only when a completion may be there. The lock is fair in the end
//! (`parking_lot`), and long work yields it between its parts.
//!
//! Lock order: this lock, then the lock of a [`FaultPlan`]. Code under the lock must never wait for a peer.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use slotmap::SlotMap;

use super::clock;
use super::cq::{CompletionQueue, CqRef};
use super::driver::Driver;
use super::engine::keys::KeyTable;
use super::engine::message::{Reply, Request};
use super::event::{ContextRef, Events};
use super::fault::{DelayedMessage, FaultPlan};
use super::options::Wire;
use super::qp::{Carrier, QueuePair};
use super::shared_exports::SharedExports;
use super::wire::rendezvous::Host;
use super::wire::{
    Change, DeviceRef, Discarded, Hello, OrphanMailbox, Payload, QpRef, Rendezvous, Segment, Tcp, Token,
};
use crate::log::Hold;
use crate::memory::OwnProcess;
use crate::{Gid, GidEntry, PortState};

/// The state of one open device.
pub(super) struct DeviceState {
    pub(super) wire: Wire,
    pub(super) gids: Vec<GidEntry>,
    pub(super) port: PortState,
    /// The time at which a port that is down comes back.
    pub(super) port_returns: Option<Instant>,
    pub(super) silence: Silence,
    pub(super) faults: Option<FaultPlan>,
    pub(super) keys: KeyTable,
    pub(super) random: super::random::RandomPool,
    pub(super) qp_nums: HashMap<u32, QpRef>,
    pub(super) domains: u32,
    /// Requests of peers that were refused because a key, a range or a right is wrong.
    pub(super) refused: u64,
    /// The memory and keys that processes of this host may map; `None` where the device is not shared with them.
    pub(super) exports: Option<SharedExports>,
    /// Peers for which the log already says why they are not mapped, so that each is logged once.
    pub(super) unmapped_logged: HashSet<Gid>,
}

/// Whether a device receives and answers messages; set by a [`FaultPlan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// The device works.
    No,
    /// The device is silent until the plan resumes it.
    Stopped,
    /// The device is silent for ever.
    Killed,
}

/// Work for the sockets or the rendezvous, queued by code that only has the [`State`] at hand.
///
/// [`FabricGuard`] runs the queue before it releases the lock.
#[derive(Debug)]
pub(super) enum Command {
    /// Opens the TCP connection of the requester of `qp`.
    Connect { device: DeviceRef, qp: QpRef, hello: Hello },
    /// Sends a request of `qp` over TCP.
    Request { qp: QpRef, request: Request, payload: Option<Payload> },
    /// Sends a reply of the responder of `qp` over TCP.
    Reply { qp: QpRef, reply: Reply, payload: Option<Payload> },
    /// Drops the queued TCP requests of `qp`: the requester sends them again.
    Reset { qp: QpRef },
    /// Closes all connections of `qp`, which is in ERR or gone.
    Close { qp: QpRef },
    /// Asks again for each peer that was refused because its queue pair was not ready.
    RetryWaiting,
    /// Looks for the peer of a requester among the processes of this host.
    FindPeer { qp: QpRef },
    /// Closes the TCP connection that the responder of `qp` is asked on: its peer has come to the mapped wire.
    CloseTcpInbound { qp: QpRef },
    /// Leaves the rendezvous: the requester of `qp` takes another wire.
    LeaveMapped { qp: QpRef },
    /// Drops the rendezvous connection of the peer that wrote into the mailbox of `qp`: that peer takes another wire.
    DropWriter { qp: QpRef },
    /// Tells the peer of `qp` to look into its mailbox.
    Nudge { qp: QpRef },
    /// Reads the rendezvous socket of `qp`: its peer may have announced memory that a request needs.
    ReadAnnouncements { qp: QpRef },
    /// Tells all mapped peers of a change of the memories of the device.
    Tell { device: DeviceRef, change: Change },
}

/// Everything that the lock guards, except the sockets, the rendezvous and the driver.
#[derive(Default)]
pub(super) struct State {
    pub(super) devices: SlotMap<DeviceRef, DeviceState>,
    pub(super) by_gid: HashMap<Gid, DeviceRef>,
    pub(super) contexts: SlotMap<ContextRef, Events>,
    pub(super) cqs: SlotMap<CqRef, CompletionQueue>,
    pub(super) qps: SlotMap<QpRef, QueuePair>,
    pub(super) commands: VecDeque<Command>,
    /// Completion queues that have overrun and whose queue pairs are not in ERR yet. Kept as a list, because an overrun
    /// is found deep inside a delivery, where no other queue pair may be changed.
    pub(super) overrun: Vec<CqRef>,
    /// The earliest timer of all queue pairs, ports and delayed messages. May be too early, never too late.
    pub(super) earliest: Option<Instant>,
    /// Set when `earliest` moved forward: the driver may sleep for too long and must be woken.
    pub(super) due_sooner: bool,
    /// Messages that faults hold back, oldest first.
    pub(super) delayed: Vec<DelayedMessage>,
    pub(super) delayed_serials: u64,
    /// Set while a call delivers delayed messages; nested calls leave delivery to it.
    pub(super) delivering: bool,
    /// Payloads under way, each with the address of the byte that a fault flips at the end.
    pub(super) corrupting: Vec<(Token, u64)>,
    /// Queue pairs in ERR whose receives cannot be flushed yet, because a mapped peer may still be writing into one.
    pub(super) settling: Vec<QpRef>,
    /// Mailboxes of destroyed queue pairs whose mapped peer has not left yet.
    pub(super) orphans: Vec<OrphanMailbox>,
    /// Memories that are paused until it is known which writers do not go on; their pages are replaced then.
    pub(super) replacing: Vec<(DeviceRef, u64)>,
    /// Peer memory that is mapped here, by the GID of the peer and its name for the memory.
    pub(super) peer_memories: HashMap<(Gid, u64), Weak<Segment>>,
    /// Mappings to be dropped after the lock is released, because unmapping large memory takes milliseconds.
    pub(super) discarded: Discarded,
    /// Scratch list of [`State::handle_timeouts`]; kept for its capacity, so that a timeout allocates nothing.
    pub(super) due: Vec<QpRef>,
}

/// Everything that the lock guards.
pub(super) struct Guarded {
    pub(super) state: State,
    pub(super) sockets: Tcp,
    pub(super) rendezvous: Rendezvous,
    /// Whether the driver thread runs.
    pub(super) running: bool,
    /// `Some(until)` while the driver sleeps; an `until` of `None` means without a timer.
    pub(super) asleep: Option<Option<Instant>>,
}

/// All software devices of the process, with their driver thread. A forked child has none of them.
pub(super) struct Fabric {
    guarded: Mutex<Guarded>,
    pub(super) driver: Driver,
}

static FABRIC: OnceLock<OwnProcess<Fabric>> = OnceLock::new();

impl Fabric {
    /// Returns the fabric of the process, and creates it at the first call.
    ///
    /// # Errors
    ///
    /// The process has no descriptors left for the driver.
    pub(super) fn get() -> io::Result<&'static OwnProcess<Self>> {
        if let Some(fabric) = FABRIC.get() {
            return Ok(fabric);
        }
        let driver = Driver::new()?;
        let rendezvous = Rendezvous::new(Arc::clone(&driver.epoll));
        let fabric = Self {
            guarded: Mutex::new(Guarded {
                state: State::default(),
                sockets: Tcp::new(Arc::clone(&driver.epoll), Arc::clone(&driver.held_acks)),
                rendezvous,
                running: false,
                asleep: None,
            }),
            driver,
        };
        // Another thread may have been first. Its fabric wins, and this one is dropped unused.
        Ok(FABRIC.get_or_init(|| OwnProcess::new(fabric)))
    }

    /// Takes the lock. A forked child never does, because all that leads here is kept in an [`OwnProcess`]: a thread of
    /// its parent may have held the lock at the fork, and the child would wait for ever.
    #[inline]
    pub(super) fn lock(&self) -> FabricGuard<'_> {
        let lines = Hold::new();
        self.guard(self.guarded.lock(), lines)
    }

    #[inline]
    fn guard<'a>(&'a self, guarded: MutexGuard<'a, Guarded>, lines: Hold) -> FabricGuard<'a> {
        let (beyond_state, discarded) = (false, DropUnlocked(None));
        FabricGuard { guarded, driver: &self.driver, beyond_state, discarded, _lines: lines }
    }

    /// Takes the lock if it is free. A caller that only wants progress may skip its turn otherwise: the thread that
    /// holds the lock makes progress itself.
    pub(super) fn try_lock(&self) -> Option<FabricGuard<'_>> {
        self.guarded.try_lock().map(|guarded| self.guard(guarded, Hold::new()))
    }
}

impl State {
    /// Whether the lock may be released without [`FabricGuard::flush_effects`]: nothing is queued for it.
    #[inline]
    fn is_settled(&self) -> bool {
        self.commands.is_empty() && self.overrun.is_empty() && self.discarded.is_empty() && !self.due_sooner
    }
}

impl std::fmt::Debug for Fabric {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fabric").finish_non_exhaustive()
    }
}

/// The fabric's lock, held. Dropping it first runs the queued commands, and wakes the driver if it would sleep for too
/// long.
pub(super) struct FabricGuard<'a> {
    guarded: MutexGuard<'a, Guarded>,
    pub(super) driver: &'a Driver,
    /// Set once the holder had the sockets or the rendezvous in hand, which may have changed a timeout.
    beyond_state: bool,
    /// Must stay behind the lock: fields drop in order, so these mappings drop after the lock is released.
    discarded: DropUnlocked,
    /// Must stay the last field, so that lines about dropped mappings are written at once.
    _lines: Hold,
}

/// Mappings that are dropped after the lock is released; nearly always none, hence the box.
struct DropUnlocked(Option<Box<Discarded>>);

impl Drop for DropUnlocked {
    #[inline]
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(drop_discarded);
    }
}

/// Keeps the code that unmaps out of the inlined drop of every guard.
#[cold]
fn drop_discarded(_: Box<Discarded>) {}

impl FabricGuard<'_> {
    /// Hands the lock to the threads that wait for it, if there are any, and takes it again.
    ///
    /// Another thread may then run the commands that this holder queued, and may change any state: look everything up
    /// again afterwards.
    pub(super) fn yield_lock(&mut self) {
        MutexGuard::bump(&mut self.guarded);
    }

    /// Returns the sockets and the rendezvous as well as the state. Use the state alone where that is enough, because
    /// after this call releasing the lock takes the slow path.
    pub(super) fn guarded(&mut self) -> &mut Guarded {
        self.beyond_state = true;
        &mut self.guarded
    }

    /// Runs the queued commands until none is left. Flushing may deliver input, which queues further commands.
    pub(super) fn run_commands(&mut self) {
        self.guarded.state.fail_overrun();
        if self.guarded.state.commands.is_empty() {
            return;
        }
        let now = clock::now();
        let Guarded { state, sockets, rendezvous, .. } = &mut *self.guarded;
        while !state.commands.is_empty() {
            while let Some(command) = state.commands.pop_front() {
                match command {
                    Command::Connect { device, qp, hello } => sockets.connect(device, qp, &hello),
                    Command::Request { qp, request, payload } => {
                        sockets.enqueue_request(qp, &request, payload)
                    }
                    Command::Reply { qp, reply, payload } => sockets.enqueue_reply(qp, &reply, payload),
                    Command::Reset { qp } => sockets.reset(qp),
                    Command::CloseTcpInbound { qp } => sockets.close_inbound(qp),
                    Command::Close { qp } => {
                        sockets.close(qp);
                        rendezvous.close(qp);
                    }
                    Command::RetryWaiting => rendezvous.retry_waiting(),
                    Command::FindPeer { qp } => find_peer(now, rendezvous, state, qp),
                    Command::LeaveMapped { qp } => rendezvous.drop_requester(qp),
                    Command::DropWriter { qp } => rendezvous.drop_writer(qp),
                    Command::Nudge { qp } => rendezvous.nudge(qp),
                    Command::ReadAnnouncements { qp } => rendezvous.read_announcements(now, qp, state),
                    Command::Tell { device, change } => rendezvous.tell(now, device, &change, state),
                }
            }
            // Once for all commands: requests and replies of one batch leave in few writes.
            sockets.flush(now, state);
            rendezvous.flush(now, state);
            state.fail_overrun();
        }
    }

    /// Sends the acknowledgements that are held back on sockets.
    pub(super) fn send_held_acks(&mut self) {
        let Guarded { state, sockets, .. } = self.guarded();
        sockets.send_held(clock::now(), state);
        self.run_commands();
    }

    /// Does what the holder left to be done: commands, the wake-up of the driver, and the mappings to be dropped.
    #[inline(never)]
    fn flush_effects(&mut self) {
        self.run_commands();
        self.guarded.state.due_sooner = false;
        if !self.guarded.state.discarded.is_empty() {
            self.discarded = DropUnlocked(Some(Box::new(std::mem::take(&mut self.guarded.state.discarded))));
        }
        let driver = self.driver;
        driver.note_release(&mut self.guarded);
    }
}

/// Asks the rendezvous for the peer of the requester of `id`, unless the two are connected already.
pub(super) fn find_peer(now: Instant, rendezvous: &mut Rendezvous, state: &mut State, id: QpRef) {
    let waiting =
        state.qps.get(id).filter(|qp| qp.carrier == Carrier::Mapped && !rendezvous.is_connected(id));
    if let Some(qp) = waiting
        && let Some(hello) = qp.hello()
        && let Err(reason) = rendezvous.connect(id, &hello, state.has_other_wire(qp.device))
    {
        state.peer_not_met(now, id, &reason);
    }
}

impl Deref for FabricGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guarded.state
    }
}

impl DerefMut for FabricGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guarded.state
    }
}

impl Drop for FabricGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Most holders leave nothing behind; the check keeps their release at a few loads beyond the unlock.
        if self.beyond_state || !self.guarded.state.is_settled() {
            self.flush_effects();
        }
    }
}
