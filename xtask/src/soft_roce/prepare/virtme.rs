//! virtme-ng in a Python environment of its own, in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Step;
use crate::process;

const REQUIREMENT: &str = "virtme-ng==1.42";
const LIMIT: Duration = Duration::from_secs(300);

/// virtme-ng's program, installed when the cache has another version or none.
pub fn ensure(cache: &Path) -> Step<PathBuf> {
    let folder = cache.join("virtme");
    let vng = folder.join("bin/vng");
    let stamp = folder.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|version| version == REQUIREMENT) && runs(&vng) {
        return Ok(Ok(vng));
    }
    println!("soft-roce: installing {REQUIREMENT} for Python");
    let log = cache.join("virtme.log");
    let mut venv = Command::new(python());
    venv.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut pip = Command::new(folder.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", REQUIREMENT]);
    if !process::run_logged(&mut venv, LIMIT, &log)?.success()
        || !process::run_logged(&mut pip, LIMIT, &log)?.success()
    {
        let said = process::last_lines(&log);
        return Ok(Err(format!("could not install {REQUIREMENT} with pip; it said:\n    {said}")));
    }
    fs::write(stamp, REQUIREMENT)?;
    Ok(Ok(vng))
}

/// The distribution's Python first: the packages installed by [`super::packages`] are for that one.
fn python() -> &'static str {
    if Path::new("/usr/bin/python3").exists() { "/usr/bin/python3" } else { "python3" }
}

/// An environment whose Python was since removed is there, and does not run.
fn runs(vng: &Path) -> bool {
    process::answer(&vng.to_string_lossy(), &["--version"]).is_some()
}
