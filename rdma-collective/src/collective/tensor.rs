//! Elements in memory that the library owns and has registered: collectives send them from where they lie.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};

use super::Element;
use super::execute::Job;
use crate::collective::AllocError;
use crate::collective::communicator::Communicator;

/// Elements that collectives send without a copy. It derefs to `[T]`.
///
/// Made by [`Communicator::alloc`], for all communicators of that one's engine. An operation takes it and gives it back,
/// so that nobody looks at elements that a device may be using. No peer has a right to it but ranks of the same host, while
/// it is in an operation with them.
pub struct Tensor<T> {
    job: Box<Job>,
    elements: PhantomData<T>,
}

impl Communicator {
    /// Registers memory for `count` elements, all zero.
    ///
    /// Make it once and use it again: registering takes long, and pins the memory.
    ///
    /// # Errors
    ///
    /// [`AllocError`]: more elements than a buffer can have, memory that is not to be had, or a limit on pinned memory,
    /// which it names.
    pub fn alloc<T: Element>(&self, count: usize) -> Result<Tensor<T>, AllocError> {
        let bytes = T::DATA_TYPE.bytes(count)?;
        // A registration is never empty.
        let memory = self.engine().alloc_local(bytes.max(1))?;
        let job = Box::new(Job::new(self.engine().id(), memory, bytes));
        Ok(Tensor { job, elements: PhantomData })
    }
}

impl<T: Element> Tensor<T> {
    /// Makes it those elements of `range`, of all that it was allocated with; whether it has so many.
    ///
    /// It derefs to these alone, and operations are on them alone. The others stay as they are.
    pub fn select(&mut self, range: Range<usize>) -> bool {
        let size = T::DATA_TYPE.size();
        let at = |element: usize| element.checked_mul(size);
        at(range.start).zip(at(range.end)).is_some_and(|(start, end)| self.job.select(start..end))
    }

    /// Bytes of its memory, whatever is selected.
    pub(super) fn room(&self) -> usize {
        self.job.room()
    }

    /// What an operation owns whose output this is.
    pub(super) fn into_job(self, input: Option<Self>) -> Box<Job> {
        let mut job = self.job;
        job.input = input.map(|input| input.job);
        job
    }

    /// The tensor of an operation in place, or the output of another.
    pub(super) fn from_job(job: Box<Job>) -> Self {
        Self::pair_from_job(job).1
    }

    /// The tensors of an operation: its input, when it has one of its own, and its output.
    fn pair_from_job(mut job: Box<Job>) -> (Option<Self>, Self) {
        let input = job.input.take().map(|job| Self { job, elements: PhantomData });
        (input, Self { job, elements: PhantomData })
    }

    /// The same of an operation that has an input of its own.
    pub(super) fn both_from_job(job: Box<Job>) -> (Self, Self) {
        let (input, output) = Self::pair_from_job(job);
        debug_assert!(input.is_some(), "an operation out of place has an input");
        // One without would be in place: nothing is left for an input of its own.
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
