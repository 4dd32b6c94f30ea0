//! The tensors of a layout: those that follow each other, and those that groups share.

use super::{Extent, Inner, LayoutError, Placed, Shape, TENSOR_ALIGN, TENSORS_MAX, overlap};

impl Inner {
    /// Adds a tensor behind those before it.
    pub(super) fn add_tensor(&mut self, bytes: u64, shape: &Shape) -> Result<(), LayoutError> {
        if self.tensors.len() == TENSORS_MAX {
            return Err(LayoutError::TooMany { what: "tensors", max: TENSORS_MAX as u64 });
        }
        let offset = if self.tensors.is_empty() { 0 } else { (self.bytes / TENSOR_ALIGN + 1) * TENSOR_ALIGN };
        let end = offset.checked_add(bytes).filter(|end| *end <= isize::MAX as u64 - TENSOR_ALIGN);
        self.bytes = end.ok_or(LayoutError::TooLarge { shape: *shape })?;
        self.tensors.push(Extent { offset, len: bytes });
        Ok(())
    }

    /// Lets a group have the tensors and blocks of an earlier one. `tensors` are the lengths that it needs.
    pub(super) fn share(&self, placed: &mut Placed, tensors: &[u64], with: usize) -> Result<(), LayoutError> {
        let group = self.groups.len();
        let other = self.groups.get(with).filter(|other| other.group.shared_with().is_none());
        let other = other.ok_or(LayoutError::SharedGroup { group, with })?;
        let (blocks, theirs) = (placed.group.shape().blocks, other.group.shape().blocks);
        if blocks != theirs {
            return Err(LayoutError::SharedBlocks { group, blocks, with, theirs });
        }
        let next = self.groups.iter().skip(with + 1).find(|next| next.group.shared_with().is_none());
        let end = next.map_or(self.tensors.len(), |next| next.first_tensor as usize);
        let there = self.tensors.get(other.first_tensor as usize..end).unwrap_or_default();
        for (tensor, need) in (0..).zip(tensors) {
            let tensors = there.len();
            let there = there.get(tensor as usize).ok_or(LayoutError::NoSuchTensor { tensor, tensors })?;
            if *need > there.len {
                return Err(LayoutError::TensorTooShort { tensor, need: *need, len: there.len });
            }
        }
        (placed.first_base, placed.first_tensor) = (other.first_block, other.first_tensor);
        Ok(())
    }

    /// Fails if a block of a new group has bytes of two blocks of a group whose memory it shares. `pairs` counts the
    /// pairs of places that were compared in this layout.
    pub(super) fn check_shared(&self, placed: &Placed, pairs: &mut u64) -> Result<(), LayoutError> {
        if placed.group.shared_with().is_none() {
            return Ok(());
        }
        let frames = placed.frames();
        let earlier =
            self.groups.iter().enumerate().filter(|(_, other)| other.first_base == placed.first_base);
        for (at, other) in earlier {
            overlap::check_shared([at, self.groups.len()], [&other.frames(), &frames], pairs)?;
        }
        Ok(())
    }
}
