//! The file of a drawing.

use anyhow::Context;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::path::PathBuf;

/// The file that `--plot` names, known to be writable before there is something to draw.
#[derive(Debug)]
pub struct PlotFile(PathBuf);

impl PlotFile {
    /// Opens the file. An old drawing stays until the new one is written.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn open(path: PathBuf) -> anyhow::Result<Self> {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        opened.with_context(|| format!("--plot {} cannot be written", path.display()))?;
        Ok(Self(path))
    }

    /// Writes the drawing.
    ///
    /// # Errors
    ///
    /// The system's error at the file.
    pub fn write(self, drawing: impl Display) -> anyhow::Result<()> {
        let written = fs::write(&self.0, drawing.to_string());
        written.with_context(|| format!("--plot {} cannot be written", self.0.display()))
    }
}
