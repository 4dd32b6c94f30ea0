//! A simulated world of ranks that takes the steps of any schedule in any order that the rules allow.
//!
//! Deliveries overtake each other, credits are late, ranks stall: [`World::actions`] lists all that may happen next
//! and the caller chooses. The world checks at every step that no slot is overwritten before it was given back, that
//! at most `slots` messages are out on a link, that a rank has the bytes that it sends, and that the source of a
//! write does not change until the write has arrived. Time is simulated in `time`; the choosers are in `choose`.

mod cell;
pub(in crate::collective::schedule) mod choose;
mod link;
pub(in crate::collective::schedule) mod time;

use std::collections::BTreeMap;
use std::rc::Rc;

pub(in crate::collective::schedule) use self::cell::Cell;
use self::link::{Link, Message};
use crate::collective::schedule::{Buffer, Extent, Span, Step};

/// An event that may happen next. A link is written as (sender, receiver).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective::schedule) enum Action {
    /// The strand takes its next step.
    Step(usize),
    /// The message at `index` of those under way on the link arrives.
    Arrive((usize, usize), usize),
    /// The credit at `index` of those under way to the sender arrives.
    Credit((usize, usize), usize),
}

#[derive(Clone, Debug)]
pub(in crate::collective::schedule) struct World<P> {
    element: usize,
    slots: usize,
    /// How many ranks there are. A strand at or above this number is a further one of the rank `strand % world`, and
    /// uses that rank's memory and links.
    world: usize,
    ranks: Vec<Rank<P>>,
    links: BTreeMap<(usize, usize), Link>,
}

#[derive(Clone, Debug)]
struct Rank<P> {
    /// The programs to come, the last one first, and the step of the present one that is next.
    programs: Vec<P>,
    next: Option<Step>,
    taken: u64,
    /// The memory of each program; and the inputs as they were.
    memory: Vec<Memory>,
    before: Rc<[Cell]>,
    present: usize,
}

#[derive(Clone, Debug)]
struct Memory {
    input: Vec<Cell>,
    /// Unless in extent.
    output: Option<Vec<Cell>>,
    /// As long as was needed.
    scratch: Vec<Cell>,
    /// The message that was made and not yet put, and the rank that it is for.
    outgoing: Option<(u32, Vec<Cell>)>,
}

impl Memory {
    fn buffer(&mut self, buffer: Buffer) -> &mut Vec<Cell> {
        match (buffer, &mut self.output) {
            (Buffer::Scratch, _) => &mut self.scratch,
            (Buffer::Outgoing(_), _) => panic!("an outgoing message is only made and put"),
            (Buffer::Output, Some(output)) => output,
            _ => &mut self.input,
        }
    }
}

impl<P: Iterator<Item = Step> + Clone> World<P> {
    /// Ranks that each run their program `repeat` times on fresh buffers, without waiting for each other.
    pub(in crate::collective::schedule) fn new(
        programs: impl IntoIterator<Item = P>,
        repeat: usize,
        count: usize,
        element: usize,
        slots: u16,
        in_place: bool,
    ) -> Self {
        Self::of_inputs(programs, repeat, count, element, slots, in_place, |_, _| true)
    }

    /// Like [`new`](Self::new), but a rank's input has an element only where `has` says so, given rank and index.
    pub(in crate::collective::schedule) fn of_inputs(
        programs: impl IntoIterator<Item = P>,
        repeat: usize,
        count: usize,
        element: usize,
        slots: u16,
        in_place: bool,
        has: impl Fn(usize, usize) -> bool,
    ) -> Self {
        let rank = |(rank, program): (usize, P)| {
            let cell = |index| if has(rank, index) { Cell::of(rank, index) } else { Cell::default() };
            let input: Vec<Cell> = (0..count).map(cell).collect();
            let output = (!in_place).then(|| vec![Cell::default(); count]);
            Rank {
                programs: vec![program; repeat],
                next: None,
                taken: 0,
                before: input.as_slice().into(),
                memory: vec![Memory { input, output, scratch: Vec::new(), outgoing: None }; repeat],
                present: 0,
            }
        };
        let ranks: Vec<_> = programs.into_iter().enumerate().map(rank).collect();
        let (world, links) = (ranks.len(), BTreeMap::new());
        let mut world = Self { element, slots: slots.into(), world, ranks, links };
        for rank in 0..world.ranks.len() {
            world.fetch(rank);
        }
        world
    }

    /// This world with a further strand for each rank, which runs beside the first one.
    pub(in crate::collective::schedule) fn beside(mut self, programs: impl IntoIterator<Item = P>) -> Self {
        for program in programs {
            let (memory, before) = (Vec::new(), Rc::default());
            let programs = vec![program];
            self.ranks.push(Rank { programs, next: None, taken: 0, memory, before, present: 0 });
            self.fetch(self.ranks.len() - 1);
        }
        self
    }

    /// All events that may happen next; empty when every rank has taken its last step and nothing is under way.
    pub(in crate::collective::schedule) fn actions(&self) -> impl Iterator<Item = Action> + '_ {
        let steps = (0..self.ranks.len()).filter(|&rank| self.may_step(rank)).map(Action::Step);
        let links = self.links.iter();
        let arrivals = links.clone().flat_map(|(&link, state)| {
            (0..state.under_way.len()).map(move |index| Action::Arrive(link, index))
        });
        let credits =
            links.flat_map(|(&link, state)| (0..state.credits.len()).map(move |at| Action::Credit(link, at)));
        steps.chain(arrivals).chain(credits)
    }

    pub(in crate::collective::schedule) fn act(&mut self, action: Action) {
        match action {
            Action::Step(rank) => self.step(rank),
            Action::Arrive(link, index) => self.arrive(link, index),
            Action::Credit(link, index) => {
                let link = self.link(link);
                link.freed = link.freed.max(link.credits.swap_remove(index));
            }
        }
    }

    /// Checks that nothing is left to do, and that every element of every rank contains each rank exactly once, in
    /// ring order from the rank that `first` gives for its index.
    pub(in crate::collective::schedule) fn assert_reduced(&self, first: impl Fn(usize) -> usize) {
        let ranks = self.ranks.len();
        self.assert_ended(|_, element| Some(Cell::total(ranks, element, first(element))));
    }

    /// Checks that nothing is left to do, and that every rank has the cell that is `expected` of that rank and index;
    /// where that is `None`, that nothing was stored.
    pub(in crate::collective::schedule) fn assert_ended(
        &self,
        expected: impl Fn(usize, usize) -> Option<Cell>,
    ) {
        let ranks = self.ranks.len();
        for ((from, to), link) in &self.links {
            assert!(
                link.is_idle(),
                "the link from {from} to {to} of {ranks} has messages, or misses credits: {link:?}"
            );
        }
        for (index, rank) in self.ranks.iter().enumerate() {
            assert_eq!(rank.next, None, "rank {index} of {ranks} is stuck");
            for Memory { input, output, .. } in &rank.memory {
                for (element, cell) in output.as_ref().unwrap_or(input).iter().enumerate() {
                    let untouched = if output.is_some() { Cell::default() } else { rank.before[element] };
                    let expected = expected(index, element).unwrap_or(untouched);
                    assert!(
                        cell.is(&expected),
                        "element {element} of rank {index}: {cell:?}, not {expected:?}"
                    );
                }
                assert!(output.is_none() || **input == *rank.before, "rank {index} has changed its input");
            }
        }
    }

    /// The most bytes of scratch that a program of a rank has used.
    pub(in crate::collective::schedule) fn scratch_bytes(&self, rank: usize) -> usize {
        let used = self.ranks[rank].memory.iter().map(|memory| memory.scratch.len());
        used.max().unwrap_or(0) * self.element
    }

    /// A key that distinguishes the states of the same programs, for exhaustive search.
    pub(in crate::collective::schedule) fn key(&self) -> Vec<u64> {
        let mut key: Vec<u64> = self.ranks.iter().map(|rank| rank.taken).collect();
        for (&(from, to), link) in &self.links {
            key.push((from << 32 | to) as u64);
            link.key(&mut key);
        }
        key
    }

    fn link(&mut self, link: (usize, usize)) -> &mut Link {
        self.links.entry(link).or_insert_with(|| Link::new(self.slots))
    }

    fn may_step(&self, strand: usize) -> bool {
        let rank = strand % self.world;
        let link = |from, to| self.links.get(&(from, to));
        match self.ranks[strand].next {
            None => false,
            Some(Step::Put { to, .. }) => link(rank, to as usize).is_none_or(Link::has_credit),
            Some(Step::WaitCount { from, message }) => {
                link(from as usize, rank).is_some_and(|link| link.has_arrived(message))
            }
            Some(Step::WaitPut { to, message }) => {
                link(rank, to as usize).is_some_and(|link| link.sent - link.sent_before > message)
            }
            Some(_) => true,
        }
    }

    fn step(&mut self, strand: usize) {
        let rank = strand % self.world;
        match self.ranks[strand].next.take().expect("a step") {
            Step::Put { to, message, source, copied } => {
                let program = self.ranks[rank].present;
                let outgoing = matches!(source.buffer(), Buffer::Outgoing(_));
                let (cells, copied) = match outgoing {
                    true => (self.take_outgoing(rank, to), true),
                    false => (self.read(rank, program, source), copied),
                };
                assert_eq!(cells.len() * self.element, source.len());
                assert!(cells.iter().all(Cell::is_set), "rank {rank} sends what it does not have");
                let link = self.link((rank, to as usize));
                link.send(Message { number: message, program, source, copied, cells });
            }
            Step::WaitCount { .. } | Step::WaitPut { .. } => {}
            Step::ReduceFrom { from, message, operand, target, last } => {
                let operands = self.read(rank, self.ranks[rank].present, operand);
                let reduced = self.consume(from, rank, message, target).into_iter().zip(operands);
                let reduced = reduced.map(|(slot, operand)| slot.then(operand).finished(last)).collect();
                self.store(rank, target, reduced);
            }
            Step::CopyFrom { from, message, target } => {
                let cells = self.consume(from, rank, message, target);
                self.store(rank, target, cells);
            }
            Step::Signal { to, consumed, .. } => self.link((to as usize, rank)).signal(consumed),
            Step::Copy { source, target } => {
                let cells = self.read(rank, self.ranks[rank].present, source);
                self.store(rank, target, cells);
            }
        }
        self.ranks[strand].taken += 1;
        self.fetch(strand);
    }

    fn arrive(&mut self, (rank, to): (usize, usize), index: usize) {
        let message = self.link((rank, to)).under_way.swap_remove(index);
        if !message.copied {
            let now = self.read(rank, message.program, message.source);
            assert_eq!(now, message.cells, "rank {rank} changed a source before it had arrived");
        }
        self.link((rank, to)).write(message.number, message.cells);
    }

    fn consume(&mut self, from: u32, rank: usize, message: u64, target: Extent) -> Vec<Cell> {
        let cells = self.link((from as usize, rank)).consume(message);
        assert_eq!(cells.len() * self.element, target.len(), "rank {rank} expects another length");
        cells
    }

    fn read(&mut self, rank: usize, program: usize, extent: Extent) -> Vec<Cell> {
        let buffer = self.ranks[rank].memory[program].buffer(extent.buffer());
        extent.spans().flat_map(|span| buffer[elements(span, self.element)].to_vec()).collect()
    }

    fn take_outgoing(&mut self, rank: usize, to: u32) -> Vec<Cell> {
        let rank = &mut self.ranks[rank];
        let (of, cells) = rank.memory[rank.present].outgoing.take().expect("a message that was made");
        assert_eq!(of, to, "the message is for another rank");
        cells
    }

    fn store(&mut self, rank: usize, extent: Extent, cells: Vec<Cell>) {
        let rank = &mut self.ranks[rank];
        if let Buffer::Outgoing(to) = extent.buffer() {
            let before = rank.memory[rank.present].outgoing.replace((to, cells));
            assert_eq!(before, None, "a second message is made before the first is put");
            return;
        }
        let buffer = rank.memory[rank.present].buffer(extent.buffer());
        assert_eq!(cells.len() * self.element, extent.len());
        let indices = extent.spans().flat_map(|span| elements(span, self.element));
        for (index, cell) in indices.zip(cells) {
            if extent.buffer() == Buffer::Scratch && buffer.len() <= index {
                buffer.resize(index + 1, Cell::default());
            }
            buffer[index] = cell;
        }
    }

    /// The next step, of the next program when the present one has ended.
    fn fetch(&mut self, index: usize) {
        // Strands beside each other have one program each, and share what is counted behind it.
        let is_beside = self.ranks.len() > self.world;
        let rank = &mut self.ranks[index];
        while let Some(program) = rank.programs.last_mut() {
            rank.next = program.next();
            if rank.next.is_some() {
                return;
            }
            rank.programs.pop();
            if is_beside {
                continue;
            }
            rank.present += 1;
            for (&(from, to), link) in &mut self.links {
                if from == index {
                    link.sent_before = link.sent;
                } else if to == index {
                    link.received_before = link.received;
                }
            }
        }
    }
}

fn elements(Span { offset, len }: Span, element: usize) -> std::ops::Range<usize> {
    assert!(len > 0 && (offset | len).is_multiple_of(element));
    offset / element..(offset + len) / element
}
