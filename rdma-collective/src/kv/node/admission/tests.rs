//! The order of admission, and what every change does to the gauges.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;

/// Bounds, and the time from which deadlines count.
struct Scene {
    admission: Admission,
    nudge: Arc<Nudge>,
    start: Instant,
}

impl Scene {
    /// Bounds of a peer and of the node: transfers and bytes.
    fn new(peer: (usize, u64), node: (usize, u64)) -> Self {
        let nudge = Arc::new(Nudge::new().unwrap());
        let options = NodeOptions {
            peer_transfers_max: peer.0,
            peer_bytes_max: peer.1,
            transfers_max: node.0,
            bytes_max: node.1,
            ..NodeOptions::new("n", "127.0.0.1:0".parse().unwrap())
        };
        Self { admission: Admission::new(&options, &nudge), nudge, start: Instant::now() }
    }

    fn turn(&self, seconds: u64, id: u64) -> Turn {
        (self.start + Duration::from_secs(seconds), id)
    }

    /// Asks for room for 10 bytes.
    fn take(&mut self, gauge: &Arc<Gauge>, turn: Turn) -> Result<Permit, Full> {
        self.take_bytes(gauge, turn, 10)
    }

    /// Asks for room, and waits for it when there is none.
    fn take_bytes(&mut self, gauge: &Arc<Gauge>, turn: Turn, bytes: u64) -> Result<Permit, Full> {
        self.admission.take(gauge, turn, bytes).inspect_err(|_| {
            self.admission.wait(gauge, turn, bytes);
            self.admission.open(gauge, true);
            assert_eq!(self.admission.admit(), [], "there was no room just now");
        })
    }

    fn assert_empty(&self) {
        assert_eq!(self.admission.load(), Load::default());
        let Admission { lines, turns, heads, .. } = &self.admission;
        assert!(lines.is_empty() && turns.is_empty() && heads.is_empty());
    }
}

fn gauges<const N: usize>() -> [Arc<Gauge>; N] {
    std::array::from_fn(|_| Arc::default())
}

const MANY: (usize, u64) = (1000, 1000);

#[test]
fn those_of_one_peer_begin_by_their_deadlines_and_equal_ones_in_order() {
    let mut scene = Scene::new((1, 1000), MANY);
    let [peer] = gauges();
    let mut permit = scene.take(&peer, scene.turn(9, 1)).unwrap();
    for (seconds, id) in [(7, 2), (3, 3), (5, 4), (3, 5)] {
        assert_eq!(scene.take(&peer, scene.turn(seconds, id)).unwrap_err(), Full::PeerTransfers);
    }
    for (seconds, id) in [(3, 3), (3, 5), (5, 4), (7, 2)] {
        drop(permit);
        assert!(scene.nudge.clear(), "the thread comes, because somebody waits");
        assert_eq!(scene.admission.admit(), [id]);
        // The room is that of who was admitted, and not of who comes first.
        assert_eq!(scene.admission.take(&peer, scene.turn(1, 9), 10).unwrap_err(), Full::PeerTransfers);
        permit = scene.admission.take(&peer, scene.turn(seconds, id), 10).unwrap();
    }
    drop(permit);
    assert!(!scene.nudge.clear(), "nobody waits any more");
    scene.assert_empty();
}

#[test]
fn a_peer_that_is_full_delays_no_other() {
    let mut scene = Scene::new((1, 1000), MANY);
    let [full, other] = gauges();
    let _held = scene.take(&full, scene.turn(9, 1)).unwrap();
    for id in 2..100 {
        scene.take(&full, scene.turn(1, id)).unwrap_err();
    }
    for id in 100..200 {
        drop(scene.take(&other, scene.turn(9, id)).unwrap());
    }
    assert_eq!(scene.admission.load_of(&[full, other]), Load { transfers: 1, bytes: 10, waiting: 98 });
}

#[test]
fn each_bound_is_named() {
    for (peer, node, expected) in [
        ((2, 100), (9, 900), Full::PeerTransfers),
        ((9, 25), (9, 900), Full::PeerBytes),
        ((9, 100), (2, 900), Full::Transfers),
        ((9, 100), (9, 25), Full::Bytes),
    ] {
        let mut scene = Scene::new(peer, node);
        let [peer] = gauges();
        let permits = [1, 2].map(|id| scene.take(&peer, scene.turn(9, id)).unwrap());
        for id in [3, 4] {
            assert_eq!(scene.take(&peer, scene.turn(9, id)).unwrap_err(), expected);
            assert_eq!(scene.admission.waits_for(&peer, scene.turn(9, id)), Some(expected));
        }
        // Behind the one that waits there is no room, either, whatever this one would need.
        assert_eq!(scene.take_bytes(&peer, scene.turn(9, 5), 0).unwrap_err(), expected);
        drop(permits);
        assert!(scene.admission.admit().len() >= 2);
        assert_eq!(scene.admission.waits_for(&peer, scene.turn(9, 3)), None, "it has room");
    }
}

#[test]
fn the_first_transfer_has_room_however_long_it_is_and_bounds_of_none_are_bounds_of_one() {
    for bounds in [(9, 25), (0, 0)] {
        let mut scene = Scene::new(bounds, bounds);
        let [peer, other] = gauges();
        let long = scene.take_bytes(&peer, scene.turn(9, 1), u64::MAX).unwrap();
        let full = scene.take_bytes(&peer, scene.turn(9, 2), 1).unwrap_err();
        assert_eq!(full, if bounds.0 == 0 { Full::PeerTransfers } else { Full::PeerBytes });
        scene.take_bytes(&other, scene.turn(9, 3), 1).unwrap_err();
        drop(long);
        assert!(scene.admission.admit().starts_with(&[2]));
    }
}

#[test]
fn a_long_request_is_not_overtaken_by_short_ones_for_ever() {
    let mut scene = Scene::new(MANY, (9, 30));
    let [short, long] = gauges();
    let mut permits: Vec<_> = (1..4).map(|id| scene.take(&short, scene.turn(9, id)).unwrap()).collect();
    assert_eq!(scene.take_bytes(&long, scene.turn(5, 4), 25).unwrap_err(), Full::Bytes);
    // Room comes that would do for a short one.
    for left in [2, 1] {
        permits.truncate(left);
        assert_eq!(scene.take(&short, scene.turn(6, 10 + left as u64)).unwrap_err(), Full::Bytes);
    }
    permits.clear();
    assert_eq!(scene.admission.admit(), [4], "and no short one, because 25 of 30 bytes are gone");
}

#[test]
fn those_who_wait_for_a_link_hold_nobody_up_and_begin_by_their_deadlines_once_there_is_one() {
    let mut scene = Scene::new((2, 1000), (3, 1000));
    let [unlinked, other] = gauges();
    for (seconds, id) in [(7, 1), (5, 2), (6, 3)] {
        scene.admission.wait(&unlinked, scene.turn(seconds, id), 10);
    }
    assert_eq!(scene.admission.admit(), []);
    assert_eq!(scene.admission.waits_for(&unlinked, scene.turn(7, 1)), None);
    let _others = [8, 9].map(|id| scene.take(&other, scene.turn(9, id)).unwrap());
    scene.admission.open(&unlinked, true);
    assert_eq!(scene.admission.admit(), [2]);
    assert_eq!(scene.admission.waits_for(&unlinked, scene.turn(7, 1)), Some(Full::Transfers));
}

#[test]
fn room_that_was_not_taken_when_the_link_ended_is_that_of_others() {
    let mut scene = Scene::new((1, 1000), (1, 1000));
    let [unlinked, other] = gauges();
    scene.admission.wait(&unlinked, scene.turn(5, 1), 10);
    scene.admission.open(&unlinked, true);
    assert_eq!(scene.admission.admit(), [1]);
    assert_eq!(scene.admission.load(), Load { transfers: 1, bytes: 10, waiting: 0 });
    scene.admission.open(&unlinked, false);
    assert_eq!(scene.admission.admit(), []);
    assert_eq!(scene.admission.load(), Load { transfers: 0, bytes: 0, waiting: 1 });
    let taken = scene.take(&other, scene.turn(9, 2)).unwrap();
    scene.admission.open(&unlinked, true);
    assert_eq!(scene.admission.admit(), []);
    drop(taken);
    assert_eq!(scene.admission.admit(), [1]);
    drop(scene.admission.take(&unlinked, scene.turn(5, 1), 10).unwrap());
    scene.assert_empty();
}

/// Peers that ask for ever share the bound of the node: each waits for those alone whose deadline is earlier.
#[test]
fn no_peer_starves_at_the_bound_of_the_node() {
    let mut scene = Scene::new((8, 1000), (4, 1000));
    let peers: [Arc<Gauge>; 4] = gauges();
    // A peer has more requests under way than the next, and all have 10 s from the moment they ask.
    let mut permits = VecDeque::new();
    let (mut asked, mut waits) = (BTreeMap::new(), [0; 4]);
    let mut begun = [0; 4];
    for (round, id) in (0..400).zip(1..) {
        let at = [0, 0, 0, 0, 1, 1, 2, 3][round as usize % 8];
        let turn = scene.turn(10 + round, id);
        asked.insert(id, (at, turn, round));
        if let Ok(permit) = scene.take(&peers[at], turn) {
            permits.push_back(permit);
            begun[at] += 1;
        }
        permits.pop_front().into_iter().for_each(drop);
        for id in scene.admission.admit() {
            let (at, turn, since) = asked[&id];
            permits.push_back(scene.admission.take(&peers[at], turn, 10).unwrap());
            waits[at] = waits[at].max(round - since);
            begun[at] += 1;
        }
    }
    assert!(begun[3] >= 48 && waits.iter().all(|wait| *wait <= 4), "{begun:?} begun, waits {waits:?}");
}

#[test]
fn the_turn_of_one_that_leaves_or_expires_passes_on() {
    let mut scene = Scene::new((1, 1000), (2, 1000));
    let [peer, other] = gauges();
    let held = [scene.take(&peer, scene.turn(9, 1)).unwrap(), scene.take(&other, scene.turn(9, 2)).unwrap()];
    for id in 3..7 {
        scene.take(&peer, scene.turn(id, id)).unwrap_err();
    }
    assert_eq!(scene.admission.next_deadline(), Some(scene.turn(3, 0).0));
    let leave = |scene: &mut Scene, id| scene.admission.leave(&peer, scene.turn(id, id));
    assert!(leave(&mut scene, 3) && !leave(&mut scene, 3), "once");
    drop(held);
    assert_eq!(scene.admission.admit(), [4]);
    assert!(leave(&mut scene, 4), "the room that it has not taken is given back");
    assert_eq!(scene.admission.admit(), [5]);
    // A task that does not look keeps its room until its deadline.
    scene.admission.expire(scene.start + Duration::from_secs(4));
    assert_eq!(scene.admission.admit(), []);
    scene.admission.expire(scene.start + Duration::from_secs(5));
    assert_eq!(scene.admission.admit(), [6]);
    scene.admission.expire(scene.start + Duration::from_secs(6));
    assert_eq!(scene.admission.admit(), []);
    scene.assert_empty();
}

#[test]
fn those_of_a_peer_that_has_left_are_gone_and_their_room_with_them() {
    let mut scene = Scene::new(MANY, (1, 1000));
    let [gone, other] = gauges();
    let held = scene.take(&gone, scene.turn(9, 1)).unwrap();
    scene.take(&gone, scene.turn(2, 2)).unwrap_err();
    scene.take(&gone, scene.turn(3, 3)).unwrap_err();
    scene.take(&other, scene.turn(4, 4)).unwrap_err();
    drop(held);
    assert_eq!(scene.admission.admit(), [2]);
    scene.admission.remove(&gone);
    assert_eq!(scene.admission.admit(), [4]);
    drop(scene.admission.take(&other, scene.turn(4, 4), 10).unwrap());
    scene.assert_empty();
}

/// A generator of numbers (xorshift), so that a failure repeats.
fn numbers(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    }
}

#[test]
fn whatever_happens_the_bounds_hold_and_room_is_given_to_those_who_wait() {
    for seed in 1..200 {
        let mut any = numbers(seed);
        let mut scene = Scene::new((3, 40), (6, 70));
        let peers: [Arc<Gauge>; 3] = gauges();
        let (mut permits, mut waiting) = (Vec::new(), Vec::new());
        for id in 1..300 {
            let peer = &peers[any(3) as usize];
            match any(6) {
                0..=2 => {
                    let (turn, bytes) = (scene.turn(id + any(20), id), any(15));
                    match scene.admission.take(peer, turn, bytes) {
                        Ok(permit) => permits.push(permit),
                        Err(_) => {
                            scene.admission.wait(peer, turn, bytes);
                            scene.admission.open(peer, true);
                            waiting.push((Arc::clone(peer), turn, bytes));
                        }
                    }
                }
                3 | 4 if !permits.is_empty() => drop(permits.swap_remove(any(permits.len() as u64) as usize)),
                _ if !waiting.is_empty() => {
                    let (peer, turn, _) = waiting.swap_remove(any(waiting.len() as u64) as usize);
                    assert!(scene.admission.leave(&peer, turn));
                }
                _ => {}
            }
            for id in scene.admission.admit() {
                let at = waiting.iter().position(|(_, turn, _)| turn.1 == id).unwrap();
                let (peer, turn, bytes) = waiting.swap_remove(at);
                permits.push(scene.admission.take(&peer, turn, bytes).unwrap());
            }
            let Load { transfers, bytes, waiting: lines } = scene.admission.load();
            assert_eq!((transfers, lines), (permits.len(), waiting.len()));
            assert!(transfers <= 6 && bytes <= 70);
            for peer in &peers {
                let (transfers, bytes) = peer.load();
                assert!(transfers <= 3 && bytes <= 40);
            }
            let idle =
                waiting.iter().find(|(peer, turn, _)| scene.admission.waits_for(peer, *turn).is_none());
            assert!(idle.is_none(), "seed {seed}: {idle:?} waits for nothing");
        }
        waiting.iter().for_each(|(peer, turn, _)| assert!(scene.admission.leave(peer, *turn)));
        permits.clear();
        scene.assert_empty();
    }
}
