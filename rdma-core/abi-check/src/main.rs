//! Compares every size, offset, type and constant of rdma-core's own declarations with the C headers (those
//! installed, and those that `ABI_CHECK_HEADERS` names) and with rdma-sys, and every symbol version with the installed
//! library. Prints the number of rows compared; exits with 1 on a mismatch.
//!
//! ```text
//! LIBCLANG_PATH=/usr/lib/llvm-14/lib cargo run --manifest-path rdma-core/abi-check/Cargo.toml
//! ```
#![allow(clippy::unnecessary_cast, clippy::eq_op, reason = "the tables are generated")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::mem::offset_of;
use std::process::ExitCode;

#[path = "../../src/backend/ibverbs/sys/mod.rs"]
#[allow(dead_code, unused_imports, clippy::all, reason = "checked where it belongs")]
mod sys;

type Row = (&'static str, i64);

fn main() -> ExitCode {
    let ours: &[Row] = include!(concat!(env!("OUT_DIR"), "/ours.rs"));
    let rdma_sys: &[Row] = include!(concat!(env!("OUT_DIR"), "/rdma_sys.rs"));
    let symbols: &[(&CStr, &CStr)] = include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
    let ours = ours.iter().copied().collect::<HashMap<_, _>>();

    let headers: &[(&str, *const CRow)] = include!(concat!(env!("OUT_DIR"), "/c_rows.rs"));
    let of_headers = headers.iter().map(|(release, table)| compare(release, &ours, &rows(*table)));
    let mismatches = of_headers.sum::<usize>() + compare("rdma-sys", &ours, rdma_sys) + look_up(symbols);
    if mismatches == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints the rows that differ, and returns their number.
fn compare(other: &str, ours: &HashMap<&str, i64>, theirs: &[Row]) -> usize {
    let mut mismatches = 0;
    for (name, value) in theirs {
        let our_value = ours[name];
        // Newer headers may append fields to this structure, so theirs may be longer than ours.
        let holds = if GROWING.contains(name) { *value >= our_value } else { *value == our_value };
        if !holds {
            println!("MISMATCH {name}: ours {our_value}, {other} {value}");
            mismatches += 1;
        }
    }
    println!("{} rows held against {other}, {mismatches} mismatches", theirs.len());
    mismatches
}

const GROWING: [&str; 2] = ["sizeof ibv_port_attr", "sizeof verbs_context"];

/// A row of a table that a C compiler computed.
#[repr(C)]
struct CRow {
    name: *const c_char,
    value: i64,
}

/// Returns the rows of a table, which begins at `row`.
fn rows(mut row: *const CRow) -> Vec<Row> {
    let mut rows = Vec::new();
    // SAFETY: the generated table ends in a row whose name is null, so the loop never leaves it; all other
    // names are literals.
    unsafe {
        while !(*row).name.is_null() {
            rows.push((CStr::from_ptr((*row).name).to_str().unwrap(), (*row).value));
            row = row.add(1);
        }
    }
    rows
}

/// Prints the symbols that the installed library lacks in our version, and returns their number.
fn look_up(symbols: &[(&CStr, &CStr)]) -> usize {
    // SAFETY: rdma-sys links the library, so it is loaded already and `dlopen` runs no initialiser.
    let handle = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null(), "libibverbs.so.1 does not open");
    let mut missing = 0;
    for (symbol, version) in symbols {
        // SAFETY: the handle is open, since it was checked, and both strings end in a null byte.
        if unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) }.is_null() {
            println!("MISSING {symbol:?} of {version:?}");
            missing += 1;
        }
    }
    println!("{} symbols looked up with their versions, {missing} missing", symbols.len());
    missing
}

/// Returns the size of the type that a projection points to.
fn size_of_pointee<S, F>(project: fn(*const S) -> *const F) -> usize {
    let _ = project;
    size_of::<F>()
}
