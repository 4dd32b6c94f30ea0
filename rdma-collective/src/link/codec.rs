//! The reader and the writer of little-endian fields, for blobs, control messages and the frames of the store.
//!
//! They know no message. The bytes come from a peer, so reading beyond the end and writing beyond the room are errors,
//! never panics.

/// The error of a read: the bytes end inside the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended;

/// A reader that takes fields from the front of `bytes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The bytes that were not read yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Ended> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or(Ended)?;
        self.bytes = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Ended> {
        let (taken, rest) = self.bytes.split_first_chunk().ok_or(Ended)?;
        self.bytes = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Ended> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Ended> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Ended> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Ended> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

/// The error of a write: the field does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// A writer that puts fields into `bytes`, from the front.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The number of bytes written.
    pub(crate) fn len(&self) -> usize {
        self.at
    }

    pub(crate) fn put(&mut self, field: &[u8]) -> Result<(), NoRoom> {
        let room =
            self.bytes.get_mut(self.at..).and_then(|rest| rest.get_mut(..field.len())).ok_or(NoRoom)?;
        room.copy_from_slice(field);
        self.at += field.len();
        Ok(())
    }

    pub(crate) fn u8(&mut self, value: u8) -> Result<(), NoRoom> {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), NoRoom> {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), NoRoom> {
        self.put(&value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), NoRoom> {
        self.put(&value.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_and_ends_are_errors() {
        let mut bytes = [0; 15];
        let mut writer = Writer::new(&mut bytes);
        writer.u8(1).unwrap();
        writer.u16(2).unwrap();
        writer.u32(3).unwrap();
        writer.u64(4).unwrap();
        assert_eq!((writer.u8(5), writer.len()), (Err(NoRoom), 15));
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u16(), reader.u32(), reader.u64()), (Ok(1), Ok(2), Ok(3), Ok(4)));
        assert_eq!((reader.u8(), reader.rest()), (Err(Ended), &[][..]));
        assert_eq!((Reader::new(&bytes).take(16), Reader::new(&bytes[..3]).u32()), (Err(Ended), Err(Ended)));
    }
}
