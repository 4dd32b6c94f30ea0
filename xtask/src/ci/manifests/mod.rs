//! The manifests of `deploy/`: each is rendered, is valid in several versions of Kubernetes and for its controller, and
//! has no right that it does not need; its command runs here. Python checks that, because the schemas of Kubernetes are
//! a package of PyPI; this file gets the tools.

mod image;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::debian::Apt;
use crate::cargo::{build, cargo, check};
use crate::{packages, process, programs, workspace};

/// The schemas of Kubernetes 1.25 to 1.37.
const SCHEMAS: &str = "kubernetes-validate==1.37.0";
/// Debian 12 has kubectl 1.20, whose kustomize knows neither components nor replacements.
const KUBECTL: (&str, &str) = ("kubectl", "trixie");
const LIMIT: Duration = Duration::from_secs(300);

/// Checks all manifests.
pub fn run() -> Result<()> {
    let work = workspace::target()?.join("manifests");
    fs::create_dir_all(&work)?;
    if let Err(reason) = packages::ensure(&["iproute2", "python3-venv"], &work.join("log"))? {
        println!("{reason}");
    }
    let (kubectl, python) = (kubectl()?, python(&work)?);
    let path = path(&work)?;
    let root = workspace::root()?;
    if packages::is_debian_like() {
        image::check(&root.join("deploy/Dockerfile"), &path.join("rdma-tools"))?;
    }
    let mut command = Command::new(python);
    // Without -B the compiled files would lie among the sources.
    command.args(["-B", "-E", "-s"]).arg(root.join("xtask/src/ci/manifests/main.py"));
    check(command.arg(kubectl).args([root.join("deploy"), path, work]))
}

/// A folder for `PATH`, with every program of the workspace as the tests have them.
fn path(work: &Path) -> Result<PathBuf> {
    let path = work.join("path");
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    fs::create_dir(&path)?;
    for program in build(&mut cargo(programs::BUILD_FOR_TESTS)?)?.iter().filter(|built| !built.is_test) {
        symlink(&program.path, path.join(&program.name))?;
    }
    Ok(path)
}

/// Python with the schemas, in a folder of the build that is made once.
fn python(work: &Path) -> Result<PathBuf> {
    let folder = work.join(SCHEMAS);
    let python = folder.join("bin/python");
    if !folder.join("bin/kubernetes-validate").exists() {
        logged(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), work)?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", SCHEMAS];
        logged(Command::new(&python).args(pip), work)?;
    }
    Ok(python)
}

/// A kubectl that is new enough: Debian's, unpacked into the cache; on other systems the one that is installed.
fn kubectl() -> Result<PathBuf> {
    if !packages::is_debian_like() {
        return Ok(PathBuf::from("kubectl"));
    }
    let cache = workspace::cache()?.join("kubectl");
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    let _turn = workspace::lock("kubectl")?;
    let program = |folder: PathBuf| Some(folder.join("usr/bin/kubectl")).filter(|path| path.exists());
    let cached = fs::read_dir(&cache)?.find_map(|entry| program(entry.ok()?.path()));
    if let Some(kubectl) = cached {
        return Ok(kubectl);
    }
    let (package, suite) = KUBECTL;
    let (version, folder) = Apt::new(&cache, &[suite])?.unpack(package, suite, &cache)?;
    program(folder).with_context(|| format!("{package} {version} has no kubectl"))
}

fn logged(command: &mut Command, work: &Path) -> Result<()> {
    let log = work.join("log");
    if !process::run_logged(command, LIMIT, &log)?.success() {
        bail!("`{}` failed: {}", command.get_program().to_string_lossy(), process::last_lines(&log));
    }
    Ok(())
}
