//! The C headers of libibverbs in several releases of rdma-core, whichever of them this host has installed: Debian's
//! packages, unpacked into the cache. Nothing of them is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{process, workspace};

const PACKAGE: &str = "libibverbs-dev";
/// The package's version upstream, and a suite that has it. The newest suite may have a later one.
const RELEASES: [(&str, &str); 4] = [("33", "bullseye"), ("44", "bookworm"), ("56", "trixie"), ("65", "sid")];
const LIMIT: Duration = Duration::from_secs(300);

/// Unpacked headers.
pub struct Headers {
    /// Version of the package.
    pub version: String,
    /// The folder to include from.
    pub include: PathBuf,
}

/// Returns the headers of each release, those in the cache without a download.
pub fn of_all_releases() -> Result<Vec<Headers>> {
    let cache = workspace::cache()?.join("headers");
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let _turn = workspace::lock("headers")?;
    let cached = |release: &str| -> Result<Option<Headers>> {
        for entry in fs::read_dir(&cache)? {
            let (path, name) = {
                let it = entry?;
                (it.path(), it.file_name().to_string_lossy().into_owned())
            };
            if name.starts_with(&format!("{release}.")) {
                return Ok(Some(Headers { version: name, include: path.join("usr/include") }));
            }
        }
        Ok(None)
    };
    let mut apt = None;
    RELEASES
        .into_iter()
        .map(|(release, suite)| match cached(release)? {
            Some(headers) => Ok(headers),
            None => {
                if apt.is_none() {
                    apt = Some(Apt::new(&cache)?);
                }
                apt.as_ref().context("apt is set up")?.unpack(suite, &cache)
            }
        })
        .collect()
}

/// Apt with lists of its own, so that the host's are left alone.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(cache: &Path) -> Result<Self> {
        let folder = cache.join("apt");
        for each in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(folder.join(each))?;
        }
        let mirror = mirror()?;
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        let line = |(_, suite)| format!("deb [signed-by={keyring}] {mirror} {suite} main\n");
        fs::write(folder.join("sources.list"), RELEASES.map(line).concat())?;
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

    /// Unpacks the package of a suite into a folder of the cache that is named for its version.
    fn unpack(&self, suite: &str, cache: &Path) -> Result<Headers> {
        self.get(&["download", &format!("{PACKAGE}/{suite}")])?;
        let package = fs::read_dir(&self.folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .with_context(|| format!("apt-get downloaded no {PACKAGE}"))?;
        let version = process::answer("dpkg-deb", &["-f", &package.display().to_string(), "Version"])
            .with_context(|| format!("{} is no package", package.display()))?;
        let (raw, folder) = (self.folder.join("unpacked"), cache.join(&version));
        let mut command = Command::new("dpkg-deb");
        command.arg("-x").args([&package, &raw]);
        if !process::run_logged(&mut command, LIMIT, &self.folder.join("log"))?.success() {
            bail!("cannot unpack {}", package.display());
        }
        fs::remove_file(&package)?;
        // Moved when it is whole, so that a run that was cut off leaves no half of it.
        fs::rename(&raw, &folder).with_context(|| format!("cannot move {}", raw.display()))?;
        Ok(Headers { include: folder.join("usr/include"), version })
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
