//! A copy of the variables of a process, or the variables of a test.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// A copy of the environment variables of a process.
///
/// Everything in [`env`](super) reads such a copy. Only [`Variables::of_process`] reads the real environment; tests
/// collect their own variables from pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<OsString, OsString>);

impl Variables {
    /// Copies the variables of this process, as they are now.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of `name`; `None` if it is unset or empty.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// The names of set variables with that prefix and suffix, in order.
    pub(super) fn named(&self, prefix: &str, suffix: &str) -> Vec<String> {
        let is_one = |name: &&str| {
            name.strip_prefix(prefix)
                .and_then(|name| name.strip_suffix(suffix))
                .is_some_and(|task| !task.is_empty())
        };
        let set = self.0.iter().filter(|(_, value)| !value.is_empty());
        set.filter_map(|(name, _)| name.to_str()).filter(is_one).map(str::to_owned).collect()
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        Self(variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
