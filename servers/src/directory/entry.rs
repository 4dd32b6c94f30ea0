//! Entries of a directory, and their seals.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use hmac::{Hmac, KeyInit, Mac};
use rdma_collective::bootstrap::JobToken;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::LASTS;

/// The longest entry: a blob has up to 34 KiB, and two digits a byte.
const BYTES_MAX: usize = 128 * 1024;
/// Difference of two hosts' clocks that is forgiven.
const CLOCKS: Duration = Duration::from_secs(5);

/// The part that a server has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A server that computes prompts.
    Prefill,
    /// A server that goes on with texts.
    Decode,
    /// A server that finds a decode for each request.
    Router,
    /// A server that does all by itself.
    Single,
}

/// A server, and how to reach it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name, unique among the servers of a job.
    pub name: String,
    /// The part.
    pub role: Role,
    /// The address of its HTTP, `HOST:PORT`.
    pub http: String,
    /// The blob of its node, in hexadecimal digits; empty when it has none.
    pub blob: String,
    /// Seconds since 1970 at which the entry ends.
    pub until: u64,
}

/// An entry as a directory has it: its text, and a seal that only servers of the job can make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The name of the entry, so that a directory can find it.
    pub name: String,
    /// The entry, as JSON.
    pub entry: String,
    /// HMAC-SHA-256 of that text by the job's token, in hexadecimal digits.
    pub seal: String,
}

impl Entry {
    /// Seals the entry, which then lasts for a time.
    ///
    /// # Errors
    ///
    /// The entry is too long.
    pub fn seal(&self, token: &JobToken, lasts: Duration) -> Result<Sealed> {
        let until = now().saturating_add(lasts.as_secs().max(1));
        let entry = serde_json::to_string(&Self { until, ..self.clone() })?;
        ensure!(entry.len() <= BYTES_MAX, "an entry of {} bytes", entry.len());
        let seal = hex(&mac(token, &entry)?.finalize().into_bytes());
        Ok(Sealed { name: self.name.clone(), entry, seal })
    }

    /// Seconds since the end of the entry, by the clock of this host; 0 while it lasts.
    #[must_use]
    pub fn late(&self) -> u64 {
        now().saturating_sub(self.until)
    }

    /// The bytes of the node's blob.
    #[must_use]
    pub fn blob(&self) -> Vec<u8> {
        unhex(&self.blob).unwrap_or_default()
    }
}

impl Sealed {
    /// Opens an entry.
    ///
    /// # Errors
    ///
    /// The seal is not that of this job, the entry has ended or ends later than any that is sealed now, or it is no
    /// entry.
    pub fn open(&self, token: &JobToken) -> Result<Entry> {
        ensure!(self.entry.len() <= BYTES_MAX, "an entry of {} bytes", self.entry.len());
        let seal = unhex(&self.seal).context("a seal that is no number")?;
        mac(token, &self.entry)?.verify_slice(&seal).map_err(|_| anyhow::anyhow!("a seal of another job"))?;
        let entry: Entry = serde_json::from_str(&self.entry)?;
        ensure!(entry.name == self.name, "the entry of {} under the name {}", entry.name, self.name);
        let late = entry.late();
        ensure!(late <= CLOCKS.as_secs(), "the entry of {} ended {late} s ago", entry.name);
        // An entry of a clock that was far ahead would hide those of its server that come after it.
        let longest = LASTS + 2 * CLOCKS;
        let early = entry.until.saturating_sub(now());
        ensure!(
            early <= longest.as_secs(),
            "the entry of {} ends in {early} s, beyond {longest:?}",
            entry.name
        );
        Ok(entry)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Router => "router",
            Self::Single => "single",
        })
    }
}

fn mac(token: &JobToken, text: &str) -> Result<Hmac<Sha256>> {
    // A key of its own, so that a seal says nothing about other uses of the token.
    let mut mac = Hmac::new_from_slice(format!("directory {}", token.to_hex()).as_bytes())?;
    mac.update(text.as_bytes());
    Ok(mac)
}

/// A name of the job that does not tell its token.
#[cfg(feature = "etcd")]
pub(super) fn job(token: &JobToken) -> Result<String> {
    let name = mac(token, "job")?.finalize().into_bytes();
    Ok(hex(name.first_chunk::<8>().context("a hash of 32 bytes")?))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The hexadecimal digits of bytes.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? * 16 + digit(*low)?) as u8);
    if rest.is_empty() { pairs.iter().map(byte).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let (name, http, blob) = ("decode-0".to_owned(), "127.0.0.1:80".to_owned(), "00ff".to_owned());
        Entry { name, role: Role::Decode, http, blob, until: 0 }
    }

    #[test]
    fn an_entry_is_what_was_sealed() {
        let token = JobToken::random().unwrap();
        let opened = entry().seal(&token, Duration::from_secs(9)).unwrap().open(&token).unwrap();
        assert!(opened.until > now());
        assert_eq!(Entry { until: 0, ..opened.clone() }, entry());
        assert_eq!(opened.blob(), [0, 255]);
    }

    #[test]
    fn forged_and_ended_entries_are_refused() {
        let token = JobToken::random().unwrap();
        let sealed = entry().seal(&token, Duration::from_secs(9)).unwrap();
        let refused = |sealed: Sealed| sealed.open(&token).unwrap_err().to_string();
        assert_eq!(
            refused(entry().seal(&JobToken::random().unwrap(), LASTS).unwrap()),
            "a seal of another job"
        );
        let other = sealed.entry.replace("decode", "prefill");
        assert_eq!(refused(Sealed { entry: other, ..sealed.clone() }), "a seal of another job");
        assert!(refused(Sealed { name: "a".to_owned(), ..sealed.clone() }).contains("under the name a"));
        assert_eq!(refused(Sealed { seal: "xyz".to_owned(), ..sealed.clone() }), "a seal that is no number");
        let text = serde_json::to_string(&Entry { until: now() - 60, ..entry() }).unwrap();
        let seal = hex(&mac(&token, &text).unwrap().finalize().into_bytes());
        assert!(refused(Sealed { entry: text, seal, ..sealed }).contains("ended 60 s ago"));
        let later =
            |seconds| entry().seal(&token, LASTS + 2 * CLOCKS + Duration::from_secs(seconds)).unwrap();
        assert!(later(0).open(&token).is_ok());
        assert!(refused(later(60)).contains("beyond 13s"));
    }

    #[test]
    fn an_entry_with_any_bit_flipped_is_refused() {
        let token = JobToken::random().unwrap();
        let sealed = entry().seal(&token, LASTS).unwrap();
        assert!(sealed.open(&token).is_ok());
        let fields = |sealed: &Sealed| [sealed.name.clone(), sealed.entry.clone(), sealed.seal.clone()];
        for (field, text) in fields(&sealed).iter().enumerate() {
            for (byte, bit) in (0..text.len()).flat_map(|byte| (0..7).map(move |bit| (byte, bit))) {
                let mut altered = text.clone().into_bytes();
                altered[byte] ^= 1 << bit;
                // The seal is a number, whose digits may be small or large.
                if field == 2 && altered.eq_ignore_ascii_case(text.as_bytes()) {
                    continue;
                }
                let mut all = fields(&sealed);
                all[field] = String::from_utf8(altered).unwrap();
                let [name, entry, seal] = all;
                assert!(
                    Sealed { name, entry, seal }.open(&token).is_err(),
                    "bit {bit} of byte {byte} of field {field}"
                );
            }
        }
        let cut = Sealed { seal: sealed.seal[2..].to_owned(), ..sealed.clone() };
        assert!(cut.open(&token).is_err());
        assert!(Sealed { seal: String::new(), ..sealed }.open(&token).is_err());
    }

    #[test]
    fn an_entry_that_is_too_long_is_neither_sealed_nor_opened() {
        let token = JobToken::random().unwrap();
        let long = Entry { blob: "0".repeat(BYTES_MAX), ..entry() };
        assert!(long.seal(&token, LASTS).unwrap_err().to_string().contains("an entry of 131"));
        let sealed = Sealed { entry: " ".repeat(BYTES_MAX + 1), ..entry().seal(&token, LASTS).unwrap() };
        assert_eq!(sealed.open(&token).unwrap_err().to_string(), "an entry of 131073 bytes");
    }
}
