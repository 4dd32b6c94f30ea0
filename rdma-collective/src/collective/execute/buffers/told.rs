//! Where a rank's memory is, as others of its host are told.

use rdma_core::{RemoteKey, RemoteMemory};

/// Bytes of it in a message.
pub(in crate::collective::execute) const TOLD_BYTES: usize = 24;

/// What the other ranks do with the memory of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collective::execute) struct Rights {
    pub(in crate::collective::execute) read: bool,
    pub(in crate::collective::execute) write: bool,
}

/// Where it begins, and its key; 0 when there is nothing to be done with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::execute) struct At {
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

/// Where the first elements of its input and of its output are; both 0 when its memory is borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::collective::execute) struct Told {
    pub(in crate::collective::execute) input: At,
    pub(in crate::collective::execute) output: At,
}

impl At {
    /// All of it, which is `len` bytes long by what is called.
    pub(in crate::collective::execute) fn memory(self, len: usize) -> RemoteMemory {
        RemoteMemory { addr: self.addr, len: len as u64, rkey: RemoteKey(self.rkey) }
    }
}

impl Told {
    pub(in crate::collective::execute) const BORROWED: Self =
        Self { input: At { addr: 0, rkey: 0 }, output: At { addr: 0, rkey: 0 } };

    /// Whether others cannot come to it.
    pub(in crate::collective::execute) fn is_borrowed(&self) -> bool {
        [self.input.rkey, self.output.rkey] == [0; 2]
    }

    /// Whether others store to it.
    pub(in crate::collective::execute) fn is_stored_to(&self) -> bool {
        self.output.rkey != 0
    }

    pub(in crate::collective::execute) fn encode(&self) -> [u8; TOLD_BYTES] {
        let mut bytes = [0; TOLD_BYTES];
        for (half, at) in bytes.chunks_exact_mut(TOLD_BYTES / 2).zip([self.input, self.output]) {
            half[..8].copy_from_slice(&at.addr.to_le_bytes());
            half[8..].copy_from_slice(&at.rkey.to_le_bytes());
        }
        bytes
    }

    pub(in crate::collective::execute) fn decode(bytes: &[u8; TOLD_BYTES]) -> Self {
        let at = |at: usize| {
            let (mut addr, mut rkey) = ([0; 8], [0; 4]);
            addr.copy_from_slice(&bytes[at..at + 8]);
            rkey.copy_from_slice(&bytes[at + 8..at + 12]);
            At { addr: u64::from_le_bytes(addr), rkey: u32::from_le_bytes(rkey) }
        };
        Self { input: at(0), output: at(TOLD_BYTES / 2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_none_is_borrowed() {
        let told =
            Told { input: At { addr: u64::MAX - 7, rkey: 9 }, output: At { addr: 1 << 40, rkey: u32::MAX } };
        assert_eq!(Told::decode(&told.encode()), told);
        assert!(!told.is_borrowed() && Told::default().is_borrowed());
        assert!(Told::decode(&[0; TOLD_BYTES]).is_borrowed());
    }
}
