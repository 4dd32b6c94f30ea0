//! The devices that libibverbs lists. An open one is in [`super::context`].
#![expect(unsafe_code, reason = "calls libibverbs")]

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use super::event::Events;
use super::library::library;
use super::symbols::Symbols;
use super::sys::ibv_device;
use super::{Context, explain};
use crate::error::OpenError;

/// A device, by its name. It may have been removed when it is opened.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    name: String,
}

impl Device {
    /// Lists the devices that the library finds, in its order.
    pub(crate) fn list() -> Result<Vec<Self>, OpenError> {
        let list = DeviceList::get()?;
        Ok(list.devices().map(|(name, _)| Self { name }).collect())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Opens the device. The list is read anew, because the device may have gone since it was listed.
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
        // SAFETY: `list` is alive, so the device is valid. The context outlives the list, because libibverbs counts the
        // references to a device.
        let context = unsafe { open_device(device) };
        // SAFETY: `list` is alive, so the device is; libibverbs ends its node's name with a zero byte within the array.
        let node = unsafe { CStr::from_ptr((*device).dev_name.as_ptr()) }.to_string_lossy();
        let refused = |source| explain::opening(&self.name, &node, source);
        let context = super::not_null(context).map_err(refused)?;
        // SAFETY: the context was just opened, and only this call knows it.
        unsafe { Context::new(&self.name, list.symbols, context, events, refused) }
    }
}

/// The array of devices that libibverbs allocates; freed on drop.
///
/// # Invariants
///
/// `list` comes from `ibv_get_device_list` and is not freed yet: it holds `len` devices and a null.
struct DeviceList {
    symbols: &'static Symbols,
    list: NonNull<*mut ibv_device>,
    len: usize,
}

impl DeviceList {
    /// Asks the library for its devices.
    fn get() -> Result<Self, OpenError> {
        let symbols = library().map_err(Clone::clone)?;
        let get_device_list = symbols.ibv_get_device_list.clone()?;
        let mut len: c_int = 0;
        // SAFETY: the call only writes the number of devices, to a variable of ours.
        let list = super::not_null(unsafe { get_device_list(&mut len) }).map_err(OpenError::NotListed)?;
        // INVARIANT: the list was just returned, with this length.
        Ok(Self { symbols, list, len: usize::try_from(len).unwrap_or(0) })
    }

    /// Names and devices. A device pointer is valid only while this list is alive.
    fn devices(&self) -> impl Iterator<Item = (String, *mut ibv_device)> {
        // SAFETY: the invariant says that `list` holds `len` pointers and is not freed, so they may be read.
        let devices = unsafe { std::slice::from_raw_parts(self.list.as_ptr(), self.len) };
        devices.iter().map(|&device| {
            // SAFETY: the list keeps the device alive, so its name may be read; it ends in a zero byte within the
            // array.
            let name = unsafe { CStr::from_ptr((*device).name.as_ptr()) };
            (name.to_string_lossy().into_owned(), device)
        })
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        if let Ok(free_device_list) = self.symbols.ibv_free_device_list {
            // SAFETY: the invariant says that the list is not freed yet; only this drop frees it, and `devices` borrows
            // `self`, so no device pointer is used afterwards.
            unsafe { free_device_list(self.list.as_ptr()) };
        }
    }
}
