//! A transfer under way: both ends are polled until each knows what came of it.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use rdma_collective::kv::BlockVerdict;
use rdma_core::Deadline;

use super::{
    Case, GiveUp, Got, Receiving, Sending, Sent, Way, assert_true, block, each_block, source_block, use_again,
};
use crate::common::long;
use crate::pair::{Pair, SHAPE};

/// The bytes that a later user of the blocks writes to the source and to the destination.
const AGAIN: [u8; 2] = [0x5a, 0x3c];
/// Beyond this a transfer hangs.
const ENDS_WITHIN: Duration = Duration::from_secs(40);
/// How long one end goes on when the other has ended badly: it may not have been met, and wait for another.
const GOES_ON: Duration = Duration::from_millis(150);
/// Long beside what holds messages back.
const AFTERWARDS: Duration = Duration::from_millis(20);

/// Drives both ends until each knows what came of it.
pub struct Transfer<'a> {
    pair: &'a Pair,
    case: &'a Case,
    started: Instant,
    sending: Option<Sending>,
    receiving: Option<Receiving>,
    sent: Option<(Sent, Instant)>,
    got: Option<(Got, Instant)>,
    /// The bytes that the destination held then.
    then: Vec<Vec<u8>>,
    announced: u32,
    seen: u32,
}

impl<'a> Transfer<'a> {
    pub fn begin(pair: &'a Pair, case: &'a Case) -> Self {
        let (sources, destinations): (Vec<u32>, Vec<u32>) = case.pairs.iter().copied().unzip();
        let deadline = |decode: bool| match case.give_up {
            GiveUp::Deadline { at_decode, ms } if at_decode == decode => {
                Deadline::after(Duration::from_millis(ms))
            }
            _ => long(),
        };
        let now = Instant::now();
        let (prefill, decode) = (&pair.prefill, &pair.decode);
        let sending = match case.way {
            Way::Push => prefill.push(1, &sources, deadline(false)).map(Sending::UnderWay),
            Way::Stream => prefill.push_layers(1, &sources, deadline(false)).map(Sending::UnderWay),
            Way::Pull => prefill.offer(1, &sources, deadline(false)).map(Sending::UnderWay),
        };
        let receiving = match case.way {
            Way::Pull if case.is_pulled_by_layer() => {
                decode.pull_layers(1, &destinations, deadline(true)).map(Receiving::UnderWay)
            }
            Way::Pull => decode.pull(1, &destinations, deadline(true)).map(Receiving::UnderWay),
            Way::Push | Way::Stream => {
                decode.grant(1, &destinations, deadline(true)).map(Receiving::UnderWay)
            }
        };
        let (sending, sent) = match sending {
            Ok(sending) => (Some(sending), None),
            Err(error) => (None, Some((Sent::Badly(error), now))),
        };
        let (receiving, got) = match receiving {
            Ok(receiving) => (Some(receiving), None),
            Err(error) => (None, Some((Got::Nothing(error), now))),
        };
        Self {
            pair,
            case,
            started: now,
            sending,
            receiving,
            sent,
            got,
            then: Vec::new(),
            announced: 0,
            seen: 0,
        }
    }

    pub fn run(mut self) -> (Sent, Got) {
        while self.sent.is_none() || self.got.is_none() {
            let waited = self.started.elapsed();
            assert!(waited < ENDS_WITHIN, "it hangs: {:?} and {:?}", self.sent, self.got);
            self.announce(waited);
            self.look_at_layers();
            if let Some(Poll::Ready(sent)) = self.sending.as_mut().map(Sending::poll) {
                self.sending = None;
                self.has_sent(sent);
            }
            if let Some(Poll::Ready(got)) = self.receiving.as_mut().map(Receiving::poll) {
                self.receiving = None;
                self.has_got(got);
            }
            self.give_up(waited);
            thread::sleep(Duration::from_micros(200));
        }
        self.assert_over();
        (self.sent.unwrap().0, self.got.unwrap().0)
    }

    fn announce(&mut self, waited: Duration) {
        let Some(Sending::UnderWay(push)) = &self.sending else { return };
        while self.case.way == Way::Stream
            && self.announced < SHAPE.layers
            && waited >= Duration::from_millis(self.case.layer_ms) * self.announced
        {
            // A push that has ended says why when it is polled.
            let _ = push.layer_ready(self.case.layer(self.announced));
            self.announced += 1;
        }
    }

    /// Checks that the verdict on a layer is true before the other layers have come.
    fn look_at_layers(&mut self) {
        let Some(Receiving::UnderWay(grant)) = &self.receiving else { return };
        let by_layer = self.case.way == Way::Stream || self.case.is_pulled_by_layer();
        while by_layer && self.seen < SHAPE.layers {
            let Ok(verdicts) = grant.wait_layer(self.seen, Deadline::after(Duration::ZERO)) else { return };
            for (&(source, destination), verdict) in self.case.pairs.iter().zip(&verdicts) {
                let expected = source_block(&self.pair.source, self.seen, source);
                let whole = block(&self.pair.destination, self.seen, destination) == expected;
                assert_eq!(whole, *verdict == BlockVerdict::Valid, "of layer {}, {verdict:?}", self.seen);
            }
            self.seen += 1;
        }
    }

    fn give_up(&mut self, waited: Duration) {
        let (at_prefill, at_decode) = match self.case.give_up {
            GiveUp::After { at_decode, ms } if waited >= Duration::from_millis(ms) => (!at_decode, at_decode),
            _ => (false, false),
        };
        let left = |end: Option<Instant>| end.is_some_and(|end| end.elapsed() >= GOES_ON);
        let sent_badly = self.sent.as_ref().filter(|(sent, _)| !matches!(sent, Sent::Well(..)));
        let got_badly = self.got.as_ref().filter(|(got, _)| !matches!(got, Got::Well(_)));
        let at_decode = at_decode || left(sent_badly.map(|(_, at)| *at));
        let at_prefill = at_prefill || left(got_badly.map(|(_, at)| *at));
        if self.case.is_given_up_by_handles() {
            let (sending, receiving) = (self.sending.take(), self.receiving.take());
            self.sending = sending.map(|end| if at_prefill { end.start_to_give_up() } else { end });
            self.receiving = receiving.map(|end| if at_decode { end.start_to_give_up() } else { end });
            return;
        }
        if let Some(sending) = self.sending.take_if(|_| at_prefill) {
            let sent = sending.give_up();
            self.has_sent(sent);
        }
        if let Some(receiving) = self.receiving.take_if(|_| at_decode) {
            let got = receiving.give_up();
            self.has_got(got);
        }
    }

    fn has_sent(&mut self, sent: Sent) {
        use_again(&self.pair.source, self.case.pairs.iter().map(|(source, _)| *source), AGAIN[0]);
        self.sent = Some((sent, Instant::now()));
    }

    fn has_got(&mut self, got: Got) {
        let destination = &self.pair.destination;
        assert_true(self.pair, self.case, got.verdicts());
        self.then = each_block(destination).map(|(layer, at)| block(destination, layer, at)).collect();
        let mut granted = self.case.pairs.iter().map(|(_, block)| *block);
        if self.case.is_used_again() {
            use_again(destination, granted, AGAIN[1]);
        } else {
            assert!(granted.all(|block| destination.held(block).is_none()));
        }
        self.got = Some((got, Instant::now()));
    }

    /// Nothing of it lands any more, however late. The destination holds again what it held when it ended.
    fn assert_over(&self) {
        thread::sleep(AFTERWARDS);
        let destination = &self.pair.destination;
        for ((layer, at), then) in each_block(destination).zip(&self.then) {
            let granted =
                self.case.is_used_again() && self.case.pairs.iter().any(|(_, granted)| *granted == at);
            let expected = if granted { &vec![AGAIN[1]; then.len()] } else { then };
            assert_eq!(&block(destination, layer, at), expected, "block {at} in layer {layer} has changed");
            if self.case.is_used_again() {
                destination.write(layer, at, 0, then).unwrap();
            }
        }
    }
}
