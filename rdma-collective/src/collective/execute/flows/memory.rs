//! The memory of sends and receives: that of an operation with one input and one output, or a slice for each.

use rdma_core::AttachedRange;
use rdma_core::memory::CacheHint;

use super::Memory;
use crate::collective::execute::buffers::{Borrowed, Buffers, Message};
use crate::collective::schedule::{Source, Span};

/// What an operation owns: it sends its input, and receives its output.
pub(in super::super) struct Lent<'a, B>(pub(in super::super) &'a mut B);

impl<B: Buffers> Memory for Lent<'_, B> {
    fn range(&self, _: usize, span: Span) -> Option<AttachedRange> {
        self.0.range(Source::Input, span)
    }

    fn read(&self, _: usize, span: Span, out: &mut [u8]) {
        self.0.read(span, out);
    }

    fn copy_from(&mut self, _: usize, message: Message<'_>, span: Span) {
        self.0.copy_from(message, span);
    }

    fn copy(&mut self, _: usize, _: usize, len: usize) {
        self.0.copy(Span { offset: 0, len }, CacheHint::Cached);
    }
}

/// A slice of the caller's for each.
#[derive(Debug, Default)]
pub(in crate::collective) struct Slices<'a>(Vec<Slice<'a>>);

#[derive(Debug)]
enum Slice<'a> {
    Sent(&'a [u8]),
    Received(&'a mut [u8]),
}

impl<'a> Slices<'a> {
    pub(in crate::collective) fn send(&mut self, data: &'a [u8]) {
        self.0.push(Slice::Sent(data));
    }

    pub(in crate::collective) fn receive(&mut self, data: &'a mut [u8]) {
        self.0.push(Slice::Received(data));
    }

    fn sent(&self, index: usize) -> &'a [u8] {
        match self.0.get(index) {
            Some(Slice::Sent(data)) => data,
            _ => &[],
        }
    }

    fn received(&mut self, index: usize) -> &mut [u8] {
        match self.0.get_mut(index) {
            Some(Slice::Received(data)) => data,
            _ => &mut [],
        }
    }
}

impl Memory for Slices<'_> {
    fn range(&self, _: usize, _: Span) -> Option<AttachedRange> {
        None
    }

    fn read(&self, index: usize, span: Span, out: &mut [u8]) {
        out.copy_from_slice(&self.sent(index)[span.range()]);
    }

    fn copy_from(&mut self, index: usize, message: Message<'_>, span: Span) {
        Borrowed::InPlace(self.received(index)).copy_from(message, span);
    }

    fn copy(&mut self, from: usize, to: usize, _: usize) {
        let sent = self.sent(from);
        self.received(to).copy_from_slice(sent);
    }
}
