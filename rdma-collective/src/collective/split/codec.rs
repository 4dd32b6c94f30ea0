//! Encoding of the keys and values that a rank sends the others in one gathering; the gathering's own entry is the
//! last.

use crate::link::codec::{Ended, Reader};

/// A key with its value.
pub(super) type Entry = (String, Vec<u8>);

pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in entries {
        for field in [key.as_bytes(), value] {
            // The length cannot exceed 32 bits here: a receiver refuses entries beyond its limit before it decodes
            // them.
            bytes.extend((field.len() as u32).to_le_bytes());
            bytes.extend(field);
        }
    }
    bytes
}

pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Entry>, Ended> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    while !reader.rest().is_empty() {
        let mut field = || {
            let len = reader.u32()?;
            reader.take(len as usize)
        };
        let (key, value) = (field()?, field()?);
        entries.push((String::from_utf8_lossy(key).into_owned(), value.to_vec()));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_and_their_pieces_do_not() {
        let entries = vec![("a/1".to_owned(), vec![1, 2, 3]), (String::new(), Vec::new())];
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes), Ok(entries.clone()));
        for len in (0..bytes.len()).filter(|len| *len != 0 && *len != 14) {
            assert_eq!(decode(&bytes[..len]), Err(Ended), "{len} bytes");
        }
        assert_eq!(decode(&u32::MAX.to_le_bytes()), Err(Ended));
    }
}
