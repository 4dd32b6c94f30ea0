//! What a rank tells the others in a gathering: keys and values, and last the gathering's own.

use crate::link::codec::{Ended, Reader};

/// A key and its value.
pub(super) type Word = (String, Vec<u8>);

pub(super) fn encode(words: &[Word]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in words {
        for field in [key.as_bytes(), value] {
            // Whoever is told more than there can be refuses it all.
            bytes.extend((field.len() as u32).to_le_bytes());
            bytes.extend(field);
        }
    }
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Word>, Ended> {
    let mut reader = Reader::new(bytes);
    let mut words = Vec::new();
    while !reader.rest().is_empty() {
        let mut field = || {
            let len = reader.u32()?;
            reader.take(len as usize)
        };
        let (key, value) = (field()?, field()?);
        words.push((String::from_utf8_lossy(key).into_owned(), value.to_vec()));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_and_their_pieces_do_not() {
        let words = vec![("a/1".to_owned(), vec![1, 2, 3]), (String::new(), Vec::new())];
        let bytes = encode(&words);
        assert_eq!(decode(&bytes), Ok(words.clone()));
        for len in (0..bytes.len()).filter(|len| *len != 0 && *len != 14) {
            assert_eq!(decode(&bytes[..len]), Err(Ended), "{len} bytes");
        }
        assert_eq!(decode(&u32::MAX.to_le_bytes()), Err(Ended));
    }
}
