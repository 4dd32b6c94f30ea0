//! Every transition, and two ends over lanes that die at any moment, against what must have arrived.

use proptest::prelude::*;

use super::*;

const LIVES: [Life; 6] = [
    Life::Open,
    Life::Failed,
    Life::Fenced,
    Life::PeerFenced { taken: 7 },
    Life::BothFenced { taken: 7 },
    Life::Over,
];

#[test]
fn every_transition_is_in_the_table_and_no_other_can_be() {
    let table = [
        (Life::Open, Event::Failed, Life::Failed),
        (Life::Open, Event::PeerFenced(7), Life::PeerFenced { taken: 7 }),
        (Life::Failed, Event::Fenced, Life::Fenced),
        (Life::Failed, Event::PeerFenced(7), Life::PeerFenced { taken: 7 }),
        (Life::Fenced, Event::PeerFenced(7), Life::BothFenced { taken: 7 }),
        (Life::PeerFenced { taken: 7 }, Event::Fenced, Life::BothFenced { taken: 7 }),
        (Life::BothFenced { taken: 7 }, Event::Repeated, Life::Over),
        // Told again.
        (Life::PeerFenced { taken: 7 }, Event::PeerFenced(7), Life::PeerFenced { taken: 7 }),
        (Life::BothFenced { taken: 7 }, Event::PeerFenced(7), Life::BothFenced { taken: 7 }),
        (Life::Over, Event::PeerFenced(7), Life::Over),
        (Life::Over, Event::PeerFenced(8), Life::Over),
    ];
    let events = [Event::Failed, Event::Fenced, Event::PeerFenced(7), Event::PeerFenced(8), Event::Repeated];
    for life in LIVES {
        for event in events {
            let known = table.iter().find(|(from, what, _)| (*from, *what) == (life, event));
            let expected = match (life, event) {
                (Life::Open | Life::Failed, Event::PeerFenced(8)) => Some(Life::PeerFenced { taken: 8 }),
                (Life::Fenced, Event::PeerFenced(8)) => Some(Life::BothFenced { taken: 8 }),
                _ => known.map(|(_, _, to)| *to),
            };
            assert_eq!(life.after(event), expected, "{life:?}, {event:?}");
        }
    }
}

const SLOTS: u64 = 4;

/// A message over a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    /// A message, for the slot of its number.
    Message(u64),
    /// A control message; they must arrive in order.
    Control(u64),
    /// A count of messages that were given back.
    Freed(u64),
    /// The news of a fenced lane.
    Told { lane: usize, taken: u64 },
}

/// A direction of a lane.
#[derive(Debug, Default)]
struct Pipe {
    /// Items on the way.
    flying: VecDeque<Item>,
    /// Items that were sent, in order; the first `acknowledged` are known to have arrived.
    sent: Vec<Item>,
    acknowledged: usize,
    /// Items that have been taken at the other end.
    taken: u64,
    /// The sender has fenced its end: what flies may still land.
    sender_ended: bool,
    /// The receiver has fenced its end: nothing lands any more.
    receiver_ended: bool,
}

/// An end: its failover, a mailbox in each direction, and the rows of what has arrived.
struct End {
    failover: Failover<Item>,
    sent: u64,
    freed: u64,
    controls_sent: u64,
    controls_heard: u64,
    arrived: [Option<u64>; SLOTS as usize],
    given_back: u64,
    reported: u64,
}

struct World {
    ends: [End; 2],
    /// By lane, and by the end that sends.
    pipes: Vec<[Pipe; 2]>,
    cut: Vec<bool>,
}

struct ModelWires<'a> {
    end: usize,
    pipes: &'a mut Vec<[Pipe; 2]>,
    given_back: u64,
}

impl Wires for ModelWires<'_> {
    type Item = Item;
    type Error = ();

    fn fence(&mut self, lane: usize) -> Result<(), ()> {
        self.pipes[lane][self.end].sender_ended = true;
        self.pipes[lane][1 - self.end].receiver_ended = true;
        Ok(())
    }

    fn taken(&mut self, lane: usize) -> u64 {
        self.pipes[lane][1 - self.end].taken
    }

    fn tell(&mut self, carrier: usize, lane: usize, taken: u64) -> bool {
        send(&mut self.pipes[carrier][self.end], Item::Told { lane, taken });
        true
    }

    fn unsent(&mut self, lane: usize) -> (u64, Vec<Item>) {
        let pipe = &self.pipes[lane][self.end];
        (pipe.sent.len() as u64, pipe.sent[pipe.acknowledged..].to_vec())
    }

    fn free(&mut self, _: Item) {}

    fn repeat(&mut self, carrier: usize, item: Item) -> Result<(), Item> {
        let pipe = &mut self.pipes[carrier][self.end];
        // Room for few, so that some have to wait.
        if pipe.flying.len() >= 3 {
            return Err(item);
        }
        let item = if let Item::Freed(_) = item { Item::Freed(self.given_back) } else { item };
        send(pipe, item);
        Ok(())
    }
}

fn send(pipe: &mut Pipe, item: Item) {
    pipe.sent.push(item);
    if !pipe.sender_ended {
        pipe.flying.push_back(item);
    }
}

impl World {
    fn new(lanes: usize) -> Self {
        let end = || End {
            failover: Failover::new(lanes),
            sent: 0,
            freed: 0,
            controls_sent: 0,
            controls_heard: 0,
            arrived: [None; SLOTS as usize],
            given_back: 0,
            reported: 0,
        };
        let pipes = (0..lanes).map(|_| Default::default()).collect();
        Self { ends: [end(), end()], pipes, cut: vec![false; lanes] }
    }

    /// Whether the end may send, and over which lanes.
    fn open(&self, end: usize) -> Vec<usize> {
        if self.ends[end].failover.is_settled() {
            self.ends[end].failover.open().collect()
        } else {
            Vec::new()
        }
    }

    fn put(&mut self, from: usize) {
        let open = self.open(from);
        let end = &mut self.ends[from];
        if open.is_empty() || end.sent - end.freed >= SLOTS {
            return;
        }
        let lane = open[(end.sent % open.len() as u64) as usize];
        send(&mut self.pipes[lane][from], Item::Message(end.sent));
        end.sent += 1;
    }

    fn control(&mut self, from: usize) {
        let Some(&lane) = self.open(from).first() else { return };
        send(&mut self.pipes[lane][from], Item::Control(self.ends[from].controls_sent));
        self.ends[from].controls_sent += 1;
    }

    /// Takes what lies in the mailbox, in order, and reports it.
    fn give_back(&mut self, to: usize) {
        let end = &mut self.ends[to];
        while let Some(number) = end.arrived[(end.given_back % SLOTS) as usize] {
            assert_eq!(number, end.given_back, "another message lies in its slot");
            end.arrived[(end.given_back % SLOTS) as usize] = None;
            end.given_back += 1;
        }
        if end.reported < end.given_back
            && let Some(&lane) = self.open(to).first()
        {
            let count = self.ends[to].given_back;
            send(&mut self.pipes[lane][to], Item::Freed(count));
            self.ends[to].reported = count;
        }
    }

    /// Delivers the oldest item that flies on a lane.
    fn deliver(&mut self, lane: usize, from: usize) {
        if self.cut[lane] || self.pipes[lane][from].receiver_ended {
            return;
        }
        let Some(item) = self.pipes[lane][from].flying.pop_front() else { return };
        self.pipes[lane][from].taken += 1;
        let end = &mut self.ends[1 - from];
        match item {
            Item::Message(number) => {
                let slot = (number % SLOTS) as usize;
                assert!(number >= end.given_back, "message {number} came again");
                assert!(number < end.given_back + SLOTS, "message {number} came into a slot in use");
                assert_eq!(end.arrived[slot], None, "message {number} came twice");
                end.arrived[slot] = Some(number);
            }
            Item::Control(number) => {
                assert_eq!(number, end.controls_heard, "out of order");
                end.controls_heard += 1;
            }
            Item::Freed(count) => {
                assert!((end.freed..=end.sent).contains(&count), "a count that goes back");
                end.freed = count;
            }
            Item::Told { lane: about, taken } => {
                assert!(about != lane && end.failover.take(about, Event::PeerFenced(taken)));
            }
        }
    }

    /// The acknowledgement of the oldest item that has arrived.
    fn acknowledge(&mut self, lane: usize, from: usize) {
        let pipe = &mut self.pipes[lane][from];
        if !self.cut[lane] && !pipe.sender_ended && (pipe.acknowledged as u64) < pipe.taken {
            pipe.acknowledged += 1;
        }
    }

    /// An end finds that a lane was cut, or that the other end is fenced.
    fn notice(&mut self, end: usize, lane: usize) {
        let failover = &mut self.ends[end].failover;
        let is_dead = self.cut[lane] || self.pipes[lane][end].receiver_ended;
        if is_dead && failover.open().any(|open| open == lane) && failover.open().count() > 1 {
            assert!(failover.take(lane, Event::Failed));
        }
    }

    fn mend(&mut self, end: usize) {
        let given_back = self.ends[end].given_back;
        let mut wires = ModelWires { end, pipes: &mut self.pipes, given_back };
        let failover = &mut self.ends[end].failover;
        if !failover.is_settled() {
            failover.fence(&mut wires).unwrap();
            failover.mend(&mut wires).unwrap();
        }
    }

    fn step(&mut self, what: u8, lane: usize, end: usize) {
        match what {
            0..3 => self.put(end),
            3..8 => self.deliver(lane, end),
            8 => self.control(end),
            9..11 => self.give_back(end),
            11 => self.acknowledge(lane, end),
            12 => self.notice(end, lane),
            13 | 14 => self.mend(end),
            _ if self.cut.iter().filter(|cut| !**cut).count() > 1 => self.cut[lane] = true,
            _ => {}
        }
    }

    /// Lets everything come to rest.
    fn settle(&mut self) {
        for _ in 0..200 {
            for at in 0..2 * self.cut.len() {
                let (end, lane) = (at % 2, at / 2);
                self.deliver(lane, end);
                self.notice(end, lane);
                self.mend(end);
                self.give_back(end);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_message_arrives_once_in_its_slot_and_control_messages_in_order(
        lanes in 1_usize..=4,
        steps in prop::collection::vec((0_u8..16, 0_usize..4, 0_usize..2), 0..400),
    ) {
        let mut world = World::new(lanes);
        for (what, lane, end) in steps {
            world.step(what, lane % lanes, end);
        }
        world.settle();
        // Two ends that have each fenced what was the other's last lane have none left in common; a link ends then.
        let is_up = |lane: &usize| !world.cut[*lane] && !world.pipes[*lane][0].receiver_ended;
        let common = world.ends[0].failover.open().any(|lane| is_up(&lane));
        prop_assume!(common);
        for end in [0, 1] {
            let (from, to) = (&world.ends[end], &world.ends[1 - end]);
            prop_assert!(from.failover.is_settled(), "{:?}", from.failover);
            prop_assert_eq!((to.given_back, from.freed), (from.sent, from.sent));
            prop_assert_eq!(to.controls_heard, from.controls_sent);
        }
    }
}

#[test]
fn counts_that_cannot_be_are_refused() {
    for (taken, expected) in [(0, Err(WrongCount)), (1, Ok(())), (3, Ok(())), (4, Err(WrongCount))] {
        let mut world = World::new(2);
        (0..4).for_each(|_| world.put(0));
        world.control(0);
        assert_eq!(world.pipes[0][0].sent.len(), 3);
        // The first is known to have arrived.
        world.deliver(0, 0);
        world.acknowledge(0, 0);
        assert!(world.ends[0].failover.take(0, Event::PeerFenced(taken)));
        let mut wires = ModelWires { end: 0, pipes: &mut world.pipes, given_back: 0 };
        world.ends[0].failover.fence(&mut wires).unwrap();
        assert_eq!(world.ends[0].failover.mend(&mut wires), expected, "{taken}");
    }
}
