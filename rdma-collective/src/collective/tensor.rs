//! Tensors: elements in memory that the library owns and has registered, so that collectives need not copy them.
//!
//! The [`Job`] owns the memory; this file gives it an element type, and its public interface.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use super::Element;
use super::execute::Job;
use crate::collective::AllocError;
use crate::collective::communicator::Communicator;

/// Elements that collectives send without a copy. A tensor derefs to `[T]`.
///
/// [`Communicator::alloc`] makes a tensor, for all communicators of the same engine. An operation takes the tensor
/// and gives it back, so that nobody looks at elements that a device may be using. Peers have no right to the memory,
/// except ranks of the same host during an operation with them.
pub struct Tensor<T> {
    job: Box<Job>,
    elements: PhantomData<T>,
}

impl Communicator {
    /// Registers memory for `count` elements, all zero.
    ///
    /// Make a tensor once and use it again: registering takes long, and pins the memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`] if `count` is more than a buffer can hold, if there is no memory, or if a limit on pinned
    /// memory is reached; the error names that limit.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Tensor<T>, AllocError> {
        let bytes = T::DATA_TYPE.bytes(count)?;
        // Devices refuse to register no bytes, so an empty tensor has one.
        let memory = self.engine().alloc_local(bytes.max(1))?;
        let job = Box::new(Job::new(self.engine().id(), memory, bytes));
        Ok(Tensor { job, elements: PhantomData })
    }
}

impl<T: Element> Tensor<T> {
    /// Selects the elements of `range`, counted from the first allocated one; `false` if the tensor has fewer.
    ///
    /// The tensor derefs to these elements, and operations use only these. All others stay as they are.
    pub fn select(&mut self, range: Range<usize>) -> bool {
        let size = T::DATA_TYPE.size();
        // Checked: a range beyond `usize` in bytes is refused, and does not wrap around to a valid one.
        let at = |element: usize| element.checked_mul(size);
        at(range.start).zip(at(range.end)).is_some_and(|(start, end)| self.job.select(start..end))
    }

    /// Makes the job of an operation whose output is this tensor.
    pub(super) fn into_job(self, input: Option<Self>) -> Box<Job> {
        let mut job = self.job;
        job.input = input.map(|input| input.job);
        job
    }

    /// The tensor of an operation in place, or the output of an operation out of place.
    pub(super) fn from_job(job: Box<Job>) -> Self {
        Self::pair_from_job(job).1
    }

    /// The tensors of an operation: its input, if the operation was out of place, and its output.
    fn pair_from_job(mut job: Box<Job>) -> (Option<Self>, Self) {
        let input = job.input.take().map(|job| Self { job, elements: PhantomData });
        (input, Self { job, elements: PhantomData })
    }

    /// The input and the output of an operation out of place.
    pub(super) fn both_from_job(job: Box<Job>) -> (Self, Self) {
        let (input, output) = Self::pair_from_job(job);
        debug_assert!(input.is_some(), "an operation out of place has an input");
        // Only an operation in place has no input, and it never gets here. An empty tensor is returned, not a panic.
        let input = input.unwrap_or_else(|| Self { job: output.job.empty(), elements: PhantomData });
        (input, output)
    }
}

impl<T: Element> Deref for Tensor<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        T::from_bytes(self.job.bytes())
    }
}

impl<T: Element> DerefMut for Tensor<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        T::from_bytes_mut(self.job.bytes_mut())
    }
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("type", &T::DATA_TYPE)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
