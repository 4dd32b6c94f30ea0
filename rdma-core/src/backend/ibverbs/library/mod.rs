//! Opens libibverbs at run time, once for the process, and never closes it. The functions it exports are listed in
//! [`super::symbols`]; the files named after the verbs call them.
#![expect(unsafe_code, reason = "loads a shared library")]

use std::error::Error as _;
use std::ffi::{CString, c_void};
use std::sync::OnceLock;

use libloading::os::unix as dl;

use super::symbols::Symbols;
use crate::error::LibraryUnavailable;

/// The name that every distribution installs; `libibverbs.so` comes with the development files only.
const LIBRARY: &str = "libibverbs.so.1";

/// Returns the library of this process. The first caller opens it.
///
/// Providers start threads and register handlers for fork and exit, so unloading the library would leave calls into
/// unmapped code. `ibv_fork_init` is not called: it makes every registration slower, and kernels since 5.12 copy
/// pinned pages at fork instead.
///
/// # Errors
///
/// [`LibraryUnavailable`]. Every later call returns the same error: only a new process finds a library installed later.
pub(crate) fn library() -> Result<&'static Symbols, &'static LibraryUnavailable> {
    static SYMBOLS: OnceLock<Result<Symbols, LibraryUnavailable>> = OnceLock::new();
    SYMBOLS.get_or_init(|| open(LIBRARY)).as_ref()
}

/// Opens the library `name` and resolves its symbols.
fn open(name: &'static str) -> Result<Symbols, LibraryUnavailable> {
    if cfg!(all(target_env = "musl", target_feature = "crt-static")) {
        return Err(LibraryUnavailable::StaticBuild);
    }
    // SAFETY: the constructors of libibverbs and its dependencies need nothing of the program, so they may run here.
    // Only an administrator can install another library under this name.
    let opened = unsafe { dl::Library::open(Some(name), dl::RTLD_NOW | dl::RTLD_LOCAL) };
    let handle = match opened {
        Ok(library) => library.into_raw(), // never closed, because providers leave threads and handlers behind
        Err(error) => {
            // The source has the loader's message, which names the missing file.
            let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
            return Err(LibraryUnavailable::NotFound { tried: vec![name], reason });
        }
    };
    // SAFETY: the handle is never closed, so every address that `find` returns stays loaded.
    Ok(unsafe { Symbols::resolve(|symbol, version| find(handle, symbol, version)) })
}

/// Finds the address of a symbol by name and version; null if there is none.
#[cfg(target_env = "gnu")]
fn find(handle: *mut c_void, symbol: &str, version: &str) -> *mut c_void {
    let (Ok(symbol), Ok(version)) = (CString::new(symbol), CString::new(version)) else {
        return std::ptr::null_mut();
    };
    // SAFETY: the handle is open, since it is never closed, and both strings end in a zero byte.
    unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) }
}

/// Finds the address of a symbol; null if there is none. musl's loader knows no versions and finds the default one.
#[cfg(not(target_env = "gnu"))]
fn find(handle: *mut c_void, symbol: &str, _version: &str) -> *mut c_void {
    let Ok(symbol) = CString::new(symbol) else { return std::ptr::null_mut() };
    // SAFETY: the handle is open, since it is never closed, and the string ends in a zero byte.
    unsafe { libc::dlsym(handle, symbol.as_ptr()) }
}

#[cfg(test)]
mod tests;
