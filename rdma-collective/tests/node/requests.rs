//! Whole requests of a server, as a task runs them: dropped at any await of either end, and while a runtime stalls.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::kv::{KvNode, Request};
use rdma_core::{Deadline, Wire};

use crate::common::{WIRES, block_on, long};
use crate::job::{Role, member};
use crate::pair::{SHAPE, assert_freed};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Got = Result<Vec<u8>, Error>;

/// The time for which nobody polls: longer than a peer may be silent.
const STALL: Duration = Duration::from_secs(5);

/// Decode of a request: grants, waits for each layer and for the end, and reads the note.
async fn decode(node: &KvNode, request: u64) -> Got {
    let grant = node.grant("p", Request::new(request).note(b"where"), &[3, 4], long()).await?;
    for layer in 0..SHAPE.layers {
        grant.layer(layer).await?;
    }
    Ok(grant.await?.note)
}

/// Prefill of a request: announces each layer, waits until its memory is free, and ends with a note.
async fn prefill(node: &KvNode, request: u64) -> Got {
    let push = node.push_layers("d", Request::new(request).note_later(), &[0, 1], long()).await?;
    for layer in 0..SHAPE.layers {
        push.layer_ready(layer)?;
        push.layer_sent(layer).await?;
    }
    push.set_note(b"token")?;
    Ok(push.await?.note)
}

struct Woken(Mutex<Sender<()>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        _ = self.0.lock().unwrap().send(());
    }
}

/// Polls a future so many times, each time it is woken, and drops it then, or once its client is `gone`.
fn poll_times<T>(times: usize, gone: &AtomicBool, future: impl Future<Output = T>) -> Option<T> {
    let (sender, wakes) = channel();
    let waker = Waker::from(Arc::new(Woken(Mutex::new(sender))));
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let patience = long();
        while wakes.recv_timeout(Duration::from_millis(2)).is_err() {
            if gone.load(Ordering::Relaxed) {
                return None;
            }
            assert!(!patience.expired(), "a task that waits is woken");
        }
    }
    None
}

/// Runs both ends of a request, drops one of them after so many polls, and the other one a little later if it has not
/// ended. Returns what the first one has got, if it was not dropped.
fn run(
    dropped: impl Future<Output = Got> + Send,
    other: impl Future<Output = Got>,
    times: usize,
) -> Option<Got> {
    let (never, gone) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let dropping = scope.spawn(|| {
            let got = poll_times(times, &never, dropped);
            if got.is_none() {
                thread::sleep(Duration::from_millis(10));
                gone.store(true, Ordering::Relaxed);
            }
            got
        });
        _ = poll_times(usize::MAX, &gone, other);
        dropping.join().unwrap()
    })
}

#[test]
fn a_request_that_is_dropped_at_any_poll_of_either_end_leaves_nothing() {
    for wire in WIRES {
        let (p, d) = (member(wire, "p", Role::Prefill), member(wire, "d", Role::Decode));
        d.meet(&p);
        let mut request = 0;
        for prefill_goes in [false, true] {
            for times in 0.. {
                assert!(times < 100, "a request takes few polls");
                request += 1;
                let (at_prefill, at_decode) = (prefill(&p.node, request), decode(&d.node, request));
                let got = if prefill_goes {
                    run(at_prefill, at_decode, times)
                } else {
                    run(at_decode, at_prefill, times)
                };
                assert_freed(p.source.as_ref().unwrap(), &[0, 1]);
                assert_freed(d.destination.as_ref().unwrap(), &[3, 4]);
                if let Some(note) = got {
                    assert_eq!(note.unwrap(), if prefill_goes { &b"where"[..] } else { b"token" });
                    assert!(times > 1, "it waits somewhere");
                    break;
                }
            }
        }
        p.push_to(&d, request + 1, &[(0, 3), (1, 4)]);
    }
}

/// Nobody polls the tasks of a runtime for five seconds. Its transfers end all the same, and their blocks come back.
/// Transfers of another runtime on the same nodes keep their deadlines.
#[test]
fn a_runtime_that_stalls_for_five_seconds_hurts_nobody() {
    for wire in [Wire::Local, Wire::Tcp] {
        let (p, d) = (member(wire, "p", Role::Prefill), member(wire, "d", Role::Decode));
        let other = member(wire, "q", Role::Prefill);
        d.meet(&p);
        d.meet(&other);
        p.push_to(&d, 1, &[(0, 3)]);
        let poll = |future: Pin<&mut dyn Future<Output = Got>>| {
            future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        // A grant that is filled meanwhile, one that expires meanwhile, and one that outlives the stall.
        async fn grant(node: &KvNode, request: u64, block: u32, deadline: Deadline) -> Got {
            Ok(node.grant("p", request, &[block], deadline).await?.await?.note)
        }
        let soon = Deadline::after(Duration::from_secs(1));
        let mut stalled = [(2, 4, long()), (3, 5, soon), (4, 6, long())]
            .map(|(request, block, deadline)| Box::pin(grant(&d.node, request, block, deadline)));
        for task in &mut stalled {
            assert!(!poll(task.as_mut()), "nobody pushes yet");
        }
        let begun = Instant::now();
        p.node.push("d", 2, &[1], long()).wait().unwrap().wait().unwrap();
        let room = d.destination.as_ref().unwrap();
        assert_freed(room, &[4, 5]);
        let mut request = 100;
        while begun.elapsed() < STALL {
            let soon = || Deadline::after(Duration::from_secs(2));
            let grant = d.node.grant("q", request, &[7], soon()).wait().unwrap();
            other.node.push("d", request, &[0], soon()).wait().unwrap().wait().unwrap();
            assert!(grant.wait().unwrap().verdicts.all_valid());
            request += 1;
        }
        assert!(room.held(6).is_some(), "its deadline has not passed");
        p.node.push("d", 4, &[2], long()).wait().unwrap().wait().unwrap();
        let [filled, expired, outlives] = stalled.map(block_on);
        filled.unwrap();
        let error = expired.unwrap_err();
        assert!(error.to_string().contains("expired before a push met it"), "{error}");
        outlives.unwrap();
        assert_freed(room, &[3, 4, 5, 6, 7]);
    }
}
