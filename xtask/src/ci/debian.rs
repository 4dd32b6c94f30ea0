//! Packages of any release of Debian, unpacked into the cache. Nothing of them is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

const LIMIT: Duration = Duration::from_secs(300);

/// Apt with lists of its own, so that the host's are left alone.
pub struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Reads the lists of these suites, which are kept in this folder of the cache.
    pub fn new(cache: &Path, suites: &[&str]) -> Result<Self> {
        let folder = cache.join("apt");
        for each in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(each))?;
        }
        let mirror = mirror()?;
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let line = |suite| format!("deb [signed-by={keyring}] {mirror} {suite} main\n");
        fs::write(folder.join("sources.list"), suites.iter().map(line).collect::<String>())?;
        fs::write(folder.join("status"), "")?;
        let here = folder.display();
        fs::write(
            folder.join("apt.conf"),
            format!(
                "Dir::State \"{here}\"; Dir::State::status \"{here}/status\"; Dir::State::lists \"{here}/lists\";\n\
                 Dir::Cache \"{here}\"; Dir::Etc::sourcelist \"{here}/sources.list\"; Dir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::parts \"/dev/null\"; APT::Sandbox::User \"\"; Acquire::Languages \"none\";\n\
                 Acquire::Check-Valid-Until \"false\";\n"
            ),
        )?;
        let apt = Self { folder };
        apt.get(&["update"])?;
        Ok(apt)
    }

    fn get(&self, args: &[&str]) -> Result<()> {
        let log = self.folder.join("log");
        let mut command = Command::new("apt-get");
        command.args(args).env("APT_CONFIG", self.folder.join("apt.conf")).current_dir(&self.folder);
        if !process::run_logged(&mut command, LIMIT, &log)?.success() {
            bail!("`apt-get {}` failed: {}", args.join(" "), process::last_lines(&log));
        }
        Ok(())
    }

    /// Unpacks packages, and all that they need, into a new folder `root`, as if they were installed there.
    pub fn unpack_with_dependencies(&self, names: &[String], root: &Path) -> Result<()> {
        let archives = self.folder.join("archives");
        let mut args = vec!["install", "--yes", "--no-install-recommends", "--download-only"];
        args.extend(names.iter().map(String::as_str));
        self.get(&args)?;
        let raw = self.folder.join("unpacked-root");
        for entry in fs::read_dir(&archives)? {
            let package = entry?.path();
            if package.extension().is_some_and(|extension| extension == "deb") {
                self.extract(&package, &raw)?;
            }
        }
        fs::rename(&raw, root).with_context(|| format!("cannot move {}", raw.display()))?;
        // The archives of the next list of packages are others.
        fs::remove_dir_all(&archives).with_context(|| format!("cannot remove {}", archives.display()))
    }

    fn extract(&self, package: &Path, into: &Path) -> Result<()> {
        let mut command = Command::new("dpkg-deb");
        command.arg("-x").args([package, into]);
        if !process::run_logged(&mut command, LIMIT, &self.folder.join("log"))?.success() {
            bail!("cannot unpack {}", package.display());
        }
        Ok(())
    }

    /// Unpacks a package of a suite into a folder within `into` that is named for its version. Returns both.
    pub fn unpack(&self, name: &str, suite: &str, into: &Path) -> Result<(String, PathBuf)> {
        self.get(&["download", &format!("{name}/{suite}")])?;
        let package = fs::read_dir(&self.folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .with_context(|| format!("apt-get downloaded no {name}"))?;
        let version = process::answer("dpkg-deb", &["-f", &package.display().to_string(), "Version"])
            .with_context(|| format!("{} is no package", package.display()))?;
        let (raw, folder) = (self.folder.join("unpacked"), into.join(&version));
        self.extract(&package, &raw)?;
        fs::remove_file(&package)?;
        // Moved when it is whole, so that a run that was cut off leaves no half of it.
        fs::rename(&raw, &folder).with_context(|| format!("cannot move {}", raw.display()))?;
        Ok((version, folder))
    }
}

/// The mirror of Debian that this host uses.
fn mirror() -> Result<String> {
    let sources = ["/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"];
    let texts = sources.map(|path| fs::read_to_string(path).unwrap_or_default());
    let mut words = texts.iter().flat_map(|text| text.lines()).filter(|line| !line.starts_with('#'));
    let of_line =
        |line: &str| line.split_whitespace().find(|word| word.ends_with("/debian")).map(str::to_owned);
    words.find_map(of_line).context("this host names no mirror of Debian in /etc/apt")
}
