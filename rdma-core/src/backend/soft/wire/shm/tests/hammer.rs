//! A writer that never pauses against an owner that deregisters: no byte lands once the owner has waited.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::super::shared_slice::SharedSlice;
use super::chunks::Word;
use super::{BASE, Rig, execute, mapped, terms};
use crate::backend::soft::engine::message::{ReplyKind, Request, RequestOp};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::Injected;
use crate::backend::soft::wire::shm::segment::READ_WRITE;
use crate::backend::soft::wire::shm::{AccessScope, Outcome, RemoteResponder};

/// Several chunks, so that most deregistrations hit a message between two of them or inside one.
const BYTES: usize = 1 << 20;
const KEY: u32 = 11;
const ROUNDS: u64 = 300;
const GRACE: Duration = Duration::from_secs(30);

/// Writes all of the memory again and again until `ends`; returns how many writes were carried out.
fn write_on(responder: &mut RemoteResponder, mut psn: u32, mut ends: impl FnMut() -> bool) -> u64 {
    let mut local = vec![0xa5; BYTES];
    let mut carried_out = 0;
    while !ends() {
        let len = BYTES as u32;
        let request = Request {
            psn,
            op: RequestOp::Write,
            imm: None,
            remote_addr: BASE,
            rkey: KEY,
            len,
            ack_req: false,
        };
        let executed = execute(responder, &request, &mut local, Injected::Deliver);
        if executed.nudge {
            // The key names nothing just now. The next write finds the next registration.
            responder.header.bell.verdict.store(0, Ordering::Relaxed);
        } else if let Outcome::Reply(reply) = executed.outcome {
            psn = sequence::add(reply.psn, 1);
            carried_out += 1;
        }
    }
    carried_out
}

/// Deregisters again and again; returns in how many rounds a byte landed afterwards.
fn deregister_on(rig: &mut Rig, waits: bool) -> u64 {
    let words: SharedSlice<Word> = SharedSlice::new(&mapped(&rig.memory, READ_WRITE), 0, BYTES / 4).unwrap();
    let writer = rig.mailbox.writer();
    let mut late = 0;
    for serial in 1..=ROUNDS {
        rig.expose(KEY, serial);
        // At another moment of a message in each round.
        let begin = Instant::now();
        while words[0].0.load(Ordering::Relaxed) == 0 {
            assert!(begin.elapsed() < GRACE, "the writer does not write");
            std::hint::spin_loop();
        }
        for _ in 0..serial % 64 * 100 {
            std::hint::spin_loop();
        }
        rig.keys.remove(KEY, serial);
        if waits {
            assert!(writer.wait(AccessScope::Registration(serial), Instant::now() + GRACE, || false));
        }
        // Looks twice, because the first look may pass a position before the writer gets there.
        let mut touched = false;
        for look in 0..2 {
            for word in words.iter() {
                touched |= look == 1 && word.0.load(Ordering::Relaxed) != 0;
                word.0.store(0, Ordering::Relaxed);
            }
        }
        late += u64::from(touched);
        if !waits {
            writer.wait(AccessScope::Anything, Instant::now() + GRACE, || false);
            words.iter().for_each(|word| word.0.store(0, Ordering::Relaxed));
        }
    }
    late
}

fn hammer(waits: bool) -> (u64, u64) {
    let mut rig = Rig::new(BYTES, terms(4));
    let ended = AtomicBool::new(false);
    let mut responder = rig.another_responder();
    let psn = rig.psn;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_on(&mut responder, psn, || ended.load(Ordering::Relaxed)));
        let late = deregister_on(&mut rig, waits);
        ended.store(true, Ordering::Relaxed);
        (late, writer.join().unwrap())
    })
}

#[test]
fn nothing_lands_after_a_deregistration_that_waited() {
    let (late, _) = hammer(true);
    assert_eq!(late, 0, "of {ROUNDS} rounds");
}

#[test]
fn a_deregistration_that_does_not_wait_is_caught() {
    // On a busy machine the two may take turns for hundreds of rounds, so it repeats.
    let begin = Instant::now();
    while hammer(false).0 == 0 {
        assert!(begin.elapsed() < GRACE, "no round showed what the test is there to show");
    }
}

/// Forks a child that maps the owner's segments and writes without end.
fn fork_writer(rig: &Rig) -> libc::pid_t {
    // SAFETY: the child maps, writes and ends by `_exit`, so it runs nothing that belongs to the parent.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let writes = || {
            // The child must not outlive the thread that forked it, however that ends.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
            write_on(&mut rig.another_responder(), rig.psn, || false)
        };
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(writes));
        // SAFETY: `_exit` ends the child at once, so no destructor of the parent's values runs in it.
        unsafe { libc::_exit(1) };
    }
    child
}

fn signal(child: libc::pid_t, signal: i32) {
    // SAFETY: `child` was forked here and not waited for yet, so its number cannot belong to another process.
    assert_eq!(unsafe { libc::kill(child, signal) }, 0);
}

/// Whether the child ended, or (`WUNTRACED`) stopped; waits for that unless `WNOHANG` is set.
fn waited(child: libc::pid_t, options: i32) -> bool {
    let mut status = 0;
    // SAFETY: `child` was forked here, and `status` is a local, so the call writes only to it.
    unsafe { libc::waitpid(child, &mut status, options) == child }
}

#[test]
fn a_writer_of_another_process_is_waited_for_and_one_that_is_stopped_or_dead_is_known() {
    let mut rig = Rig::new(BYTES, terms(4));
    let child = fork_writer(&rig);
    assert_eq!(deregister_on(&mut rig, true), 0, "of {ROUNDS} rounds");

    let writer = rig.mailbox.writer();
    rig.expose(KEY, ROUNDS + 1);
    let begin = Instant::now();
    // Stops the child until that is in the middle of a chunk, where it is nearly all of the time.
    loop {
        assert!(begin.elapsed() < GRACE, "never stopped in a chunk");
        signal(child, libc::SIGSTOP);
        assert!(waited(child, libc::WUNTRACED));
        if writer.touches(AccessScope::Registration(ROUNDS + 1)) {
            break;
        }
        signal(child, libc::SIGCONT);
        std::thread::sleep(Duration::from_millis(1));
    }
    rig.keys.remove(KEY, ROUNDS + 1);
    let what = AccessScope::Registration(ROUNDS + 1);
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(!writer.wait(what, soon, || waited(child, libc::WNOHANG)));
    rig.mailbox.close();
    assert!(!rig.mailbox.is_settled());
    signal(child, libc::SIGKILL);
    let late = Instant::now() + GRACE;
    assert!(writer.wait(what, late, || waited(child, libc::WNOHANG)), "a dead writer is waited for");
    assert!(!rig.mailbox.is_settled());
    rig.mailbox.mark_writer_gone();
    assert!(rig.mailbox.is_settled());
}

/// Sends into receives until the owner ends the queue pair: every filled receive is completed, every other is
/// flushed, and none is filled after that.
#[test]
fn the_end_of_a_queue_pair_tells_every_receive_once() {
    const RECEIVE: usize = 4096;
    const DEPTH: usize = 16;
    for round in 0..100u64 {
        let mut rig = Rig::new(RECEIVE * DEPTH, terms(DEPTH));
        rig.expose(KEY, 1);
        for wr_id in 0..DEPTH as u64 {
            rig.post(wr_id, BASE + (wr_id as usize * RECEIVE) as u64, RECEIVE as u32, KEY);
        }
        let mut responder = rig.another_responder();
        let (mut psn, sent) = (rig.psn, AtomicU32::new(0));
        let (acked, flushed) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut acked = 0;
                loop {
                    let len = RECEIVE as u32;
                    let request = Request {
                        psn,
                        op: RequestOp::Send,
                        imm: None,
                        remote_addr: 0,
                        rkey: 0,
                        len,
                        ack_req: false,
                    };
                    let executed = execute(&mut responder, &request, &mut [7; RECEIVE], Injected::Deliver);
                    match executed.outcome {
                        Outcome::Reply(reply) if reply.kind == ReplyKind::Ack => acked += 1,
                        Outcome::Silence => return acked,
                        _ => {
                            std::thread::yield_now();
                            continue;
                        }
                    }
                    psn = sequence::add(psn, 1);
                    sent.store(acked as u32, Ordering::Relaxed);
                }
            });
            while sent.load(Ordering::Relaxed) < (round % 12) as u32 {
                std::hint::spin_loop();
            }
            rig.mailbox.close();
            assert!(rig.mailbox.writer().wait(AccessScope::Anything, Instant::now() + GRACE, || false));
            let mut told = 0u64;
            while let Some(done) = rig.mailbox.take() {
                assert_eq!((done.wr_id, done.status), (told, 0));
                told += 1;
            }
            let memory = rig.bytes();
            for (index, receive) in memory.chunks(RECEIVE).enumerate() {
                assert_eq!(receive.iter().all(|byte| *byte == 7), (index as u64) < told, "receive {index}");
            }
            let mut flushed = told;
            while let Some(done) = rig.mailbox.next_flushed() {
                assert_eq!(done.wr_id, flushed);
                flushed += 1;
            }
            assert_eq!(flushed, DEPTH as u64);
            let acked: u64 = writer.join().unwrap();
            assert_eq!(acked, told);
            assert!(rig.bytes() == memory, "a receive was filled after it was flushed");
            (acked, flushed - told)
        });
        assert_eq!(acked + flushed, DEPTH as u64);
    }
}
