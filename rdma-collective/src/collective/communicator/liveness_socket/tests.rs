//! A neighbour that becomes ready only after this side has given up waiting for it.

use std::io::{ErrorKind, Read};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use rdma_core::{Device, SoftOptions};

use super::*;
use crate::engine::{Driver, EngineOptions};
use crate::link::{LaneOptions, LinkKind};

const TOKEN: JobToken = JobToken::from_bytes([5; 16]);

fn seconds(seconds: u64) -> Deadline {
    Deadline::after(Duration::from_secs(seconds))
}

#[test]
fn a_connection_that_the_neighbour_may_watch_is_held_as_long_as_the_lane() {
    let options = EngineOptions { driver: Driver::Caller, ..EngineOptions::default() };
    let engine = Engine::new(&Device::soft(SoftOptions::default()).open().unwrap(), options).unwrap();
    let lane = LaneOptions { epoch: 0, max_send_wr: 16, credits: 6, control_bytes_max: 64 };
    let lanes = [(); 2].map(|()| engine.open_lane(0, lane.clone()).unwrap());
    let [ours, mut theirs] = lanes.map(|lane| engine.blob(lane, LinkKind::COLLECTIVE, 0).unwrap());
    theirs.process.boot = [0xee; 16];
    engine.lock().connect_lane(lanes[0], &theirs, Instant::now()).unwrap();
    engine.lock().connect_lane(lanes[1], &ours, Instant::now()).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (given_up, has_given_up) = mpsc::channel();
    let (was_held, has_seen) = mpsc::channel();
    let neighbour = thread::spawn(move || {
        let mut met = meet(&Meet::Connect(address), &TOKEN, seconds(60)).unwrap();
        has_given_up.recv().unwrap();
        met.say_ready().unwrap();
        met.hear_ready().unwrap();
        let mut stream = met.into_stream();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let read = stream.read(&mut [0]);
        let held = read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(held, "its process lives, and the connection says otherwise: {read:?}");
        was_held.send(()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let ended = !stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        assert!(ended, "the lane has gone, and the connection says otherwise");
    });
    let next = WatchedPeer { rank: 1, lane: lanes[1], blob: &ours };
    let previous = WatchedPeer { rank: 1, lane: lanes[0], blob: &theirs };
    Listener(Some(listener)).connect(&engine, &TOKEN, 0, &[next, previous], seconds(3));
    given_up.send(()).unwrap();
    let seen = has_seen.recv();
    for lane in lanes {
        engine.lock().fence_lane(lane, seconds(60)).unwrap();
    }
    neighbour.join().unwrap();
    seen.unwrap();
}
