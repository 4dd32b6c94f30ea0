//! Safe, RAII verbs over libibverbs, and a software device with the same semantics.
#![deny(unsafe_code)]
