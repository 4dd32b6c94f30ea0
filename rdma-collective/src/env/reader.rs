//! The reader of single variables: text, numbers, and the errors that quote them.

use std::net::Ipv6Addr;
use std::ops::RangeInclusive;

use super::Variables;
use super::table;
use crate::env::Setting;
use crate::env::error::EnvErrorKind;

/// The most ranks of a job, which is the limit of the store.
pub(super) const WORLD_MAX: u32 = 65536;

/// A reader over the variables of a process.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    variables: &'a Variables,
}

/// A number, and the variable that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) setting: Setting,
    pub(super) value: u32,
}

impl<'a> Reader<'a> {
    pub(super) fn new(variables: &'a Variables) -> Self {
        Self { variables }
    }

    pub(super) fn is_set(&self, name: &str) -> bool {
        self.variables.get(name).is_some()
    }

    /// The first of two variables if it is set, otherwise the second.
    pub(super) fn first_set<'n>(&self, [first, other]: [&'n str; 2]) -> &'n str {
        if self.is_set(first) { first } else { other }
    }

    /// The names of set variables with that prefix and suffix.
    pub(super) fn named(&self, prefix: &str, suffix: &str) -> Vec<String> {
        self.variables.named(prefix, suffix)
    }

    /// The text of `name`; `None` if it is not set.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, EnvErrorKind> {
        debug_assert!(table::expected(name).is_some(), "{name} is not in the table");
        let Some(value) = self.variables.get(name) else { return Ok(None) };
        match value.to_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(EnvErrorKind::NotText {
                name: name.to_owned(),
                value: value.to_string_lossy().into_owned(),
                expected: table::expected(name).unwrap_or("text"),
            }),
        }
    }

    /// The text of `name` together with the name.
    pub(super) fn setting(&self, name: &str) -> Result<Option<Setting>, EnvErrorKind> {
        Ok(self.text(name)?.map(|value| Setting { name: name.to_owned(), value }))
    }

    /// The host that `name` gives. An IPv6 address may stand in brackets, as in a URL.
    pub(super) fn host(&self, name: &str) -> Result<Option<String>, EnvErrorKind> {
        let text = self.text(name)?;
        Ok(text.map(|host| match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(address) if address.parse::<Ipv6Addr>().is_ok() => address.to_owned(),
            _ => host,
        }))
    }

    /// A number within `range`: decimal, or hexadecimal after `0x`.
    pub(super) fn number(
        &self,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<Number>, EnvErrorKind> {
        let Some(setting) = self.setting(name)? else { return Ok(None) };
        match parse(&setting.value).filter(|value| range.contains(value)) {
            Some(value) => Ok(Some(Number { setting, value })),
            None => Err(invalid(setting)),
        }
    }

    /// The number within `range` that `names` are set to. Those that are set must agree.
    fn one_number(&self, names: &[&str], range: RangeInclusive<u32>) -> Result<Option<Number>, EnvErrorKind> {
        let mut found: Option<Number> = None;
        for name in names {
            match (&found, self.number(name, range.clone())?) {
                (Some(one), Some(other)) if one.value != other.value => {
                    let (one, other) = (one.setting.clone(), other.setting);
                    return Err(EnvErrorKind::Contradiction { one, other });
                }
                (None, number) => found = number,
                _ => {}
            }
        }
        Ok(found)
    }

    /// The rank that `names` give.
    pub(super) fn rank(&self, names: &[&str]) -> Result<Option<Number>, EnvErrorKind> {
        self.one_number(names, 0..=WORLD_MAX - 1)
    }

    /// The number of ranks that `names` give.
    pub(super) fn world(&self, names: &[&str]) -> Result<Option<Number>, EnvErrorKind> {
        self.one_number(names, 1..=WORLD_MAX)
    }

    /// The port that `name` gives.
    pub(super) fn port(&self, name: &str) -> Result<Option<u16>, EnvErrorKind> {
        let port = self.number(name, 1..=u32::from(u16::MAX))?;
        Ok(port.map(|port| port.value as u16))
    }
}

/// The error for a value that its variable does not take.
pub(super) fn invalid(setting: Setting) -> EnvErrorKind {
    let expected = table::expected(&setting.name).unwrap_or("another value");
    EnvErrorKind::Invalid { name: setting.name, value: setting.value, expected }
}

/// Parses digits only: no sign, no space.
pub(super) fn parse(text: &str) -> Option<u32> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let plain = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u32::from_str_radix(digits, radix).ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_alone() {
        let good = [("0", 0), ("29500", 29500), ("0x6A", 106), ("007", 7), ("4294967295", u32::MAX)];
        for (text, value) in good {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        for text in ["", "-1", "+1", " 1", "1 ", "0x", "0x+1", "1e3", "4294967296", "eins", "0x100000000"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
