//! The image: the packages that its Dockerfile installs exist in the release of Debian that it names. They hold
//! libibverbs, and the providers of the devices that our documents name. Docker itself is not needed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::ci::debian::Apt;
use crate::workspace;

/// Files that the packages must bring between them; `*` is the folder of the processor's kind.
const FILES: [&str; 4] = [
    "usr/lib/*/libibverbs.so.1",
    "usr/lib/*/libibverbs/libmlx5-rdmav34.so",
    "usr/lib/*/libibverbs/librxe-rdmav34.so",
    "etc/libibverbs.d/mlx5.driver",
];

/// Unpacks the packages of the Dockerfile into the cache, and looks for the files.
pub fn check(dockerfile: &Path) -> Result<()> {
    let text =
        fs::read_to_string(dockerfile).with_context(|| format!("cannot read {}", dockerfile.display()))?;
    let (suite, packages) = parse(&text)?;
    let cache = workspace::cache()?.join("image").join(&suite);
    let _turn = workspace::lock("image")?;
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let mut apt = None;
    let mut folders = Vec::new();
    for package in &packages {
        let into = cache.join(package);
        fs::create_dir_all(&into)?;
        folders.push(match fs::read_dir(&into)?.next() {
            Some(unpacked) => unpacked?.path(),
            None => {
                if apt.is_none() {
                    apt = Some(Apt::new(&cache, &[&suite])?);
                }
                apt.as_ref().context("apt is set up")?.unpack(package, &suite, &into)?.1
            }
        });
    }
    for file in FILES {
        let is_there = folders.iter().any(|folder| find(folder, file).is_some());
        ensure!(is_there, "the packages of the image have no {file}: {}", packages.join(" "));
    }
    println!("the image has libibverbs and its providers, of Debian {suite}");
    Ok(())
}

/// The release of Debian that the last stage begins with, and the packages that each stage installs.
fn parse(text: &str) -> Result<(String, Vec<String>)> {
    let base = text.lines().rfind(|line| line.starts_with("FROM ")).context("the Dockerfile has no FROM")?;
    let suite = base.strip_prefix("FROM debian:").and_then(|base| base.strip_suffix("-slim"));
    let suite = suite.with_context(|| format!("the image is not made of Debian: {base}"))?;
    let lists = text.lines().filter_map(|line| line.split_once("--no-install-recommends "));
    let mut lists: Vec<&str> = lists.map(|(_, list)| list.trim_end_matches('\\').trim()).collect();
    lists.dedup();
    ensure!(lists.len() == 1, "the stages of the Dockerfile install different packages: {lists:?}");
    Ok((suite.to_owned(), lists.concat().split(' ').map(str::to_owned).collect()))
}

/// The file of this name in a folder.
fn find(folder: &Path, file: &str) -> Option<PathBuf> {
    let Some((before, after)) = file.split_once("/*/") else {
        return Some(folder.join(file)).filter(|path| path.exists());
    };
    let kinds = fs::read_dir(folder.join(before)).ok()?;
    kinds.filter_map(|kind| Some(kind.ok()?.path().join(after))).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_of_all_stages_are_the_same() {
        let stage = |list: &str| format!("RUN apt-get install --yes --no-install-recommends {list} \\\n");
        let image =
            |list: &str| format!("FROM ray AS ray\n{}FROM debian:trixie-slim\n{}", stage("a b"), stage(list));
        let (suite, packages) = parse(&image("a b")).unwrap();
        assert_eq!((suite.as_str(), packages), ("trixie", vec!["a".to_owned(), "b".to_owned()]));
        assert!(parse(&image("a c")).is_err());
        assert!(parse("FROM ubuntu:22.04").is_err());
    }
}
