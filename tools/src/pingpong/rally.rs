//! Turns of the exchange of messages, without a device.

/// The state of an exchange: one message is under way at a time, and each side answers the other's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rally {
    iters: u32,
    depth: u32,
    /// Sends that have completed.
    sent: u32,
    /// Messages that have arrived.
    received: u32,
    /// Receives that are posted.
    posted: u32,
    /// Whether a send must complete before the next one is posted.
    sending: bool,
    /// Whether a message must arrive before the next send is posted.
    listening: bool,
}

/// Work that follows from a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Next {
    /// Receives to post.
    pub receives: u32,
    /// Whether to send.
    pub send: bool,
}

impl Rally {
    /// Begins with `depth` receives posted. The client serves: its first send is posted, too.
    pub fn new(iters: u32, depth: u32, client: bool) -> Self {
        Self { iters, depth, sent: 0, received: 0, posted: depth, sending: client, listening: true }
    }

    /// Whether all messages were sent and have arrived.
    pub fn has_ended(&self) -> bool {
        self.received >= self.iters && self.sent >= self.iters
    }

    /// Returns how many exchanges are complete.
    pub fn exchanges(&self) -> u32 {
        self.sent.min(self.received)
    }

    /// Notes that a send completed.
    pub fn on_sent(&mut self) -> Next {
        self.sent = self.sent.saturating_add(1);
        self.sending = false;
        Next { receives: 0, send: self.serve() }
    }

    /// Notes that a message arrived.
    pub fn on_received(&mut self) -> Next {
        self.received = self.received.saturating_add(1);
        self.listening = false;
        self.posted = self.posted.saturating_sub(1);
        let receives = if self.posted <= 1 { self.depth - self.posted } else { 0 };
        self.posted += receives;
        Next { receives, send: self.serve() }
    }

    /// Whether it is this side's turn; if so, the next turn waits for both completions.
    fn serve(&mut self) -> bool {
        let turn = self.sent < self.iters && !self.sending && !self.listening;
        if turn {
            (self.sending, self.listening) = (true, true);
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: Next = Next { receives: 0, send: true };
    const WAIT: Next = Next { receives: 0, send: false };

    #[test]
    fn a_server_answers_each_message_and_ends_with_its_last_send() {
        let mut rally = Rally::new(2, 8, false);
        assert_eq!(rally.on_received(), SEND);
        assert_eq!(rally.on_sent(), WAIT);
        assert_eq!(rally.on_received(), SEND);
        assert!(!rally.has_ended());
        assert_eq!(rally.on_sent(), WAIT);
        assert!(rally.has_ended());
    }

    #[test]
    fn a_client_sends_when_its_send_is_done_and_the_answer_is_there_in_either_order() {
        let mut rally = Rally::new(3, 8, true);
        assert_eq!((rally.on_sent(), rally.on_received()), (WAIT, SEND));
        assert_eq!((rally.on_received(), rally.on_sent()), (WAIT, SEND));
        assert_eq!((rally.on_sent(), rally.on_received()), (WAIT, WAIT));
        assert!(rally.has_ended());
        assert_eq!(rally.exchanges(), 3);
    }

    #[test]
    fn receives_are_posted_again_when_one_is_left() {
        let mut rally = Rally::new(100, 3, false);
        assert_eq!(rally.on_received().receives, 0);
        assert_eq!(rally.on_received().receives, 2);
        assert_eq!(rally.on_received().receives, 0);
        assert_eq!(Rally::new(100, 1, false).on_received().receives, 1);
    }

    #[test]
    fn two_sides_end_together_whatever_the_depth() {
        for depth in 1..5 {
            let (mut client, mut server) = (Rally::new(20, depth, true), Rally::new(20, depth, false));
            let mut messages = 0;
            while !(client.has_ended() && server.has_ended()) {
                let (mut sender, mut receiver) = (&mut client, &mut server);
                if messages % 2 == 1 {
                    std::mem::swap(&mut sender, &mut receiver);
                }
                assert_eq!(sender.on_sent(), WAIT);
                assert_eq!(receiver.on_received().send, messages < 39, "message {messages}");
                messages += 1;
            }
            assert_eq!(messages, 40);
        }
    }
}
