//! Trees of files in place of `/`, from the descriptions in `trees`.
//!
//! A description has a folder in brackets, then its files: `name = text`, `name -> target` for a link, and
//! `gid 3 = address | type | interface` for an entry of a GID table. Lines with `#` name the source.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A tree in a folder of its own.
pub struct Tree(TempDir);

impl Tree {
    pub fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// Makes the tree that a file in `trees` describes.
    pub fn named(name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/tables/trees/{name}.tree"));
        Self::described(
            &fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())),
        )
    }

    pub fn described(text: &str) -> Self {
        let tree = Self::empty();
        let mut folder = "";
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                folder = name;
                fs::create_dir_all(tree.path(folder)).unwrap();
            } else if let Some((name, target)) = line.split_once(" -> ") {
                tree.link(&format!("{folder}/{name}"), target);
            } else {
                let (name, value) = line.split_once(" =").unwrap_or_else(|| panic!("{line}"));
                match name.strip_prefix("gid ") {
                    Some(index) => tree.gid(folder, index, value.trim()),
                    None => tree.file(&format!("{folder}/{name}"), format!("{}\n", value.trim())),
                }
            }
        }
        tree
    }

    fn gid(&self, port: &str, index: &str, value: &str) {
        let mut words = value.split('|').map(str::trim);
        for file in ["gids", "gid_attrs/types", "gid_attrs/ndevs"] {
            if let Some(word) = words.next() {
                self.file(&format!("{port}/{file}/{index}"), format!("{word}\n"));
            }
        }
    }

    pub fn root(&self) -> &Path {
        self.0.path()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.root().join(path)
    }

    /// Writes a file, with the folders above it.
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn link(&self, path: &str, target: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }
}
