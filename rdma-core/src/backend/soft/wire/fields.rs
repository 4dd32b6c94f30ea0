//! Encodes and decodes frames of a fixed size: little-endian fields, one after the other.

/// A cursor that takes fields off the front of a frame.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    /// Takes the next `N` bytes; zeros beyond the end, which the fixed sizes rule out, so no length check can be
    /// forgotten.
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((head, rest)) => {
                self.0 = rest;
                *head
            }
            None => [0; N],
        }
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

/// A frame being built, field by field; the rest stays 0.
pub(super) struct Frame<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Frame<N> {
    pub(super) fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    /// Appends a field.
    pub(super) fn put(mut self, field: &[u8]) -> Self {
        debug_assert!(self.at + field.len() <= N);
        self.bytes[self.at..][..field.len()].copy_from_slice(field);
        self.at += field.len();
        self
    }

    /// Returns the frame.
    pub(super) fn done(self) -> [u8; N] {
        self.bytes
    }
}
