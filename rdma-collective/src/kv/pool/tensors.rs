//! Pools whose tensors are registered one by one, or lie in several regions, as servers allocate a tensor a layer.

use rdma_core::{Memory, Refused, Region};

use super::memory::check_region;
use super::{Pieces, Pool, PoolUse};
use crate::engine::Engine;
use crate::kv::PoolError;
use crate::kv::layout::Layout;

impl Pool {
    /// Registers the tensors of `layout`, each as a region of its own, on the engine's device. Bytes behind a tensor
    /// stay unused.
    ///
    /// The tensors come in the order of [`Layout::tensors`], which is that of the groups, and of the layers in each.
    /// They need not be neighbours. [`close`](Self::close) gives them back.
    ///
    /// A device may limit the number of its registrations. [`in_regions`](Self::in_regions) takes fewer where tensors
    /// are parts of one allocation.
    ///
    /// ```
    /// use rdma_collective::engine::{Engine, EngineOptions};
    /// use rdma_collective::kv::layout::{Group, Layout, Model, Order, Tensors};
    /// use rdma_collective::kv::{Pool, PoolUse};
    /// use rdma_core::{Device, Memory, SoftOptions};
    ///
    /// let engine = Engine::new(&Device::soft(SoftOptions::default()).open()?, EngineOptions::default())?;
    /// let shape = Model::LLAMA_3_1_8B.shape(16, 2, Order::LayerPartBlock);
    /// let layout = Layout::of([Group::new(shape).in_tensors(Tensors::PerLayer)])?;
    /// let tensors = layout.tensors().map(|tensor| Memory::from(vec![7_u8; tensor.len as usize])).collect();
    /// let pool = Pool::register_tensors(&engine, tensors, &layout, PoolUse::Source)?;
    /// let mut byte = [0];
    /// pool.read(31, 1, 9, &mut byte)?;
    /// assert_eq!(byte, [7]);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The memory comes back, all of it, with [`PoolError::TensorCount`], [`PoolError::TensorTooShort`] or
    /// [`PoolError::TensorsOverlap`] when it does not fit the layout, and with [`PoolError::Register`] when a limit of
    /// the system or of the device refuses; the error names the limit.
    pub fn register_tensors(
        engine: &Engine,
        tensors: Vec<Memory>,
        layout: &Layout,
        purpose: PoolUse,
    ) -> Result<Self, Refused<Vec<Memory>, PoolError>> {
        if let Err(error) = check_lengths(layout, tensors.iter().map(|tensor| tensor.len() as u64)) {
            return Err(Refused { object: tensors, error });
        }
        let (mut regions, mut left) = (Vec::new(), tensors.into_iter());
        while let Some(memory) = left.next() {
            match engine.register(memory, purpose.access_on(engine)) {
                Ok(region) => regions.push((region, 0)),
                Err(refused) => {
                    let rest = std::iter::once(refused.object).chain(left);
                    return Err(given_back(regions, rest, refused.error.into()));
                }
            }
        }
        match check_apart(layout, &regions) {
            Ok(()) => Ok(Self::new(Pieces::each(layout, regions), layout, purpose)),
            Err(error) => Err(given_back(regions, std::iter::empty(), error)),
        }
    }

    /// Makes a pool of tensors that lie in memory which is already [registered](Engine::register) on the engine: a
    /// region and the offset of the first byte for each tensor, in the order of [`Layout::tensors`].
    ///
    /// Several tensors may lie in one region.
    ///
    /// # Errors
    ///
    /// [`PoolError::TensorCount`], [`PoolError::TensorTooShort`] and [`PoolError::TensorsOverlap`] when the tensors do
    /// not fit the layout; [`PoolError::Access`] when a region lacks a right that the use needs;
    /// [`PoolError::OtherEngine`] when another engine registered one.
    pub fn in_regions(
        engine: &Engine,
        tensors: &[(Region, usize)],
        layout: &Layout,
        purpose: PoolUse,
    ) -> Result<Self, PoolError> {
        let len = |(region, offset): &(Region, usize)| region.len().saturating_sub(*offset) as u64;
        check_lengths(layout, tensors.iter().map(len))?;
        tensors.iter().try_for_each(|(region, _)| check_region(engine, region, purpose))?;
        check_apart(layout, tensors)?;
        Ok(Self::new(Pieces::each(layout, tensors.iter().cloned()), layout, purpose))
    }
}

/// Fails unless there is memory for each tensor of the layout.
fn check_lengths(layout: &Layout, given: impl ExactSizeIterator<Item = u64>) -> Result<(), PoolError> {
    let tensors = layout.tensors().len();
    if given.len() != tensors {
        return Err(PoolError::TensorCount { given: given.len(), tensors });
    }
    let mut pairs = layout.tensors().zip(given).enumerate();
    match pairs.find(|(_, (tensor, len))| *len < tensor.len) {
        None => Ok(()),
        Some((tensor, (of, len))) => Err(PoolError::TensorTooShort { tensor, need: of.len, len }),
    }
}

/// Fails if two tensors have a byte in common, for example because one is given twice.
fn check_apart(layout: &Layout, tensors: &[(Region, usize)]) -> Result<(), PoolError> {
    let range = |(at, ((region, offset), tensor)): (usize, (&(Region, usize), super::Extent))| {
        let start = region.remote().addr + *offset as u64;
        (start, start + tensor.len, at)
    };
    let mut ranges: Vec<_> = tensors.iter().zip(layout.tensors()).enumerate().map(range).collect();
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(()),
        Some(pair) => {
            let (first, second) = (pair[0].2.min(pair[1].2), pair[0].2.max(pair[1].2));
            Err(PoolError::TensorsOverlap { first, second })
        }
    }
}

/// The refusal of tensors of which some are registered already.
fn given_back(
    regions: Vec<(Region, usize)>,
    rest: impl Iterator<Item = Memory>,
    error: PoolError,
) -> Refused<Vec<Memory>, PoolError> {
    // Nobody else has these regions, so each gives its memory back.
    let object = regions.into_iter().filter_map(|(region, _)| region.deregister().ok()).chain(rest);
    Refused { object: object.collect(), error }
}
