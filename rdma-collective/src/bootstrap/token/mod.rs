//! The job token: the secret that the processes of one job share.

use std::fmt;
use std::str::FromStr;

use crate::bootstrap::BootstrapError;

/// The secret of a job: 128 bits that tell its processes from those of any other job, and from strangers.
///
/// `Display` and `Debug` print a fingerprint of 32 bits, never the secret. Launchers hand on [`JobToken::to_hex`].
///
/// ```
/// use rdma_collective::bootstrap::JobToken;
///
/// let token = JobToken::random()?;
/// assert_eq!(token.to_hex().parse::<JobToken>()?, token);
/// # Ok::<(), rdma_collective::bootstrap::BootstrapError>(())
/// ```
#[derive(Clone, Copy)]
pub struct JobToken([u8; 16]);

impl JobToken {
    /// Makes a token that nobody can guess.
    ///
    /// # Errors
    /// [`BootstrapError::Random`] if the system gives no random numbers.
    pub fn random() -> Result<Self, BootstrapError> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| BootstrapError::Random { reason: error.to_string() })?;
        Ok(Self(bytes))
    }

    /// Derives a token from `parts`. It keeps jobs apart, but is **no secret**: everybody who knows the parts can
    /// derive it.
    #[must_use]
    pub fn derived(parts: &[&str]) -> Self {
        // FNV-1a of 128 bits. A byte that no text contains ends each part, so that ("ab", "c") and ("a", "bc") differ.
        const PRIME: u128 = 0x0100_0000_0000_0000_0000_013b;
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
        let start = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
        Self(bytes.fold(start, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)).to_be_bytes())
    }

    /// Derives the token of the job with this `number`, so that whatever ranks make after they met keeps two jobs with
    /// one token apart.
    pub(crate) fn of_job(&self, number: u64) -> Self {
        Self::derived(&["job", &self.to_hex(), &format!("{number:016x}")])
    }

    /// Makes a token of 16 bytes that were agreed on elsewhere.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, for the first frame of a connection.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The secret as 32 hexadecimal digits. Hand it to processes of the job, and to nobody else.
    #[must_use]
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The fingerprint: 32 bits by which people can compare tokens in logs. It does not reveal the token.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        // FNV-1a of 32 bits: an attacker who knows the fingerprint still has to guess 96 bits.
        self.0.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
    }
}

impl PartialEq for JobToken {
    /// Compares in constant time, so that a stranger cannot find the token byte by byte from the time of a refusal.
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

impl Eq for JobToken {}

impl fmt::Display for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}…", self.fingerprint())
    }
}

impl fmt::Debug for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobToken({self})")
    }
}

impl FromStr for JobToken {
    type Err = BootstrapError;

    fn from_str(hex: &str) -> Result<Self, BootstrapError> {
        let digits = hex.len() == 32 && hex.bytes().all(|digit| digit.is_ascii_hexdigit());
        match u128::from_str_radix(hex, 16) {
            Ok(value) if digits => Ok(Self(value.to_be_bytes())),
            _ => Err(BootstrapError::NotAToken { len: hex.len() }),
        }
    }
}

#[cfg(test)]
mod tests;
