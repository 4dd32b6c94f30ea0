//! The cases, a file for each verb or subject.

mod access;
mod batch;
mod channel;
mod create;
mod device;
mod export;
mod fence;
mod flush;
pub(crate) mod helpers;
mod modify;
mod reach;
mod read;
mod receive_not_ready;
mod register;
mod retry;
mod revoke;
mod send;
mod window;
mod write;
mod write_imm;

use crate::Case;

/// Lists the functions of a file as cases; `#[exact]` marks those that assert an exact status, errno or flush.
macro_rules! cases {
    ($file:literal: $($(#[$exact:ident])? $name:ident),* $(,)?) => {
        pub(crate) const CASES: &[crate::Case] = &[$(
            crate::Case {
                name: concat!($file, "::", stringify!($name)),
                exact: crate::cases::exact!($($exact)?),
                run: $name,
            }
        ),*];
    };
}

macro_rules! exact {
    () => {
        false
    };
    (exact) => {
        true
    };
}

pub(crate) use {cases, exact};

/// Returns every case that runs in one process.
#[must_use]
pub fn all() -> Vec<Case> {
    [
        device::CASES,
        register::CASES,
        create::CASES,
        modify::CASES,
        send::CASES,
        receive_not_ready::CASES,
        write::CASES,
        write_imm::CASES,
        read::CASES,
        reach::CASES,
        window::CASES,
        batch::CASES,
        access::CASES,
        export::CASES,
        retry::CASES,
        flush::CASES,
        fence::CASES,
        revoke::CASES,
        channel::CASES,
    ]
    .concat()
}

/// Returns every case that needs a peer process.
#[must_use]
pub fn across_processes() -> Vec<Case> {
    crate::peer::CASES.to_vec()
}
