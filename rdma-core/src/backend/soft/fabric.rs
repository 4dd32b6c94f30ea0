//! Every software device of the process, behind one lock.
//!
//! Keys are looked up and bytes are placed under it: once `deregister` or `destroy_qp` has had
//! the lock, nothing lands any more. Posting takes it once a batch, polling only when there is
//! something to take. Who waits for it gets it in the end, however often others take it, and
//! between the parts of what is long.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use parking_lot::{Mutex, MutexGuard};
use slotmap::SlotMap;

use super::cq::CompletionQueue;
use super::driver::{self, Driver};
use super::engine::keys::KeyTable;
use super::engine::message::{Reply, Request};
use super::engine::timer::Timer;
use super::event::Events;
use super::exposure::Exposure;
use super::fault::{FaultPlan, Held, Planted};
use super::options::Wire;
use super::qp::{Carrier, QueuePair};
use super::wire::rendezvous::Host;
use super::wire::{
    Announcement, DeviceRef, Discarded, Hello, Orphan, Payload, QpRef, Rendezvous, Segment, Sockets, Tcp,
    Token,
};
use crate::memory::{Patch, fork};
use crate::{Gid, GidEntry, PortState};

slotmap::new_key_type! {
    /// Names an open context.
    pub(super) struct ContextRef;
    /// Names a completion queue.
    pub(super) struct CqRef;
}

/// What the fabric keeps of an open device.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) wire: Wire,
    pub(super) gids: Vec<GidEntry>,
    pub(super) port: PortState,
    /// When a port that is down comes back.
    pub(super) port_returns: Timer,
    pub(super) silence: Silence,
    pub(super) faults: Option<FaultPlan>,
    pub(super) planted: Option<Planted>,
    pub(super) keys: KeyTable,
    pub(super) draws: super::draws::Draws,
    pub(super) qp_nums: HashMap<u32, QpRef>,
    pub(super) domains: u32,
    /// What processes of this host may map, if they may.
    pub(super) exposure: Option<Exposure>,
    /// Peers of which it was said why they are not mapped.
    pub(super) told: HashSet<Gid>,
}

/// Whether a device hears and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// It does.
    No,
    /// Not until it is told to go on.
    Stopped,
    /// Never again.
    Killed,
}

/// What the state asks of the sockets.
#[derive(Debug)]
pub(super) enum Command {
    Connect {
        qp: QpRef,
        hello: Hello,
    },
    Request {
        qp: QpRef,
        request: Request,
        payload: Option<Payload>,
    },
    Reply {
        qp: QpRef,
        reply: Reply,
        payload: Option<Payload>,
    },
    Reset {
        qp: QpRef,
    },
    Close {
        qp: QpRef,
    },
    /// Those that wait for a queue pair may ask for it again.
    Heed,
    /// The requester looks for its peer among the processes of this host.
    Meet {
        qp: QpRef,
    },
    /// Its peer has come to the mapped wire.
    PartTcp {
        qp: QpRef,
    },
    /// It takes another wire.
    LeaveMapped {
        qp: QpRef,
    },
    /// Its peer does.
    LeaveWriter {
        qp: QpRef,
    },
    /// Its peer has to look into the mailbox.
    Nudge {
        qp: QpRef,
    },
    /// The peer may have told of memory that its requester needs.
    Look {
        qp: QpRef,
    },
    /// Peers may map that memory of the device.
    Announce {
        device: DeviceRef,
        memory: Announcement,
    },
    /// Pages of memory that peers may map are others now.
    Patch {
        device: DeviceRef,
        memory: u64,
        patches: Vec<Patch>,
    },
    /// No pages of that memory are replaced after all.
    Resume {
        device: DeviceRef,
        memory: u64,
    },
    /// No key of the device names that memory any more.
    Forget {
        device: DeviceRef,
        memory: u64,
    },
}

/// All that the lock guards, but for the sockets.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) devices: SlotMap<DeviceRef, DeviceState>,
    pub(super) by_gid: HashMap<Gid, DeviceRef>,
    pub(super) contexts: SlotMap<ContextRef, Events>,
    pub(super) cqs: SlotMap<CqRef, CompletionQueue>,
    pub(super) qps: SlotMap<QpRef, QueuePair>,
    pub(super) commands: VecDeque<Command>,
    /// Completion queues that overran, whose queue pairs are still to be told.
    pub(super) overrun: Vec<CqRef>,
    /// No timer of a queue pair is due before this.
    pub(super) earliest: Option<Instant>,
    /// Whether that was later before.
    pub(super) due_sooner: bool,
    /// Messages that faults hold back, oldest first.
    pub(super) held: Vec<Held>,
    pub(super) held_serials: u64,
    /// Whether some of them are being delivered.
    pub(super) delivering: bool,
    /// Payloads under way of which faults flip a byte, by its address.
    pub(super) corrupting: Vec<(Token, u64)>,
    /// Queue pairs in ERR whose receives cannot be flushed yet, since a peer is at them.
    pub(super) settling: Vec<QpRef>,
    /// Mailboxes of queue pairs that are gone, which a peer is still at.
    pub(super) orphans: Vec<Orphan>,
    /// Memories of which pages are to be replaced, once it is known who is at them.
    pub(super) evicting: Vec<(DeviceRef, u64)>,
    /// Memory of peers that is mapped here, by their GID and their name for it.
    pub(super) peer_memories: HashMap<(Gid, u64), Weak<Segment>>,
    /// To be dropped without the lock.
    pub(super) discarded: Discarded,
    /// Kept for its capacity.
    pub(super) due: Vec<QpRef>,
}

/// What the lock guards.
pub(super) struct Guarded {
    pub(super) state: State,
    pub(super) sockets: Box<dyn Sockets>,
    pub(super) rendezvous: Rendezvous,
    /// Whether the driver's thread runs.
    pub(super) running: bool,
    /// Until when the driver sleeps, if it does.
    pub(super) asleep: Option<Option<Instant>>,
}

/// See the module.
pub(super) struct Fabric {
    guarded: Mutex<Guarded>,
    pub(super) driver: Driver,
    pid: u32,
}

static FABRIC: OnceLock<Fabric> = OnceLock::new();

impl Fabric {
    /// The process's fabric.
    pub(super) fn get() -> io::Result<&'static Self> {
        if let Some(fabric) = FABRIC.get() {
            return Ok(fabric);
        }
        fork::watch()?;
        let driver = Driver::new()?;
        let sockets = Tcp::new(Arc::clone(&driver.epoll));
        let rendezvous = Rendezvous::new(Arc::clone(&driver.epoll));
        let fabric = Self {
            guarded: Mutex::new(Guarded {
                state: State::default(),
                sockets: Box::new(sockets),
                rendezvous,
                running: false,
                asleep: None,
            }),
            driver,
            pid: fork::pid(),
        };
        // Another thread may have been first; then this one is dropped unused.
        Ok(FABRIC.get_or_init(|| fabric))
    }

    /// Whether this process was forked from the one whose fabric this is: it must then keep
    /// its hands off, since the lock may be held by a thread that is not here.
    pub(super) fn is_foreign(&self) -> bool {
        fork::is_child() || self.pid != fork::pid()
    }

    #[inline]
    pub(super) fn lock(&self) -> Hold<'_> {
        self.hold(self.guarded.lock())
    }

    #[inline]
    fn hold<'a>(&'a self, guarded: MutexGuard<'a, Guarded>) -> Hold<'a> {
        Hold { guarded, driver: &self.driver, beyond_state: false, discarded: Late(None) }
    }

    /// The lock if nobody has it; who has it makes progress.
    pub(super) fn try_lock(&self) -> Option<Hold<'_>> {
        self.guarded.try_lock().map(|guarded| self.hold(guarded))
    }
}

impl State {
    /// Whether nothing that was begun is left to those who let go of the lock.
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

/// The lock, held. Letting go of it settles what the holder began: commands reach the sockets,
/// and the driver is woken when it would sleep too long.
pub(super) struct Hold<'a> {
    guarded: MutexGuard<'a, Guarded>,
    pub(super) driver: &'a Driver,
    /// Whether more than the state was asked for.
    beyond_state: bool,
    /// Comes after the lock, and so is dropped after it.
    discarded: Late,
}

/// What is dropped without the lock, if there is anything: nearly never.
struct Late(Option<Box<Discarded>>);

impl Drop for Late {
    #[inline]
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(drop_late);
    }
}

#[cold]
fn drop_late(_: Box<Discarded>) {}

impl Hold<'_> {
    /// Lets those who wait for the lock have it in between, if there are any. What the holder began others may settle.
    pub(super) fn give_way(&mut self) {
        MutexGuard::bump(&mut self.guarded);
    }

    pub(super) fn guarded(&mut self) -> &mut Guarded {
        self.beyond_state = true;
        &mut self.guarded
    }

    /// Hands the commands to the sockets.
    pub(super) fn settle(&mut self) {
        self.guarded.state.fail_overrun();
        if self.guarded.state.commands.is_empty() {
            return;
        }
        let now = driver::now();
        let Guarded { state, sockets, rendezvous, .. } = &mut *self.guarded;
        while !state.commands.is_empty() {
            while let Some(command) = state.commands.pop_front() {
                match command {
                    Command::Connect { qp, hello } => sockets.connect(now, qp, &hello),
                    Command::Request { qp, request, payload } => {
                        sockets.enqueue_request(now, qp, &request, payload)
                    }
                    Command::Reply { qp, reply, payload } => sockets.enqueue_reply(now, qp, &reply, payload),
                    Command::Reset { qp } => sockets.reset(qp),
                    Command::PartTcp { qp } => sockets.part(qp),
                    Command::Close { qp } => {
                        sockets.close(qp);
                        rendezvous.close(qp);
                    }
                    errand => carry_errand(now, rendezvous, state, errand),
                }
            }
            sockets.flush(now, state);
            rendezvous.flush(now, state);
            state.fail_overrun();
        }
    }
}

/// Looks for the peer of a requester that goes on waiting for it.
fn meet(now: Instant, rendezvous: &mut Rendezvous, state: &mut State, id: QpRef) {
    let waiting =
        state.qps.get(id).filter(|qp| qp.carrier == Carrier::Mapped && !rendezvous.is_connected(id));
    if let Some(qp) = waiting
        && let Some(hello) = qp.hello()
        && let Err(reason) = rendezvous.connect(id, &hello, state.has_other_wire(qp.device))
    {
        state.not_met(now, id, &reason);
    }
}

/// Carries out what the state asks of the rendezvous.
pub(super) fn carry_errand(now: Instant, rendezvous: &mut Rendezvous, state: &mut State, errand: Command) {
    match errand {
        Command::Heed => rendezvous.heed(),
        Command::Meet { qp } => meet(now, rendezvous, state, qp),
        Command::LeaveMapped { qp } => rendezvous.leave(qp),
        Command::LeaveWriter { qp } => rendezvous.part(qp),
        Command::Nudge { qp } => rendezvous.nudge(qp),
        Command::Look { qp } => rendezvous.look(now, qp, state),
        Command::Announce { device, memory } => rendezvous.announce(now, device, &memory, state),
        Command::Patch { device, memory, patches } => {
            rendezvous.patch(now, device, (memory, &patches), state)
        }
        Command::Resume { device, memory } => rendezvous.resume(now, device, memory, state),
        Command::Forget { device, memory } => rendezvous.forget(now, device, memory, state),
        Command::Connect { .. }
        | Command::Request { .. }
        | Command::Reply { .. }
        | Command::Reset { .. }
        | Command::PartTcp { .. }
        | Command::Close { .. } => {}
    }
}

impl Deref for Hold<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.guarded.state
    }
}

impl DerefMut for Hold<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.guarded.state
    }
}

impl Drop for Hold<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.beyond_state || !self.guarded.state.is_settled() {
            self.let_go();
        }
    }
}

impl Hold<'_> {
    #[inline(never)]
    fn let_go(&mut self) {
        self.settle();
        self.guarded.state.due_sooner = false;
        if !self.guarded.state.discarded.is_empty() {
            self.discarded = Late(Some(Box::new(std::mem::take(&mut self.guarded.state.discarded))));
        }
        let driver = self.driver;
        driver.note(&mut self.guarded);
    }
}
