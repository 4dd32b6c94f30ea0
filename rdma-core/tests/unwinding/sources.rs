//! The places of the library's sources that write a log line.

use std::fs;
use std::path::Path;

/// A place that writes a line.
#[derive(Debug)]
pub struct Written {
    /// The file, from the folder `src`.
    pub file: String,
    pub line: u32,
    /// The first string of the macro call: the text of the line.
    pub message: String,
}

/// Lists all of them, those of tests left out.
pub fn sites() -> Vec<Written> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sites = Vec::new();
    collect(&root, &root, &mut sites);
    assert!(sites.len() > 30, "the sources are not found: {sites:?}");
    sites
}

fn collect(root: &Path, folder: &Path, sites: &mut Vec<Written>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            collect(root, &path, sites);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let file = path.strip_prefix(root).unwrap().to_str().unwrap();
            of_text(file, &fs::read_to_string(&path).unwrap(), sites);
        }
    }
}

fn of_text(file: &str, text: &str, sites: &mut Vec<Written>) {
    // The module of the log itself calls its macro without a path.
    let begin = if file == "log/mod.rs" { "" } else { "log::" };
    for level in ["error", "warn", "info", "debug"] {
        let call = format!("{begin}{level}!(");
        for (at, _) in text.match_indices(&call) {
            let line = text[..at].matches('\n').count() as u32 + 1;
            let rest = &text[at + call.len()..];
            let message = rest.split('"').nth(1).unwrap_or_else(|| panic!("{file}:{line} has no text"));
            sites.push(Written { file: file.to_owned(), line, message: message.to_owned() });
        }
    }
}
