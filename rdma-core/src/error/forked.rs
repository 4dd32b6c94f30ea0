//! [`Forked`]: a child uses what its parent made.

/// This process was forked from the one that made the object.
///
/// A child has copies of its parent's objects, but neither the mappings nor the threads behind them. Every call on such
/// a copy that needs the device fails with this error at once, and dropping the copy does nothing, so that the parent
/// never notices. Memory that both processes share (a [`LocalBuf`](crate::LocalBuf), a [`Region`](crate::Region)) can
/// still be read and written.
///
/// Most errors have a variant of this name; it is the source of the [`std::io::Error`] in a
/// [`CloseError`](super::CloseError). [`Device::open`](crate::Device::open) raises it in a child of a process with a
/// software device.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process was forked from the one that made the object, which stays with its parent, untouched: open devices \
     after the fork, or exec"
)]
pub struct Forked(());

impl Forked {
    #[cold]
    pub(crate) fn new() -> Self {
        Self(())
    }
}
