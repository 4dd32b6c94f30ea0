//! What the fuzz targets call: each takes any bytes and panics when something does not hold.

/// The frames of the software device's TCP wire.
pub fn message(data: &[u8]) {
    crate::backend::soft::fuzz::message(data);
}

/// The packets by which processes meet for the mapped wire.
pub fn rendezvous(data: &[u8]) {
    crate::backend::soft::rendezvous_fuzz::packet(data);
}
