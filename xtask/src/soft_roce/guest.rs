//! The folder that a guest shares with its host: the command, its environment and the script that sets up the device go
//! in, and the guest's output comes back.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The name of the device in every guest.
pub const DEVICE: &str = "rxe0";

/// A guest that writes this file to its folder is killed at once, with no notice, and has passed.
pub const KILL: &str = "kill";

/// The command for every host, and the longest that it may take.
pub struct Command {
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// The command's own limit; setting up has another.
    pub timeout: Duration,
}

/// A host of the run: its number, its address and its peer's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// 0 or 1.
    pub host: u8,
    /// How many hosts there are.
    pub hosts: u8,
}

impl Place {
    /// The address on the device's network interface.
    pub fn address(&self) -> String {
        format!("10.9.0.{}", self.host + 1)
    }

    /// The other host's address; a lone host is its own peer.
    pub fn peer(&self) -> String {
        format!("10.9.0.{}", (self.host + 1) % self.hosts + 1)
    }

    /// The hardware address of the interface that joins two hosts.
    pub fn mac(&self) -> String {
        format!("52:54:00:00:00:{:02x}", self.host + 1)
    }

    /// The environment that the command finds.
    pub fn environment(&self, device: &str, out: &Path) -> Vec<(String, OsString)> {
        let pairs: [(&str, OsString); 6] = [
            ("ROCE_DEVICE", device.into()),
            ("ROCE_HOST", self.host.to_string().into()),
            ("ROCE_HOSTS", self.hosts.to_string().into()),
            ("ROCE_SELF", self.address().into()),
            ("ROCE_PEER", self.peer().into()),
            ("ROCE_OUT", out.into()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

/// The folder shared with one guest.
pub struct Folder {
    /// Where it is, here and in the guest.
    pub path: PathBuf,
}

impl Folder {
    /// Fills a new folder at `path` with what the guest at `place` needs.
    pub fn create(path: PathBuf, place: &Place, command: &Command) -> Result<Folder> {
        // virtme-ng passes paths through a shell, unquoted.
        if path.as_os_str().as_bytes().iter().any(|byte| !is_plain(*byte)) {
            bail!(
                "{} has characters a guest cannot take: set CARGO_TARGET_DIR to a plainer path",
                path.display()
            );
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        fs::write(path.join("guest.sh"), include_str!("guest.sh"))?;
        fs::write(path.join("environment"), environment(place, &path, command)?)?;
        let argv: Vec<u8> = command.argv.iter().flat_map(|arg| [arg.as_bytes(), b"\0"].concat()).collect();
        fs::write(path.join("argv"), argv)?;
        Ok(Folder { path })
    }

    /// The command line that the guest runs first.
    pub fn script(&self) -> [PathBuf; 2] {
        [self.path.join("guest.sh"), self.path.clone()]
    }

    /// Whether the guest has asked to be killed.
    pub fn asks_for_its_death(&self) -> bool {
        self.path.join(KILL).exists()
    }

    /// The text that the guest wrote to one of its files so far.
    pub fn read(&self, name: &str) -> String {
        fs::read(self.path.join(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

fn environment(place: &Place, folder: &Path, command: &Command) -> Result<Vec<u8>> {
    let mut pairs = place.environment(DEVICE, folder);
    let mac = if place.hosts > 1 { place.mac() } else { String::new() };
    pairs.push(("GUEST_MAC".to_owned(), mac.into()));
    pairs.push(("GUEST_DIRECTORY".to_owned(), std::env::current_dir()?.into()));
    pairs.push(("GUEST_TIMEOUT".to_owned(), command.timeout.as_secs().to_string().into()));
    for name in ["PATH", "HOME", "CI", "SOAK", "RUST_BACKTRACE", "RUST_LOG"] {
        pairs.extend(std::env::var_os(name).map(|value| (name.to_owned(), value)));
    }
    let mut text = Vec::new();
    for (name, value) in pairs {
        text.extend_from_slice(format!("export {name}=").as_bytes());
        text.extend(quote(&value));
        text.push(b'\n');
    }
    Ok(text)
}

/// Quotes a value for a POSIX shell.
fn quote(value: &OsStr) -> Vec<u8> {
    let mut quoted = vec![b'\''];
    for byte in value.as_bytes() {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_hosts_are_each_others_peer() {
        let [a, b] = [0, 1].map(|host| Place { host, hosts: 2 });
        assert_eq!((a.address(), a.peer()), (b.peer(), b.address()));
        assert_ne!(a.address(), a.peer());
        assert_ne!(a.mac(), b.mac());
    }

    #[test]
    fn a_lone_host_is_its_own_peer() {
        let lone = Place { host: 0, hosts: 1 };
        assert_eq!(lone.address(), lone.peer());
    }

    #[test]
    fn a_quoted_value_survives_a_shell() {
        assert_eq!(quote(OsStr::new("a 'b' $c")), b"'a '\\''b'\\'' $c'");
    }
}
