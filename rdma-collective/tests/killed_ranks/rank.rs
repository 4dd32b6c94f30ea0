//! Rank of a job: a process that meets the others, makes a communicator, reduces 8 bytes, closes, and says at each
//! point where it is.

use std::error::Error;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rdma_collective::bootstrap::{BootstrapError, JobToken, Join, RankList};
use rdma_collective::bootstrap::{StoreClient, StoreOptions, StoreServer};
use rdma_collective::collective::{CollectiveError, CommunicatorError, ReduceOp};
use rdma_collective::collective::{Communicator, CommunicatorOptions};
use rdma_collective::engine::{Engine, EngineOptions};
use rdma_collective::env::{self, JoinError};
use rdma_core::{Deadline, Device, SoftOptions, Wire};
use rustix::process::Signal;

use crate::common::{books, long, settled_books};

/// The variables of a rank, beside those of a launcher: its wire, the point at which it stays, and the milliseconds in
/// which the ranks must have met.
pub const WIRE: &str = "TEST_WIRE";
pub const STAYS_AT: &str = "TEST_STAYS_AT";
pub const MEET_WITHIN: &str = "TEST_MEET_WITHIN";

/// The point that a rank has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Point {
    Started,
    Joined,
    Made,
    Linked,
    Reduced,
    Closed,
}

pub const POINTS: [Point; 6] =
    [Point::Started, Point::Joined, Point::Made, Point::Linked, Point::Reduced, Point::Closed];

fn say(line: impl std::fmt::Display) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Says that this rank has come to `point`, and stays there, if it is told to, until it may go on.
fn reach(point: Point) {
    say(format_args!("at {point:?}"));
    if std::env::var(STAYS_AT).is_ok_and(|at| at == format!("{point:?}")) {
        std::io::stdin().read_exact(&mut [0]).unwrap_or_else(|_| std::process::exit(0));
    }
}

fn wire() -> Wire {
    if std::env::var(WIRE).is_ok_and(|wire| wire == "tcp") { Wire::Tcp } else { Wire::Mapped }
}

fn engine() -> Result<Engine, Box<dyn Error>> {
    let context = Device::soft(SoftOptions { wire: wire(), ..SoftOptions::default() }).open()?;
    // The shortest time that an engine allows, because each round with a stopped rank takes as long.
    let peer_timeout = Duration::from_secs(1);
    Ok(Engine::new(
        &context,
        EngineOptions { heartbeat: peer_timeout / 4, peer_timeout, ..Default::default() },
    )?)
}

/// The life of a rank.
fn live() -> Result<(), Box<dyn Error>> {
    let within = std::env::var(MEET_WITHIN)?.parse()?;
    reach(Point::Started);
    let deadline = Deadline::after(Duration::from_millis(within));
    let (_, mut joined) = env::join(deadline)?;
    reach(Point::Joined);
    let engine = engine()?;
    let mut comm = Communicator::new(&engine, &mut joined.store, CommunicatorOptions::default(), deadline)?;
    reach(Point::Made);
    joined.close(deadline)?;
    comm.connect(long())?;
    reach(Point::Linked);
    let mut data = [1_u64];
    comm.all_reduce(&mut data, ReduceOp::Sum, long())?;
    assert_eq!(data, [comm.size().into()]);
    reach(Point::Reduced);
    comm.close(long())?;
    reach(Point::Closed);
    Ok(())
}

/// Two ranks on threads: what the library keeps for ever, it keeps from here on.
fn warm_up() {
    let token = JobToken::random().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = StoreServer::bind(any, StoreOptions::new(token, 2)).unwrap();
    let address = server.address();
    thread::scope(|scope| {
        for rank in 0..2 {
            scope.spawn(move || {
                let join = Join { address, token, rank, world: 2 };
                let mut store = StoreClient::connect(join, long()).unwrap();
                let options = CommunicatorOptions::default();
                let comm = Communicator::new(&engine().unwrap(), &mut store, options, long()).unwrap();
                comm.close(long()).unwrap();
            });
        }
    });
    server.close(long()).unwrap();
}

/// The ranks that an error names as those at fault.
fn culprits(error: &(dyn Error + 'static)) -> Vec<u32> {
    if let Some(error) = error.downcast_ref::<JoinError>() {
        return match error {
            JoinError::Bootstrap(error) => culprits(error),
            _ => Vec::new(),
        };
    }
    if let Some(error) = error.downcast_ref::<CommunicatorError>() {
        return match error {
            CommunicatorError::Bootstrap(error) => culprits(error),
            CommunicatorError::Parent(error) => culprits(error),
            CommunicatorError::Rank { rank, .. } | CommunicatorError::Introduction { rank } => vec![*rank],
            _ => Vec::new(),
        };
    }
    if let Some(error) = error.downcast_ref::<BootstrapError>() {
        let listed = |ranks: &RankList| ranks.first().to_vec();
        return match error {
            BootstrapError::RanksMissing { missing, .. } => listed(missing),
            BootstrapError::KeyMissing { absent, .. } => listed(absent),
            BootstrapError::StillJoined { ranks } => listed(ranks),
            BootstrapError::RankLeft { rank, .. } => vec![*rank],
            // The others speak of the store, which rank 0 serves.
            error if error.to_string().contains("rank 0") => vec![0],
            _ => Vec::new(),
        };
    }
    match error.downcast_ref::<CollectiveError>() {
        Some(CollectiveError::Ended { first }) => culprits(&**first),
        Some(CollectiveError::Aborted { culprit: rank, .. })
        | Some(CollectiveError::PeerFailed { rank, .. })
        | Some(CollectiveError::DeadlineExceeded { rank, .. })
        | Some(CollectiveError::Unlinked { rank, .. }) => vec![*rank],
        _ => Vec::new(),
    }
}

/// The children of this process.
fn children() -> String {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let of = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flatten().map(of).collect()
}

#[test]
#[ignore = "a rank of a job: the other test starts it"]
fn one_rank() {
    // Not longer than the thread that started it, however that ends.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    warm_up();
    let before = settled_books();
    match live() {
        Ok(()) => say("ended well"),
        Err(error) => {
            let named: Vec<_> = culprits(&*error).iter().map(u32::to_string).collect();
            say(format_args!("ended [{}] {error}", named.join(",")));
        }
    }
    // The software device closes its sockets a little later.
    let keeps = || books().iter().any(|(what, count)| *count > before[what]) || !children().is_empty();
    let patience = Instant::now() + Duration::from_secs(10);
    while keeps() && Instant::now() < patience {
        thread::sleep(Duration::from_millis(1));
    }
    if keeps() {
        say(format_args!("keeps {:?} after {before:?}, children {}", books(), children()));
    } else {
        say("keeps nothing");
    }
}
