//! Tokens: a byte each, and two that stand for the begin and the end of a text.

/// A token of the model.
pub type Token = u32;

/// The token before each text.
pub const BEGIN: Token = 256;
/// The token behind a text: the model has said all it wanted.
pub const END: Token = 257;
/// Tokens that the model knows.
pub const VOCABULARY: Token = 258;

/// The tokens of a text.
#[must_use]
pub fn encode(text: &[u8]) -> Vec<Token> {
    std::iter::once(BEGIN).chain(text.iter().map(|byte| Token::from(*byte))).collect()
}

/// The byte of a token; none of a token that stands for no byte.
#[must_use]
pub fn byte(token: Token) -> Option<u8> {
    u8::try_from(token).ok()
}

/// Text of tokens that come one by one: bytes are held back until they are whole characters.
#[derive(Debug, Default)]
pub struct Text {
    held: Vec<u8>,
}

impl Text {
    /// The text that a further token completes.
    pub fn push(&mut self, token: Token) -> String {
        self.held.extend(byte(token));
        let mut text = String::new();
        while !self.held.is_empty() {
            match std::str::from_utf8(&self.held) {
                Ok(whole) => {
                    text.push_str(whole);
                    self.held.clear();
                }
                Err(error) => {
                    let (valid, rest) = self.held.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    let Some(wrong) = error.error_len() else {
                        self.held = rest.to_vec();
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.held = rest.get(wrong..).unwrap_or_default().to_vec();
                }
            }
        }
        text
    }

    /// The text of what was held back, at the end.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_in_pieces_is_the_text_as_a_whole(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut text = Text::default();
            let mut said: String = bytes.iter().map(|byte| text.push(Token::from(*byte))).collect();
            said.push_str(&text.finish());
            prop_assert_eq!(said, String::from_utf8_lossy(&bytes).into_owned());
        }
    }

    #[test]
    fn a_text_is_its_bytes_behind_a_begin() {
        assert_eq!(encode("aé".as_bytes()), [BEGIN, 97, 0xc3, 0xa9]);
        assert_eq!((byte(97), byte(BEGIN), byte(END)), (Some(97), None, None));
    }
}
