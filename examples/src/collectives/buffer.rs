//! The memory that an operation works on: the library's, or a slice as any program has it.

use super::args::Args;
use super::job::Job;
use rdma_collective::collective::{Element, Tensor};
use std::ops::{Deref, DerefMut, Range};

/// Elements, of which a range is chosen.
pub enum Buffer<T> {
    /// Registered, and lent to operations.
    Owned(Tensor<T>),
    /// Memory of the program, borrowed by operations: `--plain`.
    Plain(Plain<T>),
}

/// A range of elements.
pub struct Plain<T> {
    all: Vec<T>,
    range: Range<usize>,
}

impl<T> Plain<T> {
    /// The elements that are chosen.
    pub fn chosen(&self) -> &[T] {
        &self.all[self.range.clone()]
    }

    /// The chosen elements, to be changed.
    pub fn chosen_mut(&mut self) -> &mut [T] {
        &mut self.all[self.range.clone()]
    }
}

impl<T: Element + Default> Buffer<T> {
    /// So many elements, in the memory that is asked for.
    ///
    /// # Errors
    ///
    /// A limit on pinned memory.
    pub fn new(job: &Job, args: &Args, count: usize) -> anyhow::Result<Self> {
        if args.plain {
            return Ok(Self::Plain(Plain { all: vec![T::default(); count], range: 0..count }));
        }
        Ok(Self::Owned(job.comm.alloc(count)?))
    }

    /// Returns the tensor that is lent to an operation.
    pub fn owned(self) -> Option<Tensor<T>> {
        match self {
            Self::Owned(tensor) => Some(tensor),
            Self::Plain(_) => None,
        }
    }

    /// Chooses some; whether there are so many.
    pub fn select(&mut self, range: Range<usize>) -> bool {
        match self {
            Self::Owned(tensor) => tensor.select(range),
            Self::Plain(plain) => {
                let fits = range.start <= range.end && range.end <= plain.all.len();
                if fits {
                    plain.range = range;
                }
                fits
            }
        }
    }
}

impl<T: Element> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Owned(tensor) => tensor,
            Self::Plain(plain) => plain.chosen(),
        }
    }
}

impl<T: Element> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Owned(tensor) => tensor,
            Self::Plain(plain) => plain.chosen_mut(),
        }
    }
}
