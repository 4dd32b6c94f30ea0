//! Registration: turns a mapping into registered memory, and registered memory into an export for peers.
//!
//! The memory kinds are in [`memory`](crate::memory); how a device registers is the backend's.

#![expect(unsafe_code, reason = "vouches to the backend that the mapping outlives its registration")]

use std::ops::Range;
use std::sync::Arc;

use super::dispatch::AnyPd;
use super::interface::ProtectionDomain;
use crate::error::{RangeError, RegisterError};
use crate::memory::{Backing, Exported, Mapping, PdId, Registered, Registration};
use crate::{Access, Sharing};

/// Explains the refusal of a registration longer than `max_mr_size`; `None` if `len` is within the bound.
pub(super) fn beyond_device(device: &str, len: u64, max_mr_size: u64) -> Option<String> {
    // Drivers without a bound report 0 or all ones.
    (max_mr_size > 0 && len > max_mr_size).then(|| {
        format!(
            "device {device} registers at most {max_mr_size} bytes at once (max_mr_size): use a smaller pool, or several"
        )
    })
}

/// Registers all of `mapping`, or gives it back with the error.
pub(crate) fn register(
    pd: &AnyPd,
    mut mapping: Mapping,
    access: Access,
    id: PdId,
) -> Result<Registered, (Mapping, RegisterError)> {
    if mapping.len() == 0 {
        return Err((mapping, RegisterError::ZeroLength));
    }
    if pd.shares_memory() {
        mapping.share();
        log_sharing(&mapping);
    }
    // SAFETY: `Registered` owns the mapping and unmaps it only after `deregister` returned `Ok`, so the range outlives
    // its registration. When `register` fails there is no registration.
    match unsafe { pd.register(mapping.as_ptr().as_ptr(), mapping.len(), access, backing_from(&mapping, 0)) }
    {
        Ok(registration) => Ok(Registered::new(mapping, registration, access, id)),
        Err(error) => Err((mapping, error)),
    }
}

/// Registers registered memory in a further domain, whose queue pairs may then use it, too.
pub(crate) fn register_in(pd: &AnyPd, memory: &mut Registered, id: PdId) -> Result<(), RegisterError> {
    let (mapping, access) = (memory.mapping(), memory.access());
    // SAFETY: `memory` keeps the registration beside its first one, and unmaps the mapping only after `deregister`
    // returned `Ok` for both. When `register` fails there is no registration.
    let registration =
        unsafe { pd.register(mapping.as_ptr().as_ptr(), mapping.len(), access, backing_from(mapping, 0)) }?;
    Ok(memory.add(registration, id)?)
}

/// Registers registered memory once more, under a key that peers may use. [`Exported`] keeps the memory registered
/// until that key is revoked.
///
/// The registration of an earlier export is renewed if there is one to spare, because that is cheaper than a new one.
pub(crate) fn export(
    pd: &AnyPd,
    memory: &Arc<Registered>,
    access: Access,
    id: PdId,
) -> Result<Exported, RegisterError> {
    let (mapping, mut spare) = (memory.mapping(), memory.spare()?.take());
    let renewed = spare.take_if(|(pd, spare)| *pd == id && spare.renew(access, mapping.backing()));
    let registration = match renewed {
        Some((_, spare)) => spare,
        None => register_range(pd, memory, 0..mapping.len(), access)?,
    };
    Ok(Exported::new(Arc::clone(memory), 0..mapping.len(), registration, Some(id)))
}

/// Registers a range of registered memory once more, under a key that peers may use.
///
/// No earlier key is renewed, and none renews this one, so that a peer that knew one key has all bits of the next to
/// guess.
pub(crate) fn export_range(
    pd: &AnyPd,
    memory: &Arc<Registered>,
    range: Range<usize>,
    access: Access,
) -> Result<Exported, RegisterError> {
    let registration = register_range(pd, memory, range.clone(), access)?;
    Ok(Exported::new(Arc::clone(memory), range, registration, None))
}

/// Registers ranges of registered memory once more, under one key that peers may use. No earlier key is renewed, as for
/// [`export_range`].
pub(crate) fn export_ranges(
    pd: &AnyPd,
    memory: &Arc<Registered>,
    mut ranges: Vec<Range<usize>>,
    access: Access,
) -> Result<Exported, RegisterError> {
    for range in &ranges {
        RangeError::check_range(range.start as u64..range.end as u64, memory.len() as u64)?;
    }
    if ranges.is_empty() || ranges.iter().any(Range::is_empty) {
        return Err(RegisterError::ZeroLength);
    }
    ranges.sort_unstable_by_key(|range| range.start);
    ranges.dedup_by(|next, range| {
        let meet = next.start <= range.end;
        range.end = if meet { range.end.max(next.end) } else { range.end };
        meet
    });
    let whole = ranges.first().map_or(0, |range| range.start)..ranges.last().map_or(0, |range| range.end);
    // SAFETY: each range was just checked to be within the mapping, which stays mapped until `deregister` returned
    // `Ok`, because the `Exported` below keeps it until then.
    let registration = unsafe { pd.register_parts(memory.as_ptr().as_ptr(), &ranges, access) }?;
    Ok(Exported::new(Arc::clone(memory), whole, registration, None))
}

/// Registers a range of registered memory once more. The caller keeps `memory` until the registration has ended.
fn register_range(
    pd: &AnyPd,
    memory: &Arc<Registered>,
    range: Range<usize>,
    access: Access,
) -> Result<Box<dyn Registration>, RegisterError> {
    RangeError::check_range(range.start as u64..range.end as u64, memory.len() as u64)?;
    if range.is_empty() {
        return Err(RegisterError::ZeroLength);
    }
    let mapping = memory.mapping();
    let (first, backing) =
        (mapping.as_ptr().as_ptr().wrapping_add(range.start), backing_from(mapping, range.start));
    // SAFETY: the range was just checked to be within the mapping, and stays mapped until `deregister` returned `Ok`,
    // because both callers put the registration and `memory` into an `Exported`, which keeps the mapping until then.
    unsafe { pd.register(first, range.len(), access, backing) }
}

/// The shareable pages behind a mapping, if there are any, and the offset there of the mapping's byte at `offset`.
fn backing_from(mapping: &Mapping, offset: usize) -> Option<(&Backing, u64)> {
    mapping.backing().map(|backing| (backing, offset as u64))
}

/// Logs how peers of this host reach memory that the library did not allocate.
fn log_sharing(mapping: &Mapping) {
    let bytes = mapping.len();
    match mapping.sharing() {
        Sharing::Allocated => {}
        Sharing::InPlace => crate::log::info!(bytes, "the caller's memory is shared in place"),
        Sharing::Unshared(reason) => {
            crate::log::info!(bytes, %reason, "the caller's memory is not shared; peers reach it over TCP");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_longer_than_the_bound_is_explained() {
        assert_eq!(beyond_device("a", 1 << 40, 0), None);
        assert_eq!(beyond_device("a", 1 << 40, u64::MAX), None);
        assert_eq!(beyond_device("a", 4096, 4096), None);
        let text = beyond_device("efa_0", 4097, 4096).unwrap();
        assert!(text.contains("efa_0") && text.contains("4096") && text.contains("max_mr_size"), "{text}");
    }
}
