//! The link from one rank to another: messages under way, slots, credits.

use super::Cell;
use crate::collective::schedule::Extent;

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) sent: u64,
    /// Messages of `sent` that are given back, those of them of which the sender was told, and those of which it knows.
    given_back: u64,
    told: u64,
    pub(super) freed: u64,
    pub(super) received: u64,
    /// Messages sent and received before the present programs of the two ranks.
    pub(super) sent_before: u64,
    pub(super) received_before: u64,
    pub(super) slots: Vec<Slot>,
    pub(super) under_way: Vec<Message>,
    pub(super) credits: Vec<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Slot {
    #[default]
    Free,
    Written(u64, Vec<Cell>),
    Consumed(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) number: u64,
    pub(super) program: usize,
    pub(super) source: Extent,
    pub(super) copied: bool,
    pub(super) cells: Vec<Cell>,
}

impl Link {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            sent: 0,
            given_back: 0,
            told: 0,
            freed: 0,
            received: 0,
            sent_before: 0,
            received_before: 0,
            slots: vec![Slot::Free; slots],
            under_way: Vec::new(),
            credits: Vec::new(),
        }
    }

    fn slot(&mut self, number: u64) -> &mut Slot {
        let slots = self.slots.len() as u64;
        &mut self.slots[(number % slots) as usize]
    }

    pub(super) fn has_credit(&self) -> bool {
        self.sent - self.freed < self.slots.len() as u64
    }

    pub(super) fn has_arrived(&self, message: u64) -> bool {
        let number = self.received_before + message;
        let slot = &self.slots[(number % self.slots.len() as u64) as usize];
        matches!(slot, Slot::Written(written, _) if *written == number)
    }

    /// Sends the message of that number in the present program.
    pub(super) fn send(&mut self, message: Message) {
        let number = self.sent_before + message.number;
        assert_eq!(number, self.sent, "messages are numbered in order");
        self.sent += 1;
        self.under_way.push(Message { number, ..message });
    }

    pub(super) fn write(&mut self, number: u64, cells: Vec<Cell>) {
        let slot = self.slot(number);
        assert_eq!(*slot, Slot::Free, "message {number} overwrites a slot");
        *slot = Slot::Written(number, cells);
        self.tell();
    }

    pub(super) fn consume(&mut self, message: u64) -> Vec<Cell> {
        let number = self.received_before + message;
        self.received += 1;
        match std::mem::replace(self.slot(number), Slot::Consumed(number)) {
            Slot::Written(written, cells) if written == number => cells,
            other => panic!("message {number} is taken from {other:?}"),
        }
    }

    /// Gives back what was consumed of the present program.
    pub(super) fn signal(&mut self, consumed: u64) {
        let consumed = self.received_before + consumed;
        let mut given_back = 0;
        for slot in &mut self.slots {
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
        self.given_back = consumed;
        self.tell();
    }

    /// Tells the sender of the messages given back, when a mailbox would do so.
    fn tell(&mut self) {
        let (untold, slots) = (self.given_back - self.told, self.slots.len() as u64);
        let held = self.slots.iter().filter(|slot| **slot != Slot::Free).count() as u64;
        if untold > 0 && (untold >= slots - slots / 4 || untold + held >= slots) {
            self.told = self.given_back;
            self.credits.push(self.told);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.freed == self.told && self.slots.iter().all(|slot| *slot == Slot::Free)
    }

    /// Adds the numbers that distinguish the states of the link.
    pub(super) fn key(&self, key: &mut Vec<u64>) {
        key.extend([self.freed, self.told, u64::MAX]);
        let mut numbers: Vec<u64> = self.under_way.iter().map(|message| message.number).collect();
        numbers.sort_unstable();
        key.append(&mut numbers);
        key.push(u64::MAX);
        let mut credits = self.credits.clone();
        credits.sort_unstable();
        key.append(&mut credits);
        key.push(u64::MAX);
    }
}
