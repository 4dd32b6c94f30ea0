//! Tasks of a server under tokio, smol and the smallest runtime of all, and what they cost the thread of a runtime.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::kv::{KvNode, Request};
use rdma_core::Wire;

use crate::common::{WIRES, block_on, long};
use crate::job::{Member, Role, member};
use crate::pair::{SHAPE, assert_freed, assert_moved};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Task = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// Waits for both, in one task. Each is polled whenever either is woken, as `join!` of any runtime does.
async fn both<A, B>(
    a: impl Future<Output = Result<A, Error>>,
    b: impl Future<Output = Result<B, Error>>,
) -> Result<(A, B), Error> {
    smol::future::try_zip(a, b).await
}

/// All that a server does with a node, as one task over two nodes.
async fn scenarios(wire: Wire) -> Result<(), Error> {
    let (p, d) = (member(wire, "p", Role::Prefill), member(wire, "d", Role::Decode));
    d.node.connect(&p.node.export(), long()).await?;
    pushed(&p.node, &d.node).await?;
    layered(&p.node, &d.node).await?;
    pulled(&p.node, &d.node).await?;
    given_up(&p, &d).await?;
    assert_moved(d.destination.as_ref().ok_or("a pool")?, &[(0, 3), (1, 4), (2, 5), (6, 7)]);
    let left = d.node.left("p");
    p.node.closed(long()).await?;
    left.await;
    d.node.closed(long()).await?;
    Ok(())
}

async fn pushed(p: &KvNode, d: &KvNode) -> Result<(), Error> {
    let (grant, push) = both(async { Ok(d.grant("p", 1, &[3, 4], long()).await?.await?) }, async {
        Ok(p.push("d", Request::new(1).note(b"token"), &[0, 1], long()).await?.await?)
    })
    .await?;
    assert!(grant.verdicts.all_valid() && grant.note == b"token");
    assert_eq!(push.bytes, grant.bytes);
    Ok(())
}

async fn layered(p: &KvNode, d: &KvNode) -> Result<(), Error> {
    let decode = async {
        let grant = d.grant("p", 2, &[5], long()).await?;
        for layer in 0..SHAPE.layers {
            grant.layer(layer).await?;
        }
        Ok(grant.await?)
    };
    let prefill = async {
        let push = p.push_layers("d", 2, &[2], long()).await?;
        for layer in 0..SHAPE.layers {
            push.layer_ready(layer)?;
            push.layer_sent(layer).await?;
        }
        Ok(push.await?)
    };
    assert!(both(decode, prefill).await?.0.verdicts.all_valid());
    Ok(())
}

async fn pulled(p: &KvNode, d: &KvNode) -> Result<(), Error> {
    let offer = async { Ok(p.offer("d", 3, &[6], long()).await?.await?) };
    let pull = async { Ok(d.pull("p", 3, &[7], long()).await?.await?) };
    let (received, _) = both(pull, offer).await?;
    assert!(received.verdicts.all_valid());
    Ok(())
}

/// A grant that a `select` stops waiting for and revokes, and one whose task is dropped.
async fn given_up(p: &Member, d: &Member) -> Result<(), Error> {
    let mut grant = d.node.grant("p", 4, &[8], long()).await?;
    let push = p.node.push_layers("d", 4, &[0], long()).await?;
    push.layer_ready(0)?;
    grant.layer(0).await?;
    // The client goes: the other branch is ready.
    let outcome = smol::future::or(async { Some((&mut grant).await) }, async { None }).await;
    assert!(outcome.is_none(), "two layers are missing");
    grant.start_revoke(long()).await?;
    assert!(d.destination.as_ref().ok_or("a pool")?.held(8).is_none());
    push.await.err().ok_or("the push was revoked")?;
    let room = d.destination.as_ref().ok_or("a pool")?;
    // A block that was revoked may have got bytes: it is given its old ones again.
    let old = vec![crate::pair::CANARY; room.layout().layer_block_bytes() as usize];
    (0..SHAPE.layers).try_for_each(|layer| room.write(layer, 8, 0, &old))?;
    drop(d.node.grant("p", 5, &[9], long()).await?);
    drop(p.node.push("d", 6, &[3], long()));
    assert_freed(room, &[8, 9]);
    Ok(())
}

fn tasks() -> impl Iterator<Item = Task> {
    WIRES.into_iter().map(|wire| Box::pin(scenarios(wire)) as Task)
}

#[test]
fn tasks_run_under_tokio_on_one_thread_and_on_several() {
    let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(3).build().unwrap();
    for runtime in [one, several] {
        runtime.block_on(async {
            let spawned: Vec<_> = tasks().map(tokio::spawn).collect();
            for task in spawned {
                task.await.unwrap().unwrap();
            }
        });
    }
}

#[test]
fn tasks_run_under_smol() {
    smol::block_on(async {
        let spawned: Vec<_> = tasks().map(smol::spawn).collect();
        for task in spawned {
            task.await.unwrap();
        }
    });
}

#[test]
fn tasks_run_without_a_runtime() {
    tasks().for_each(|task| block_on(task).unwrap());
}

/// The longest time for which a call may hold the thread of a runtime, beyond what the machine takes from every thread.
/// Whatever waits for a peer, for a link or for a thread would hold it for longer.
const HELD: Duration = Duration::from_millis(200);

/// The longest pause between two looks at the clock.
struct Pauses {
    last: Instant,
    longest: Duration,
}

impl Pauses {
    fn new() -> Self {
        Self { last: Instant::now(), longest: Duration::ZERO }
    }

    fn look(&mut self) {
        self.longest = self.longest.max(self.last.elapsed());
        self.last = Instant::now();
    }
}

#[test]
fn no_call_holds_the_thread_of_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for wire in WIRES {
        let (p, d) = (member(wire, "p", Role::Prefill), member(wire, "d", Role::Decode));
        let is_over = AtomicBool::new(false);
        let tick = Duration::from_millis(1);
        let (idle, ours) = thread::scope(|scope| {
            let idle = scope.spawn(|| {
                let mut pauses = Pauses::new();
                while !is_over.load(Ordering::Relaxed) {
                    thread::sleep(tick);
                    pauses.look();
                }
                pauses.longest
            });
            let ours = runtime.block_on(async {
                let counter = tokio::spawn(async move {
                    let mut pauses = Pauses::new();
                    loop {
                        tokio::time::sleep(tick).await;
                        pauses.look();
                        LONGEST.with(|longest| longest.set(pauses.longest));
                    }
                });
                let ended = every_call(p.node.clone(), d.node.clone()).await;
                // The counter looks once more, at the pause of the last call.
                tokio::time::sleep(10 * tick).await;
                counter.abort();
                ended.map(|()| LONGEST.with(Cell::get))
            });
            is_over.store(true, Ordering::Relaxed);
            (idle.join().unwrap(), ours.unwrap())
        });
        println!("{wire:?}: {ours:?} beside {idle:?} of an idle thread");
        assert!(ours > Duration::ZERO && ours < HELD + 4 * idle, "{wire:?}: {ours:?}, and {idle:?} idle");
    }
}

thread_local! {
    /// The longest pause of the task that counts.
    static LONGEST: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Calls that need a peer, a link, or the end of one.
async fn every_call(p: KvNode, d: KvNode) -> Result<(), Error> {
    for _ in 0..3 {
        d.connect(&p.export(), long()).await?;
        pushed(&p, &d).await?;
        layered(&p, &d).await?;
        pulled(&p, &d).await?;
        drop(d.grant("p", 5, &[9], long()).await?);
        drop(p.push("d", 6, &[3], long()).await?);
        // Both links have something under way, and end.
        let unmet = d.grant("p", 7, &[10], long()).await?;
        let left = p.left("d");
        d.forget("p");
        left.await;
        unmet.await.err().ok_or("the link has ended")?;
    }
    drop(p);
    d.closed(long()).await?;
    Ok(())
}
