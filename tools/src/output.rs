//! Text for standard output, and errors in a line.

use std::fmt::Display;
use std::io::{Write, stdout};

use anyhow::Context;
use serde::Serialize;

/// Writes `text` to standard output at once.
///
/// # Errors
///
/// When nobody reads standard output any more, or the disk behind it is full.
pub fn say(text: impl Display) -> anyhow::Result<()> {
    let mut to = stdout().lock();
    write!(to, "{text}").and_then(|()| to.flush()).context("standard output")
}

/// Writes `value` to standard output as JSON, in a line.
///
/// # Errors
///
/// The errors of [`say`].
pub fn say_json(value: &impl Serialize) -> anyhow::Result<()> {
    let line = serde_json::to_string(value).context("JSON")?;
    say(format_args!("{line}\n"))
}

/// Joins an error and its causes, without the causes that the error quotes itself.
pub fn in_a_line(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |line, cause| match line.as_str() {
        "" => cause,
        said if said.contains(&cause) => line,
        said => format!("{said}: {cause}"),
    })
}
