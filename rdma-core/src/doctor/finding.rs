//! [`Finding`]: a thing that is wrong with a machine, the value that shows it, and the mend.

use std::fmt;

use super::finding_id::FindingId;
use crate::memory::pinning::NotKnown;

/// How much a finding matters.
///
/// A part of [`Finding`]. The order is that of a report: errors come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The process will fail at this.
    Error,
    /// The process may fail, or be slow.
    Warning,
    /// The value is not visible, so it is neither fine nor wrong.
    NotVisible,
    /// The value is worth knowing when something else fails.
    Note,
}

/// A thing that is wrong with the machine, or that cannot be seen.
///
/// `Display` prints several lines: severity, id and text; the value and its file; and the mend for a shell, a systemd
/// unit and a pod.
///
/// Returned by [`Machine::findings`](super::Machine::findings).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of finding, which stays the same over releases.
    pub id: FindingId,
    /// How much the finding matters.
    pub severity: Severity,
    /// The text: a sentence about what is wrong, and to whom it happens.
    pub text: String,
    /// The file that the finding rests on, or `$NAME` for an environment variable.
    pub source: String,
    /// The value in `source`.
    pub value: String,
    /// The mend.
    pub mend: Mend,
}

/// The mend of a finding, for each way to start a process.
///
/// A part of [`Finding`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mend {
    /// Commands of a shell on the host, as root where they change the host.
    pub shell: String,
    /// Settings of a systemd unit.
    pub unit: String,
    /// Fields of a pod.
    pub pod: String,
}

impl Mend {
    pub(super) fn new(shell: impl Into<String>, unit: impl Into<String>, pod: impl Into<String>) -> Self {
        Self { shell: shell.into(), unit: unit.into(), pod: pod.into() }
    }

    /// The mend on the host, for a thing that neither a unit nor a pod can change.
    pub(super) fn on_host(shell: impl Into<String>) -> Self {
        let no_setting = "no setting of its own: mend the host as in the shell";
        Self::new(
            shell,
            no_setting,
            "no field of its own: mend the node as in the shell, or ask for another node",
        )
    }
}

impl Finding {
    /// A finding about a value that cannot be read; `effect` says what therefore stays open.
    pub(super) fn not_visible(id: FindingId, unknown: &NotKnown, effect: &str) -> Self {
        Self {
            id,
            severity: Severity::NotVisible,
            text: format!("not visible, because {}; so {effect}", unknown.why),
            source: unknown.path.display().to_string(),
            value: "not known".to_owned(),
            mend: Mend::new(
                "look at the file as root, on the host",
                "[Service] ProtectProc=default, ProcSubset=all, no PrivateDevices= and no InaccessiblePaths= over the file",
                "look on the node; a container sees the part of /sys and /proc that its runtime mounts",
            ),
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::NotVisible => "not visible",
            Self::Note => "note",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, severity, text, source, value, mend } = self;
        let Mend { shell, unit, pod } = mend;
        writeln!(f, "{severity}: {}: {}", id.as_str(), Plain(text))?;
        writeln!(f, "  seen:          {}: {}", Plain(source), Plain(value))?;
        writeln!(f, "  shell:         {}", Plain(shell))?;
        writeln!(f, "  systemd unit:  {}", Plain(unit))?;
        write!(f, "  pod spec:      {}", Plain(pod))
    }
}

/// Text without control characters, because names of a foreign tree may hold any.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
        self.0.chars().map(plain).try_for_each(|letter| fmt::Write::write_char(f, letter))
    }
}
