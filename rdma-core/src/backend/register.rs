//! From a mapping to registered memory.

#![expect(unsafe_code, reason = "vouches to the backend that the mapping outlives its registration")]

use super::dispatch::AnyPd;
use super::interface::ProtectionDomain;
use crate::Access;
use crate::error::RegisterError;
use crate::memory::{Mapping, PdId, Registered};

/// Registers all of `mapping`; on an error the mapping comes back.
pub(crate) fn register(
    pd: &AnyPd,
    mapping: Mapping,
    access: Access,
    id: PdId,
) -> Result<Registered, (Mapping, RegisterError)> {
    // SAFETY: `Registered` owns the mapping and unmaps it only after `deregister` returned `Ok`;
    // when `register` fails there is no registration.
    match unsafe { pd.register(mapping.as_ptr().as_ptr(), mapping.len(), access) } {
        Ok(registration) => Ok(Registered::new(mapping, registration, access, id)),
        Err(error) => Err((mapping, error)),
    }
}
