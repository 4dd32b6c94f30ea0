//! What the fuzz targets call: each takes any bytes and panics when something does not hold.

/// The frames of the software device's TCP wire.
pub fn message(data: &[u8]) {
    crate::backend::soft::fuzz::message(data);
}
