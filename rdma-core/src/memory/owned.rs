//! Memory that no device knows of: before registration, and after it.

#![expect(unsafe_code, reason = "derefs to the bytes that it owns alone")]

use std::fmt;
use std::ops::{Deref, DerefMut};

use super::Mapping;
use crate::error::RegisterError;

/// Page-aligned bytes that can be registered; owned by this value alone, so it derefs to `[u8]`.
///
/// ```
/// use rdma_core::{Access, Device, Memory, SoftOptions};
/// let pd = Device::soft(SoftOptions::default()).open()?.alloc_pd()?;
/// let mut memory = Memory::allocate(16)?;
/// memory[0] = 7;
/// let region = pd.register(memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
/// // … peers write …
/// let memory = region.deregister()?;
/// assert_eq!(memory[0], 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Memory(Mapping);

impl Memory {
    /// `len` zeroed bytes.
    ///
    /// # Errors
    ///
    /// [`RegisterError::ZeroLength`], [`RegisterError::TooLong`], or [`RegisterError::Allocate`]
    /// when the system has no memory, descriptors or mappings left.
    pub fn allocate(len: usize) -> Result<Self, RegisterError> {
        Mapping::allocate(len).map(Self)
    }

    pub(crate) fn from_mapping(mapping: Mapping) -> Self {
        Self(mapping)
    }

    pub(crate) fn into_mapping(self) -> Mapping {
        self.0
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is live, readable and zeroed at first, and no device has it
        // registered: only `&mut self` writes it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes any other reference.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().as_ptr(), self.0.len()) }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("len", &self.0.len()).finish()
    }
}
