//! Encodes and decodes frames of a fixed size: little-endian fields, one after the other.

use super::Hello;
use crate::backend::soft::engine::sequence::MASK_24;
use crate::{Gid, QpNum};

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

    /// Takes a number of 24 bits; `None` if it has more.
    pub(super) fn u24(&mut self) -> Option<u32> {
        Some(self.u32()).filter(|value| *value <= MASK_24)
    }

    /// Takes the numbers and GIDs of a hello; `None` if a number has more than 24 bits.
    pub(super) fn hello(&mut self) -> Option<Hello> {
        let (source_qp, destination_qp) = (QpNum(self.u24()?), QpNum(self.u24()?));
        let (source_gid, destination_gid) = (Gid(self.take()), Gid(self.take()));
        Some(Hello { source_gid, source_qp, destination_gid, destination_qp })
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

    /// Appends the numbers and GIDs of a hello.
    pub(super) fn hello(self, hello: &Hello) -> Self {
        self.put(&hello.source_qp.0.to_le_bytes())
            .put(&hello.destination_qp.0.to_le_bytes())
            .put(&hello.source_gid.0)
            .put(&hello.destination_gid.0)
    }

    /// Returns the frame.
    pub(super) fn done(self) -> [u8; N] {
        self.bytes
    }
}
