//! Follows a file that a guest is writing, and prints its whole lines as they come.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file that grows, and how much of it has been printed.
pub struct Tail {
    path: PathBuf,
    prefix: String,
    file: Option<File>,
    line: Vec<u8>,
}

impl Tail {
    /// Follows `path`, which need not exist yet; every line is printed after `prefix`.
    pub fn new(path: &Path, prefix: &str) -> Tail {
        Tail { path: path.to_path_buf(), prefix: prefix.to_owned(), file: None, line: Vec::new() }
    }

    /// Prints the lines that were completed since the last call.
    pub fn print_new(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        file.read_to_end(&mut self.line)?;
        let whole = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rest = self.line.split_off(whole);
        self.print_lines()?;
        self.line = rest;
        Ok(())
    }

    /// Prints what is left, a last line without its end included.
    pub fn finish(&mut self) -> io::Result<()> {
        self.print_new()?;
        self.print_lines()
    }

    fn print_lines(&mut self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        for line in String::from_utf8_lossy(&self.line).lines() {
            writeln!(out, "{}{line}", self.prefix)?;
        }
        self.line.clear();
        out.flush()
    }
}
