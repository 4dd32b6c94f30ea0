//! The variables that are read: the process's, or those of a test.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// A copy of an environment.
///
/// Everything in [`env`](super) is read from one, and [`Variables::of_process`] is the one place where that of the
/// process is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<OsString, OsString>);

impl Variables {
    /// Those of this process, as they are now.
    #[must_use]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    /// The value of `name`; an empty one counts as unset.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// Names that are set and begin and end so, in order.
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
