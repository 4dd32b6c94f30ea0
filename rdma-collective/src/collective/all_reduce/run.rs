//! One all-reduce of one rank under way: takes the steps of its schedule as messages and slots allow.

use std::task::Poll;
use std::time::Instant;

use super::{ALL_REDUCE, Buffers, data_type_code, reduction_code};
use crate::collective::schedule::{Ring, Source, Span, Step};
use crate::collective::{DataType, ReduceOp, reduce, reduce_into};
use crate::comm::link::imm::Imm;
use crate::comm::link::mailbox::HEADER_BYTES;
use crate::comm::link::{Arrival, Lane, control};
use crate::comm::operation::{ABORT, Abort, Header, OPERATION};
use crate::comm::{Core, LaneId, RingLinks};
use crate::error::{LaneFailure, LaneName, ReduceError};

/// Why an operation stops before its end.
pub(super) enum Stop {
    /// A lane ended.
    Lane { rank: u32, lane: LaneName, cause: LaneFailure },
    /// Another rank gave up.
    Abort(Abort),
    /// The rank before this one is in another operation.
    Mismatch(Header),
    /// The arithmetic refused.
    Reduce(ReduceError),
}

/// See the module.
pub(super) struct Run<'a> {
    pub(super) ring: &'a mut RingLinks,
    pub(super) steps: Ring,
    /// The step that is next; `None` at the end.
    pub(super) step: Option<Step>,
    buffers: Buffers<'a>,
    data_type: DataType,
    op: ReduceOp,
    scratch: &'a mut [u8],
    pub(super) header: Header,
    /// Whether the header still has to be sent in a message of its own, since there are no others.
    announce: bool,
    /// Whether the rank before this one is known to be in the same operation.
    agreed: bool,
    /// Messages of earlier operations in each mailbox.
    sent_before: u64,
    received_before: u64,
    received: u64,
    pub(super) started: Instant,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        ring: &'a mut RingLinks,
        mut steps: Ring,
        buffers: Buffers<'a>,
        (data_type, op): (DataType, ReduceOp),
        scratch: &'a mut [u8],
        (rank, sequence): (u32, u64),
        started: Instant,
    ) -> Self {
        let header = Header {
            rank,
            sequence,
            count: (buffers.len() / data_type.size()) as u64,
            collective: ALL_REDUCE,
            data_type: data_type_code(data_type),
            reduction: reduction_code(op),
        };
        let (sent_before, received_before) = (ring.next.mailbox.sent(), ring.previous.mailbox.given_back());
        let step = steps.next();
        Self {
            ring,
            steps,
            announce: step.is_none(),
            step,
            buffers,
            data_type,
            op,
            scratch,
            header,
            agreed: false,
            sent_before,
            received_before,
            received: 0,
            started,
        }
    }

    /// From now on the neighbours' silence is looked into.
    pub(super) fn watch(&self, core: &mut Core, now: Instant) {
        for lane in self.lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.watch(now);
            }
        }
    }

    pub(super) fn unwatch(&self, core: &mut Core) {
        for lane in self.lanes() {
            if let Some(lane) = core.lane(lane) {
                lane.unwatch();
            }
        }
    }

    pub(super) fn lanes(&self) -> [LaneId; 2] {
        [self.ring.next.lane, self.ring.previous.lane]
    }

    /// Takes all steps that can be taken now.
    pub(super) fn advance(&mut self, core: &mut Core) -> Poll<Result<(), Stop>> {
        match self.try_advance(core) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => Poll::Pending,
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }

    fn try_advance(&mut self, core: &mut Core) -> Result<bool, Stop> {
        if let Some(theirs) = self.ring.ahead.front().copied()
            && theirs.sequence <= self.header.sequence
        {
            self.ring.ahead.pop_front();
            self.agree(&theirs)?;
        }
        self.take_arrivals(core)?;
        if let Some(abort) = self.ring.abort.filter(|abort| abort.sequence <= self.header.sequence) {
            return Err(Stop::Abort(abort));
        }
        if self.announce {
            self.announce = !self.send_header(core)?;
        }
        while let Some(step) = self.step {
            if !self.take(core, step)? {
                self.check_lanes(core, step)?;
                return Ok(false);
            }
            self.step = self.steps.next();
        }
        if self.announce || !self.is_agreed(core)? {
            self.check_lanes(core, Step::WaitCount { from: self.ring.previous.rank, message: 0 })?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Sorts what both neighbours have sent.
    fn take_arrivals(&mut self, core: &mut Core) -> Result<(), Stop> {
        let next = (self.ring.next.rank, self.ring.next.lane);
        let previous = (self.ring.previous.rank, self.ring.previous.lane);
        for (rank, id) in [next, previous] {
            let Some(lane) = core.lane(id) else { continue };
            while let Some(arrival) = lane.take() {
                let fine = match arrival {
                    Arrival::Imm(Imm::Freed { count }, _) if id == next.1 => {
                        self.ring.next.mailbox.freed(count)
                    }
                    Arrival::Imm(Imm::Message { slot, turn }, bytes) if id == previous.1 => {
                        self.ring.previous.mailbox.announce(slot, turn, bytes)
                    }
                    Arrival::Control(received) => {
                        let told = read_control(lane, received.bytes());
                        lane.recycle(received);
                        match told {
                            Some(Told::Abort(abort)) => {
                                self.ring.abort = Some(self.ring.abort.unwrap_or(abort))
                            }
                            Some(Told::Header(header)) if id == previous.1 => self.agree(&header)?,
                            _ => {
                                return Err(violation(
                                    rank,
                                    lane,
                                    "a control message that does not belong here",
                                ));
                            }
                        }
                        true
                    }
                    Arrival::Imm(..) => false,
                };
                if !fine {
                    return Err(violation(rank, lane, "an immediate that cannot be"));
                }
            }
        }
        Ok(())
    }

    fn agree(&mut self, theirs: &Header) -> Result<(), Stop> {
        let ahead = &mut self.ring.ahead;
        if theirs.sequence > self.header.sequence && ahead.len() < ahead.capacity() {
            ahead.push_back(*theirs);
            return Ok(());
        }
        if !self.header.agrees(theirs) {
            return Err(Stop::Mismatch(*theirs));
        }
        self.agreed = true;
        Ok(())
    }

    /// Whether the rank before this one is in the same operation: its first message says so, if no other has.
    fn is_agreed(&mut self, core: &mut Core) -> Result<bool, Stop> {
        let previous = &self.ring.previous;
        if !self.agreed && previous.mailbox.arrived(self.received_before).is_some() {
            match Header::read(&previous.mailbox.header(self.received_before)) {
                Ok(theirs) => self.agree(&theirs)?,
                Err(_) => return Err(self.violation(core, "a header that is damaged")),
            }
        }
        Ok(self.agreed)
    }

    /// The rank before this one has sent what it may not send.
    fn violation(&self, core: &mut Core, what: &str) -> Stop {
        let previous = &self.ring.previous;
        match core.lane(previous.lane) {
            Some(lane) => violation(previous.rank, lane, what),
            None => Stop::Lane { rank: previous.rank, lane: previous.name, cause: LaneFailure::Fenced },
        }
    }

    fn send_header(&mut self, core: &mut Core) -> Result<bool, Stop> {
        let Some(lane) = core.lane(self.ring.next.lane) else { return Ok(false) };
        match lane.control(OPERATION, |body| self.header.write(body)) {
            Ok(sent) => Ok(sent),
            Err(_) => Err(violation(self.ring.next.rank, lane, "control messages too short for a header")),
        }
    }

    /// Takes one step; `false` when it has to wait.
    fn take(&mut self, core: &mut Core, step: Step) -> Result<bool, Stop> {
        match step {
            Step::Put { message, source, span, .. } => Ok(self.put(core, message, source, span)),
            Step::WaitCount { message, .. } => Ok(self.is_agreed(core)? && self.has_arrived(message)),
            Step::ReduceFrom { message, span, .. } => {
                self.check_length(core, message, span)?;
                self.reduce_from(message, span).map_err(Stop::Reduce)?;
                self.received = message + 1;
                Ok(true)
            }
            Step::CopyFrom { message, span, .. } => {
                self.check_length(core, message, span)?;
                let output = self.buffers.output(span);
                self.ring.previous.mailbox.read(self.received_before + message, 0, output);
                self.received = message + 1;
                Ok(true)
            }
            Step::Signal { consumed, .. } => Ok(self.signal(core, consumed)),
            Step::Copy { span } => {
                if let Buffers::OutOfPlace { input, output } = &mut self.buffers {
                    output[span.range()].copy_from_slice(&input[span.range()]);
                }
                Ok(true)
            }
        }
    }

    fn put(&mut self, core: &mut Core, message: u64, source: Source, span: Span) -> bool {
        let next = &mut self.ring.next;
        let Some(lane) = core.lane(next.lane) else { return false };
        if !next.mailbox.is_ready(lane) {
            return false;
        }
        debug_assert_eq!(next.mailbox.sent(), self.sent_before + message);
        let header = (message == 0).then(|| self.header.in_slot());
        next.mailbox.put(lane, header.as_ref(), self.buffers.source(source, span))
    }

    fn has_arrived(&self, message: u64) -> bool {
        self.ring.previous.mailbox.arrived(self.received_before + message).is_some()
    }

    /// A message is as long as both ranks must think it is.
    fn check_length(&self, core: &mut Core, message: u64, span: Span) -> Result<(), Stop> {
        let previous = &self.ring.previous;
        let expected = span.len + if message == 0 { HEADER_BYTES } else { 0 };
        if previous.mailbox.arrived(self.received_before + message) == Some(expected) {
            return Ok(());
        }
        Err(self.violation(core, "a message of another length"))
    }

    /// Piece by piece, so that what is read from the slot is still in the cache when it is reduced.
    fn reduce_from(&mut self, message: u64, span: Span) -> Result<(), ReduceError> {
        let number = self.received_before + message;
        let piece_max = self.scratch.len() / self.data_type.size() * self.data_type.size();
        let mut at = 0;
        while at < span.len {
            let len = piece_max.min(span.len - at);
            let piece = &mut self.scratch[..len];
            self.ring.previous.mailbox.read(number, at, piece);
            let range = span.offset + at..span.offset + at + len;
            match &mut self.buffers {
                Buffers::InPlace(buffer) => reduce_into(&mut buffer[range], piece, self.data_type, self.op)?,
                Buffers::OutOfPlace { input, output } => {
                    reduce(&mut output[range.clone()], &input[range], piece, self.data_type, self.op)?;
                }
            }
            at += len;
        }
        Ok(())
    }

    fn signal(&mut self, core: &mut Core, consumed: u64) -> bool {
        let previous = &mut self.ring.previous;
        let Some(lane) = core.lane(previous.lane) else { return false };
        // A rank that has left sends nothing more and is not told.
        if lane.room() == 0 && !lane.is_closed() {
            return false;
        }
        let freed = previous.mailbox.give_back(self.received_before + consumed);
        if !lane.is_closed() {
            lane.note(freed);
        }
        true
    }

    /// A step cannot be taken: whether it ever will.
    fn check_lanes(&self, core: &mut Core, step: Step) -> Result<(), Stop> {
        let waits_for_next = matches!(step, Step::Put { .. }) || self.announce;
        let (next, previous) = (&self.ring.next, &self.ring.previous);
        for (waits, rank, id, name) in [
            (waits_for_next, next.rank, next.lane, next.name),
            (!waits_for_next, previous.rank, previous.lane, previous.name),
        ] {
            let ended = match core.lane(id) {
                None => Some(LaneFailure::Fenced),
                Some(lane) => lane.ended(),
            };
            match ended {
                // A rank that left in good order has done all that was asked of it, unless it is waited for.
                Some(LaneFailure::Closed) if !waits => {}
                Some(cause) => return Err(Stop::Lane { rank, lane: name, cause }),
                None => {}
            }
        }
        Ok(())
    }
}

enum Told {
    Abort(Abort),
    Header(Header),
}

fn read_control(lane: &Lane, bytes: &[u8]) -> Option<Told> {
    let message = control::decode(bytes, lane.name().epoch).ok()?;
    match message.kind {
        ABORT => Abort::read(message.body).ok().map(Told::Abort),
        OPERATION => Header::read(message.body).ok().map(Told::Header),
        _ => None,
    }
}

fn violation(rank: u32, lane: &mut Lane, what: &str) -> Stop {
    lane.violation(what);
    let cause = lane.ended().unwrap_or(LaneFailure::Fenced);
    Stop::Lane { rank, lane: lane.name(), cause }
}
