//! Libraries that are absent or lack symbols, and the one that is opened once.

use super::*;

#[test]
fn a_library_that_is_not_installed_is_named_with_what_to_install() {
    let Err(error) = open("libibverbs-of-no-distribution.so.9") else { panic!("opened") };
    let LibraryUnavailable::NotFound { tried, reason } = &error else { panic!("{error:?}") };
    assert_eq!(tried, &["libibverbs-of-no-distribution.so.9"]);
    assert!(reason.contains("libibverbs-of-no-distribution.so.9"), "{reason}");
    assert!(error.to_string().contains("install it"), "{error}");
}

/// Every machine has libc under this name, and it exports none of our symbols.
#[cfg(target_env = "gnu")]
#[test]
fn a_library_without_the_symbols_opens_and_each_missing_one_names_itself() {
    let symbols = open("libc.so.6").unwrap();
    let Err(error) = symbols.ibv_reg_mr_iova2 else { panic!("libc exports ibv_reg_mr_iova2") };
    assert_eq!(error, LibraryUnavailable::TooOld { symbol: "ibv_reg_mr_iova2", version: "IBVERBS_1.8" });
    assert!(error.to_string().contains("ibv_reg_mr_iova2 of version IBVERBS_1.8"), "{error}");
    assert!(symbols.ibv_open_device.is_err());
}

#[test]
fn the_library_is_opened_once() {
    match (library(), library()) {
        (Ok(first), Ok(second)) => assert!(std::ptr::eq(first, second)),
        (Err(first), Err(second)) => assert!(std::ptr::eq(first, second)),
        _ => panic!("two answers"),
    }
}
