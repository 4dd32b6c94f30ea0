//! The text by which both sides tell each other where they are: `LID:QPN:PSN:GID` in hexadecimal, and a zero byte.

use std::fmt;

use rdma_core::{Gid, Lid, Psn, QpNum};
use thiserror::Error;

/// Bytes of the text, the zero byte included.
pub const BYTES: usize = 52;
/// Bytes before the GID, without the colon.
const OLD_BYTES: usize = 18;
/// The client's answer to the server's text.
pub const DONE: &[u8; 5] = b"done\0";

/// The address of a side. `Display` prints what follows `local address:`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub lid: Lid,
    pub qp_num: QpNum,
    pub psn: Psn,
    /// Zero where LIDs are the addresses.
    pub gid: Gid,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TextError {
    /// The text of versions that knew no GIDs.
    #[error(
        "sent the old text `{0}`, without a GID; run this program or an ibv_rc_pingpong of 2012 or later there"
    )]
    Old(String),
    /// Anything else.
    #[error("sent `{0}`, which is no address of ibv_rc_pingpong; see which program has the port of -p there")]
    Garbage(String),
}

impl Address {
    /// Returns the text, with its zero byte.
    pub fn text(&self) -> String {
        let gid = u128::from_be_bytes(self.gid.0);
        format!("{:04x}:{:06x}:{:06x}:{gid:032x}\0", self.lid.0, self.qp_num.0, self.psn.value())
    }

    /// Reads a text, which ends with a zero byte or is cut at [`BYTES`].
    ///
    /// # Errors
    ///
    /// [`TextError`], with the text.
    pub fn read(text: &[u8]) -> Result<Self, TextError> {
        let line = text.strip_suffix(b"\0").unwrap_or(text);
        let printed = || line.escape_ascii().to_string();
        if text.len() == BYTES
            && let Some(address) = fields(line).and_then(|[lid, qpn, psn, gid]| {
                let short = |field| u32::try_from(hexadecimal(field)?).ok();
                Some(Self {
                    lid: Lid(u16::try_from(hexadecimal(lid)?).ok()?),
                    qp_num: QpNum(short(qpn)?),
                    psn: Psn::new(short(psn)?),
                    gid: Gid(hexadecimal(gid)?.to_be_bytes()),
                })
            })
        {
            return Ok(address);
        }
        let is_old = line.len() == OLD_BYTES && line.iter().filter(|&&byte| byte == b':').count() == 2;
        Err(if is_old { TextError::Old(printed()) } else { TextError::Garbage(printed()) })
    }
}

/// Splits a line into its fields, if each is as long as it must be.
fn fields(line: &[u8]) -> Option<[&str; 4]> {
    let mut fields = std::str::from_utf8(line).ok()?.split(':');
    let mut field = |length| fields.next().filter(|field: &&str| field.len() == length);
    let found = [field(4)?, field(6)?, field(6)?, field(32)?];
    fields.next().is_none().then_some(found)
}

fn hexadecimal(field: &str) -> Option<u128> {
    // `from_str_radix` takes a sign.
    field.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u128::from_str_radix(field, 16).ok())?
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, qp_num, psn, gid } = self;
        write!(f, "LID {:#06x}, QPN {:#08x}, PSN {:#08x}, GID {gid}", lid.0, qp_num.0, psn.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address() -> Address {
        let gid = Ipv4Addr::new(30, 61, 180, 172).into();
        Address { lid: Lid(0), qp_num: QpNum(0x1234), psn: Psn::new(0x58_320b), gid }
    }

    #[test]
    fn the_text_is_that_of_the_c_program() {
        let text = "0000:001234:58320b:00000000000000000000ffff1e3db4ac\0";
        assert_eq!(address().text(), text);
        assert_eq!(Address::read(text.as_bytes()), Ok(address()));
        assert_eq!(text.len(), BYTES);
    }

    #[test]
    fn an_address_is_printed_as_the_c_program_prints_it() {
        assert_eq!(address().to_string(), "LID 0x0000, QPN 0x001234, PSN 0x58320b, GID ::ffff:30.61.180.172");
    }

    #[test]
    fn a_text_without_a_gid_is_an_old_one() {
        let error = Address::read(b"0001:001234:58320b\0").unwrap_err();
        assert_eq!(error, TextError::Old("0001:001234:58320b".to_owned()));
    }

    #[test]
    fn every_other_text_is_refused() {
        let good = address().text();
        for (from, to) in [("0000:", "+000:"), (":58320b", " 58320b"), ("ffff1e", "ffff1x"), ("\0", "0")] {
            let bad = good.replacen(from, to, 1);
            assert!(matches!(Address::read(bad.as_bytes()), Err(TextError::Garbage(_))), "{bad}");
        }
        for bad in [&b""[..], b"\0", b"GET / HTTP/1.1\r\n", &[0xff; BYTES], b"0:0:0:0\0"] {
            assert!(matches!(Address::read(bad), Err(TextError::Garbage(_))), "{bad:?}");
        }
    }
}
