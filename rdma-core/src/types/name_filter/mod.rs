//! The filter of devices and interfaces, in NCCL's notation: `mlx5_0:1,mlx5_bond_0`, `^eth0,lo`, `=mlx5_1`.

use std::fmt;

/// The most names in a list; a longer one is no list of devices, but a mistake.
const ENTRIES_MAX: usize = 256;

/// A filter of names, as NCCL reads it. The empty filter takes all names.
///
/// An entry matches every name that **begins** with it: `mlx5_1` matches `mlx5_10`, too. A list that begins with `=`
/// matches whole names, a list that begins with `^` takes all names that do not match, and `^=` is both. A single entry
/// with its own `^` is an exception from a list that takes the others.
///
/// ```
/// use rdma_core::NameFilter;
///
/// let hca = NameFilter::devices("=mlx5_1:1,mlx5_bond_0").ok_or("no list")?;
/// assert!(hca.takes("mlx5_1", Some(1)) && hca.takes("mlx5_bond_0", Some(2)));
/// assert!(!hca.takes("mlx5_1", Some(2)) && !hca.takes("mlx5_10", Some(1)));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameFilter {
    text: String,
    takes_others: bool,
    exact: bool,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    /// The port; `None` matches any port.
    port: Option<u8>,
    /// Whether the entry is an exception from the list.
    out: bool,
}

impl NameFilter {
    /// Parses a list of devices, each perhaps with a port, as in `NCCL_IB_HCA`; `None` for a text that is no list.
    #[must_use]
    pub fn devices(text: &str) -> Option<Self> {
        Self::parse(text, true)
    }

    /// Parses a list of interfaces, as in `NCCL_SOCKET_IFNAME`; `None` for a text that is no list.
    ///
    /// A colon belongs to the name, because an interface may have an alias behind one.
    #[must_use]
    pub fn interfaces(text: &str) -> Option<Self> {
        Self::parse(text, false)
    }

    fn parse(text: &str, ports: bool) -> Option<Self> {
        let (takes_others, list) = text.strip_prefix('^').map_or((false, text), |list| (true, list));
        let (exact, list) = list.strip_prefix('=').map_or((false, list), |list| (true, list));
        let named = list.split(',').filter(|entry| !entry.is_empty()).take(ENTRIES_MAX + 1);
        let entries = named.map(|entry| Entry::parse(entry, ports)).collect::<Option<Vec<_>>>()?;
        let usable = (1..=ENTRIES_MAX).contains(&entries.len());
        usable.then(|| Self { text: text.to_owned(), takes_others, exact, entries })
    }

    /// Whether the filter takes `port` of the device `name`; with `None`, whether it takes any port of that device.
    #[must_use]
    pub fn takes(&self, name: &str, port: Option<u8>) -> bool {
        let (out, named): (Vec<&Entry>, Vec<&Entry>) = self.entries.iter().partition(|entry| entry.out);
        let holds = |entries: &[&Entry]| entries.iter().any(|entry| entry.holds(name, port, self.exact));
        let holds_all =
            |entries: &[&Entry]| entries.iter().any(|entry| entry.holds_all(name, port, self.exact));
        if self.takes_others {
            return !holds_all(&named) && !holds_all(&out);
        }
        (holds(&named) || named.is_empty()) && !holds_all(&out)
    }

    /// Whether the filter is empty, so that it takes every name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Entry {
    fn parse(text: &str, ports: bool) -> Option<Self> {
        let (out, text) = text.strip_prefix('^').map_or((false, text), |name| (true, name));
        let (name, port) = match text.split_once(':') {
            Some((name, port)) if ports => {
                let digits = port.bytes().all(|digit| digit.is_ascii_digit());
                (name, Some(port.parse().ok().filter(|port| digits && *port > 0)?))
            }
            _ => (text, None),
        };
        let plain = name.chars().all(|letter| letter.is_ascii_graphic() && !"^=".contains(letter));
        (plain && !name.is_empty()).then(|| Self { name: name.to_owned(), port, out })
    }

    /// Whether the entry matches the port; with `None`, whether it matches any port of the device.
    fn holds(&self, name: &str, port: Option<u8>, exact: bool) -> bool {
        self.names(name, exact) && (self.port.is_none() || port.is_none() || self.port == port)
    }

    /// Whether the entry matches the port; with `None`, whether it matches all ports of the device.
    fn holds_all(&self, name: &str, port: Option<u8>, exact: bool) -> bool {
        self.names(name, exact) && (self.port.is_none() || self.port == port)
    }

    fn names(&self, name: &str, exact: bool) -> bool {
        if exact { self.name == name } else { name.starts_with(&self.name) }
    }
}

impl fmt::Display for NameFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
