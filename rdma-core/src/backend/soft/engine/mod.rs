//! The protocol of the software device: reliable connections, without clock and without I/O.

pub(crate) mod message;
