//! A world of ranks in memory that takes the steps of any schedule in any order that the rules allow.
//!
//! Deliveries pass each other, credits are late, ranks stall: [`World::actions`] lists all that may happen next
//! and the caller chooses. The world checks at every step that no slot is overwritten before it was given back,
//! that no more than `slots` messages are out, and that the source of a write holds still until it arrived.
//! Speed is in `time`, choosing in `choose`.

pub(super) mod choose;
pub(super) mod time;

use super::{Source, Span, Step};

/// One element: how often each rank is in it (four bits a rank), a sum that only the right place gives, and the order
/// in which the ranks were reduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    counts: u64,
    sum: u64,
    /// Four bits a rank, the last one lowest; only known when it is a left fold.
    order: u64,
    /// Whether what is done once at the end has been done.
    finished: bool,
}

impl Cell {
    pub(super) fn of(rank: usize, index: usize) -> Self {
        let place = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let sum = place.wrapping_mul(place | 1);
        Self { counts: 1 << (4 * rank), sum, order: rank as u64, finished: false }
    }

    /// The element `index` of the result: every rank's exactly once, from `first` on around the ring, and then finished
    /// when there was something to reduce.
    pub(super) fn total(ranks: usize, index: usize, first: usize) -> Self {
        let all = (1..ranks).map(|step| Self::of((first + step) % ranks, index));
        Self { finished: ranks > 1, ..all.fold(Self::of(first, index), Self::then) }
    }

    /// What has been reduced, and then one rank's own.
    fn then(self, own: Self) -> Self {
        assert!(own.counts.is_power_of_two() && !self.finished, "{own:?} comes after {self:?}");
        let sum = self.sum.wrapping_add(own.sum);
        Self { counts: self.counts + own.counts, sum, order: self.order << 4 | own.order, finished: false }
    }
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The rank takes its next step.
    Step(usize),
    /// The message at `index` of those under way on the link that starts at the rank arrives.
    Arrive(usize, usize),
    /// The credit at `index` of those under way to the rank arrives.
    Credit(usize, usize),
}

#[derive(Clone, Debug)]
pub(super) struct World<P> {
    element: usize,
    slots: u64,
    ranks: Vec<Rank<P>>,
}

/// A rank, with the link on which it sends.
#[derive(Clone, Debug)]
struct Rank<P> {
    /// The programs to come, the last one first, and the step of the present one that is next.
    programs: Vec<P>,
    next: Option<Step>,
    taken: u64,
    /// The input, and the output unless in place, of each program.
    buffers: Vec<(Vec<Cell>, Option<Vec<Cell>>)>,
    present: usize,
    /// Messages sent and received before the present program.
    sent_before: u64,
    received_before: u64,
    received: u64,
    link: Link,
}

#[derive(Clone, Debug, Default)]
struct Link {
    sent: u64,
    /// What the sender knows to be given back, of `sent`.
    freed: u64,
    slots: Vec<Slot>,
    under_way: Vec<Message>,
    credits: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Slot {
    #[default]
    Free,
    Written(u64, Vec<Cell>),
    Consumed(u64),
}

#[derive(Clone, Debug)]
struct Message {
    number: u64,
    program: usize,
    source: Source,
    span: Span,
    content: Vec<Cell>,
}

impl<P: Iterator<Item = Step> + Clone> World<P> {
    /// Ranks that each run their program `repeat` times on fresh buffers, without waiting for each other.
    pub(super) fn new(
        programs: impl IntoIterator<Item = P>,
        repeat: usize,
        count: usize,
        element: usize,
        slots: u16,
        in_place: bool,
    ) -> Self {
        let rank = |(rank, program): (usize, P)| {
            let input: Vec<Cell> = (0..count).map(|index| Cell::of(rank, index)).collect();
            let output = (!in_place).then(|| vec![Cell::default(); count]);
            let mut rank = Rank {
                programs: vec![program; repeat],
                next: None,
                taken: 0,
                buffers: vec![(input, output); repeat],
                present: 0,
                sent_before: 0,
                received_before: 0,
                received: 0,
                link: Link { slots: vec![Slot::Free; usize::from(slots)], ..Link::default() },
            };
            rank.fetch();
            rank
        };
        Self { element, slots: slots.into(), ranks: programs.into_iter().enumerate().map(rank).collect() }
    }

    /// All that may happen next; empty when every rank has taken its last step and nothing is under way.
    pub(super) fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        let steps = (0..self.ranks.len()).filter(|&rank| self.may_step(rank)).map(Action::Step);
        let links = self.ranks.iter().enumerate();
        let arrivals = links
            .clone()
            .flat_map(|(rank, r)| (0..r.link.under_way.len()).map(move |index| Action::Arrive(rank, index)));
        let credits = links
            .flat_map(|(rank, r)| (0..r.link.credits.len()).map(move |index| Action::Credit(rank, index)));
        steps.chain(arrivals).chain(credits)
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Step(rank) => self.step(rank),
            Action::Arrive(rank, index) => self.arrive(rank, index),
            Action::Credit(rank, index) => {
                let link = &mut self.ranks[rank].link;
                link.freed = link.freed.max(link.credits.swap_remove(index));
            }
        }
    }

    /// Checks that nothing is left to do and that every element of every rank is every rank's exactly once, in the order
    /// of ranks from `first`, given its index, on.
    pub(super) fn assert_reduced(&self, first: impl Fn(usize) -> usize) {
        let ranks = self.ranks.len();
        for (index, rank) in self.ranks.iter().enumerate() {
            assert_eq!(rank.next, None, "rank {index} of {ranks} is stuck");
            assert_eq!(rank.link.freed, rank.link.sent, "rank {index} of {ranks} misses credits");
            assert!(rank.link.slots.iter().all(|slot| *slot == Slot::Free));
            for (input, output) in &rank.buffers {
                for (element, cell) in output.as_ref().unwrap_or(input).iter().enumerate() {
                    assert_eq!(
                        *cell,
                        Cell::total(ranks, element, first(element)),
                        "element {element} of rank {index}"
                    );
                }
                if output.is_some() {
                    assert!(input.iter().enumerate().all(|(i, cell)| *cell == Cell::of(index, i)));
                }
            }
        }
    }

    /// What distinguishes one state of the same programs from another, for exhaustive search.
    pub(super) fn key(&self) -> Vec<u64> {
        let mut key = Vec::new();
        for rank in &self.ranks {
            key.extend([rank.taken, rank.link.freed, u64::MAX]);
            let mut numbers: Vec<u64> = rank.link.under_way.iter().map(|message| message.number).collect();
            numbers.sort_unstable();
            key.append(&mut numbers);
            key.push(u64::MAX);
            let mut credits = rank.link.credits.clone();
            credits.sort_unstable();
            key.append(&mut credits);
        }
        key
    }

    fn may_step(&self, rank: usize) -> bool {
        match self.ranks[rank].next {
            None => false,
            Some(Step::Put { .. }) => {
                let link = &self.ranks[rank].link;
                link.sent - link.freed < self.slots
            }
            Some(Step::WaitCount { from, message }) => {
                let link = &self.ranks[from as usize].link;
                let number = self.ranks[rank].received_before + message;
                matches!(&link.slots[(number % self.slots) as usize], Slot::Written(n, _) if *n == number)
            }
            Some(_) => true,
        }
    }

    fn step(&mut self, rank: usize) {
        match self.ranks[rank].next.take().expect("a step") {
            Step::Put { to, message, source, span } => self.put(rank, to as usize, message, source, span),
            Step::WaitCount { .. } => {}
            Step::ReduceFrom { from, message, span, last } => {
                let cells = self.consume(from as usize, rank, message, span);
                self.store(rank, span, |own, at| Cell { finished: last, ..cells[at].then(own) });
            }
            Step::CopyFrom { from, message, span } => {
                let cells = self.consume(from as usize, rank, message, span);
                self.store(rank, span, |_, at| cells[at]);
            }
            Step::Signal { to, consumed } => self.signal(to as usize, rank, consumed),
            Step::Copy { span } => self.store(rank, span, |input, _| input),
        }
        let rank = &mut self.ranks[rank];
        rank.taken += 1;
        rank.fetch();
    }

    fn put(&mut self, rank: usize, to: usize, message: u64, source: Source, span: Span) {
        assert_eq!(to, (rank + 1) % self.ranks.len(), "a ring has one link a rank");
        let program = self.ranks[rank].present;
        let content = self.read(rank, program, source, span);
        let rank = &mut self.ranks[rank];
        let number = rank.sent_before + message;
        assert_eq!(number, rank.link.sent, "messages are numbered in order");
        rank.link.sent += 1;
        rank.link.under_way.push(Message { number, program, source, span, content });
    }

    fn arrive(&mut self, rank: usize, index: usize) {
        let message = self.ranks[rank].link.under_way.swap_remove(index);
        let now = self.read(rank, message.program, message.source, message.span);
        assert_eq!(now, message.content, "rank {rank} changed a source before it had arrived");
        let slot = &mut self.ranks[rank].link.slots[(message.number % self.slots) as usize];
        assert_eq!(*slot, Slot::Free, "message {} of rank {rank} overwrites a slot", message.number);
        *slot = Slot::Written(message.number, now);
    }

    fn consume(&mut self, from: usize, rank: usize, message: u64, span: Span) -> Vec<Cell> {
        assert_eq!((from + 1) % self.ranks.len(), rank, "a ring has one link a rank");
        let number = self.ranks[rank].received_before + message;
        self.ranks[rank].received += 1;
        let link = &mut self.ranks[from].link;
        let slot = &mut link.slots[(number % self.slots) as usize];
        match std::mem::replace(slot, Slot::Consumed(number)) {
            Slot::Written(n, cells) if n == number && cells.len() * self.element == span.len => cells,
            other => panic!("rank {rank} takes message {number} from {other:?}"),
        }
    }

    fn signal(&mut self, sender: usize, rank: usize, consumed: u64) {
        assert_eq!((sender + 1) % self.ranks.len(), rank, "a ring has one link a rank");
        let consumed = self.ranks[rank].received_before + consumed;
        let link = &mut self.ranks[sender].link;
        let mut given_back = 0;
        for slot in &mut link.slots {
            match slot {
                Slot::Consumed(number) if *number < consumed => {
                    *slot = Slot::Free;
                    given_back += 1;
                }
                Slot::Written(number, _) => {
                    assert!(*number >= consumed, "message {number} is still to be used")
                }
                _ => {}
            }
        }
        assert!(given_back > 0, "a signal without a credit");
        link.credits.push(consumed);
    }

    fn read(&self, rank: usize, program: usize, source: Source, span: Span) -> Vec<Cell> {
        let (input, output) = &self.ranks[rank].buffers[program];
        let buffer = match source {
            Source::Input => input,
            Source::Output => output.as_ref().unwrap_or(input),
        };
        buffer[self.elements(span)].to_vec()
    }

    fn store(&mut self, rank: usize, span: Span, cell: impl Fn(Cell, usize) -> Cell) {
        let elements = self.elements(span);
        let rank = &mut self.ranks[rank];
        let (input, output) = &mut rank.buffers[rank.present];
        for (at, index) in elements.enumerate() {
            let value = cell(input[index], at);
            *output.as_mut().map_or(&mut input[index], |output| &mut output[index]) = value;
        }
    }

    fn elements(&self, span: Span) -> std::ops::Range<usize> {
        assert!(span.len > 0 && (span.offset | span.len).is_multiple_of(self.element));
        span.offset / self.element..(span.offset + span.len) / self.element
    }
}

impl<P: Iterator<Item = Step>> Rank<P> {
    /// The next step, of the next program when the present one has ended.
    fn fetch(&mut self) {
        while let Some(program) = self.programs.last_mut() {
            self.next = program.next();
            if self.next.is_some() {
                return;
            }
            self.programs.pop();
            self.present += 1;
            self.sent_before = self.link.sent;
            self.received_before = self.received;
        }
    }
}
