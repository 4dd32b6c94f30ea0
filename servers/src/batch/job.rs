//! A text that is computed, and the tokens of its answer.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::api::Prompt;
use crate::cache::Taken;
use crate::model::{END, Sampling, Token};
use crate::observe::Turn;

/// A text, and how its answer is chosen.
pub struct Job {
    /// The prompt, and behind it the answer as far as it is known.
    pub text: Vec<Token>,
    /// Blocks for the text and all of its answer.
    pub blocks: Taken,
    /// Tokens whose keys and values are in the blocks.
    pub ready: usize,
    /// The way in which tokens are chosen.
    pub sampling: Sampling,
    /// Tokens that are still to be chosen, at most.
    pub tokens_left: usize,
    /// Whether the answer goes on behind its end, so that it has as many tokens as were asked for.
    pub ignores_end: bool,
    /// Whether layers are told of, because another server goes on with the text.
    pub tells_layers: bool,
    /// Hears of the answer. Bounded by the tokens that are left, and by the layers.
    pub events: UnboundedSender<Event>,
    /// Counts the text as one that waits, or that runs.
    pub turn: Turn,
}

/// A piece of news about a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// All of the text is in the blocks in this layer. Told again when the text is computed again, because another
    /// text of its step has failed.
    Layer(u32),
    /// The next token of the answer.
    Token(Token),
    /// The answer has ended.
    Ended(Finish),
    /// The text cannot be computed.
    Failed(String),
}

/// The reason why an answer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model has said all it wanted.
    Stop,
    /// The answer has as many tokens as were asked for.
    Length,
}

impl Job {
    /// The text of a prompt, for which there are blocks, and the events of its answer.
    #[must_use]
    pub fn new(prompt: Prompt, blocks: Taken, turn: Turn) -> (Self, UnboundedReceiver<Event>) {
        let Prompt { text, sampling, tokens_max: tokens_left, ignores_end, .. } = prompt;
        let (events, heard) = unbounded_channel();
        let (ready, tells_layers) = (blocks.ready(), false);
        (Self { text, blocks, ready, sampling, tokens_left, ignores_end, tells_layers, events, turn }, heard)
    }

    /// Whether the text has not ended, and somebody hears of it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.tokens_left > 0 && !self.events.is_closed()
    }

    /// Whether all of the text but its last token is computed.
    pub(super) fn is_answering(&self) -> bool {
        self.ready + 1 == self.text.len()
    }

    /// The tokens that are not computed.
    pub(super) fn to_compute(&self) -> Range<usize> {
        self.ready..self.text.len()
    }

    /// Ends the text with an error.
    pub(super) fn fail(&mut self, error: &str) {
        self.tokens_left = 0;
        // Whoever does not hear needs no error.
        _ = self.events.send(Event::Failed(error.to_owned()));
    }

    /// Hears that a layer of some tokens is in the blocks.
    pub(super) fn written(&self, layer: usize, range: &Range<usize>) {
        if self.tells_layers && range.end == self.text.len() {
            _ = self.events.send(Event::Layer(layer as u32));
        }
    }

    /// Hears that the tokens up to `end` are in the blocks. When these are all, `choose` says the next one.
    pub fn computed(&mut self, end: usize, choose: impl FnOnce(&Sampling) -> Token) {
        self.ready = end;
        self.blocks.publish(self.text.get(..end).unwrap_or_default());
        if end < self.text.len() {
            return;
        }
        let token = choose(&self.sampling);
        if token == END && !self.ignores_end {
            self.end(Finish::Stop);
            return;
        }
        self.text.push(token);
        self.tokens_left -= 1;
        _ = self.events.send(Event::Token(token));
        if self.tokens_left == 0 {
            self.end(Finish::Length);
        }
    }

    fn end(&mut self, finish: Finish) {
        self.tokens_left = 0;
        _ = self.events.send(Event::Ended(finish));
    }
}
