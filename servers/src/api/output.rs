//! The text of an answer, which ends before a text that the client does not want to see.

use crate::model::{Text, Token};

/// The text of one answer, token by token.
#[derive(Debug)]
pub struct Output {
    stops: Vec<String>,
    text: Text,
    /// Text that may be the begin of a stop.
    held: String,
    /// Bytes that are held back at most: the longest stop, but for its last one.
    most: usize,
}

/// Text that may be shown, and whether the answer ends there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The text.
    pub text: String,
    /// Whether a stop came behind it.
    pub stopped: bool,
}

impl Output {
    /// An answer that ends before any of these texts.
    #[must_use]
    pub fn new(stops: &[String]) -> Self {
        let most = stops.iter().map(|stop| stop.len() - 1).max().unwrap_or(0);
        Self { stops: stops.to_vec(), text: Text::default(), held: String::new(), most }
    }

    /// The text that a further token lets be shown.
    pub fn push(&mut self, token: Token) -> Shown {
        self.held.push_str(&self.text.push(token));
        if let Some(shown) = self.before_stop() {
            return shown;
        }
        let mut end = self.held.len().saturating_sub(self.most);
        while !self.held.is_char_boundary(end) {
            end -= 1;
        }
        let held = self.held.split_off(end);
        Shown { text: std::mem::replace(&mut self.held, held), stopped: false }
    }

    /// The text that is left when no token comes any more.
    pub fn finish(&mut self) -> Shown {
        self.held.push_str(&self.text.finish());
        self.before_stop().unwrap_or_else(|| Shown { text: std::mem::take(&mut self.held), stopped: false })
    }

    /// The text before the first stop, if there is one.
    fn before_stop(&mut self) -> Option<Shown> {
        let at = self.stops.iter().filter_map(|stop| self.held.find(stop)).min()?;
        self.held.truncate(at);
        Some(Shown { text: std::mem::take(&mut self.held), stopped: true })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_answer_ends_before_the_first_stop(text in "[abé]{0,30}", stops in proptest::collection::vec("[abé]{1,4}", 0..3)) {
            let mut output = Output::new(&stops);
            let (mut shown, mut stopped) = (String::new(), false);
            for byte in text.bytes() {
                let next = output.push(Token::from(byte));
                shown.push_str(&next.text);
                stopped = next.stopped;
                if stopped {
                    break;
                }
            }
            if !stopped {
                let rest = output.finish();
                shown.push_str(&rest.text);
                stopped = rest.stopped;
            }
            // The stop whose last byte comes first; of several, the one that begins first.
            let ends = stops.iter().filter_map(|stop| text.find(stop).map(|at| (at + stop.len(), at)));
            let first = ends.min();
            prop_assert_eq!(stopped, first.is_some());
            let expected = first.map_or(&text[..], |(end, at)| {
                let others = stops.iter().filter_map(|stop| text[..end].find(stop));
                &text[..others.min().unwrap_or(at)]
            });
            prop_assert_eq!(shown, expected);
        }
    }
}
