//! Which devices there are. What an open one answers is [`super::context`]'s.
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use super::event::Events;
use super::library::library;
use super::symbols::Symbols;
use super::sys::ibv_device;
use super::{Context, explain};
use crate::error::OpenError;

/// A device by its name; it may be gone when it is opened.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    name: String,
}

impl Device {
    /// The devices that the library finds, in its order.
    pub(crate) fn list() -> Result<Vec<Self>, OpenError> {
        let list = DeviceList::get()?;
        Ok(list.devices().map(|(name, _)| Self { name }).collect())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn open(&self) -> Result<Context, OpenError> {
        let list = DeviceList::get()?;
        let Some((_, device)) = list.devices().find(|(name, _)| *name == self.name) else {
            return Err(OpenError::UnknownDevice {
                name: self.name.clone(),
                available: list.devices().map(|(name, _)| name).collect(),
                reason: None,
            });
        };
        let events = Events::new().map_err(|source| explain::opening(&self.name, "uverbs*", source))?;
        let open_device = list.symbols.ibv_open_device.clone()?;
        // SAFETY: the device is of a list that was not freed; a context stays valid after that.
        let context = unsafe { open_device(device) };
        // SAFETY: the device is alive, and its node's name ends in a zero byte within the array.
        let node = unsafe { CStr::from_ptr((*device).dev_name.as_ptr()) }.to_string_lossy();
        let refused = |source| explain::opening(&self.name, &node, source);
        let context = super::not_null(context).map_err(refused)?;
        // SAFETY: opened just now and given to no one else.
        unsafe { Context::new(&self.name, list.symbols, context, events, refused) }
    }
}

/// The library's array of devices, freed on drop.
///
/// # Invariants
///
/// `list` is what `ibv_get_device_list` returned, not freed yet: `len` devices and a null.
struct DeviceList {
    symbols: &'static Symbols,
    list: NonNull<*mut ibv_device>,
    len: usize,
}

impl DeviceList {
    fn get() -> Result<Self, OpenError> {
        let symbols = library().map_err(Clone::clone)?;
        let get_device_list = symbols.ibv_get_device_list.clone()?;
        let mut len: c_int = 0;
        // SAFETY: a pointer to an integer of ours.
        let list = super::not_null(unsafe { get_device_list(&mut len) }).map_err(OpenError::NotListed)?;
        // INVARIANT: returned just now, with its length.
        Ok(Self { symbols, list, len: usize::try_from(len).unwrap_or(0) })
    }

    /// Names and devices; a device is valid while this list is.
    fn devices(&self) -> impl Iterator<Item = (String, *mut ibv_device)> {
        // SAFETY: by the invariant there are `len` pointers to devices.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.len) };
        devices.iter().map(|&device| {
            // SAFETY: the device is alive, and its name ends in a zero byte within the array.
            let name = unsafe { CStr::from_ptr((*device).name.as_ptr()) };
            (name.to_string_lossy().into_owned(), device)
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if let Ok(free_device_list) = self.symbols.ibv_free_device_list {
            // SAFETY: by the invariant not freed yet; no device of it is used after this.
            unsafe { free_device_list(self.list.as_ptr()) };
        }
    }
}
