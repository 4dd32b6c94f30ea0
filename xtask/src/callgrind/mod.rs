//! Programs against the public API of a copy of the workspace, and what callgrind counts when they run. The same
//! program runs against two trees, so that their difference is the libraries' own.

mod profile;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use self::profile::{Lines, costs, lines};
use crate::checkout::Checkout;
use crate::{cargo, process};

/// Longest run under valgrind.
const LIMIT: Duration = Duration::from_secs(400);

/// Program of one file.
pub struct Program<'a> {
    /// Name of its package.
    pub name: &'a str,
    /// Libraries that it uses.
    pub libraries: &'a [&'a str],
    /// Features of these libraries, as the manifest has them: `"a", "b"`.
    pub features: &'a str,
    /// Sources by the age of a tree, youngest first: the first that compiles is taken.
    pub sources: &'a [String],
    /// Profile to build with, `dev` or `release`.
    pub profile: &'a str,
    /// Settings of that profile.
    pub settings: &'a str,
}

impl Program<'_> {
    /// Manifest of the program. rustix must ask libc for the auxiliary vector, because the kernel's own names a vDSO
    /// that valgrind has unmapped. Line tables suffice to name functions.
    fn manifest(&self) -> String {
        let Self { name, profile, settings, features, .. } = self;
        let library =
            |name: &&str| format!("{name} = {{ path = \"../tree/{name}\", features = [{features}] }}\n");
        let libraries: String = self.libraries.iter().map(library).collect();
        format!(
            r#"[package]
name = "{name}"
version = "0.0.0"
edition = "2024"
publish = false

[workspace]

[dependencies]
{libraries}rustix = {{ version = "1", features = ["use-libc-auxv"] }}

[profile.{profile}]
debug = "line-tables-only"
{settings}
"#
        )
    }

    /// Builds the program against `tree`, and returns its path.
    pub fn build(&self, tree: &Checkout) -> Result<PathBuf> {
        let crate_root = tree.root.with_file_name("program");
        fs::create_dir_all(crate_root.join("src"))?;
        fs::write(crate_root.join("Cargo.toml"), self.manifest())?;
        fs::copy(tree.root.join("Cargo.lock"), crate_root.join("Cargo.lock"))?;
        let mut last = String::new();
        for source in self.sources {
            let path = crate_root.join("src/main.rs");
            if fs::read_to_string(&path).ok().as_ref() != Some(source) {
                fs::write(&path, source)?;
            }
            fetch(&crate_root)?;
            let log = crate_root.join("build.log");
            let mut command = cargo::cargo(&["build", "--offline", "--profile", self.profile])?;
            // Otherwise the caller's environment could take the line tables away.
            command.env_remove(format!("CARGO_PROFILE_{}_DEBUG", self.profile.to_uppercase()));
            command.current_dir(&crate_root).env("CARGO_TARGET_DIR", &tree.build);
            if process::run_logged(&mut command, cargo::LIMIT, &log)?.success() {
                let folder = if self.profile == "dev" { "debug" } else { self.profile };
                return Ok(tree.build.join(folder).join(self.name));
            }
            last = fs::read_to_string(&log).unwrap_or_default();
        }
        let name = self.name;
        bail!(
            "the program does not build against {}: mend xtask/src/{name}/program.rs.in\n{last}",
            tree.title
        )
    }
}

/// Downloads the packages of a program, because a build of the workspace fetches none of a feature that is off. Asks
/// the network only where a package is missing.
fn fetch(crate_root: &Path) -> Result<()> {
    let fetch = ["fetch", "--quiet", "--target", "host-tuple"];
    let mut offline = cargo::cargo(&[&fetch[..], &["--offline"]].concat())?;
    let log = crate_root.join("fetch.log");
    if process::run_logged(offline.current_dir(crate_root), cargo::LIMIT, &log)?.success() {
        return Ok(());
    }
    cargo::check(cargo::cargo(&fetch)?.current_dir(crate_root))
}

/// Functions of a program by which a run is counted.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// Pattern of the functions inside which a thread counts; `None` if all threads count from call to call.
    pub inside: Option<&'a str>,
    /// Function after each call of which the counts are dumped and begin anew.
    pub each: &'a str,
    /// Number of such calls.
    pub calls: usize,
}

/// Runs `program` under callgrind, and returns the dump of each counted call.
pub fn run(
    tree: &Checkout,
    program: &Path,
    arguments: &[String],
    Counted { inside, each, calls }: Counted<'_>,
) -> Result<Vec<String>> {
    let folder = tree.root.with_file_name("callgrind");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let out = folder.join("out");
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=callgrind").arg(format!("--dump-after={each}"));
    match inside {
        Some(inside) => valgrind.arg("--collect-atstart=no").arg(format!("--toggle-collect={inside}")),
        None => valgrind.arg(format!("--zero-before={each}")),
    };
    valgrind.args(["--compress-strings=no", "--compress-pos=no", "--fair-sched=try"]);
    valgrind.arg(format!("--callgrind-out-file={}", out.display())).arg(program).args(arguments);
    let log = folder.join("log");
    let status = process::run_logged(&mut valgrind, LIMIT, &log)
        .context("valgrind is needed: install it with `apt-get install valgrind`")?;
    if !status.success() {
        bail!("the program failed under valgrind ({status}):\n    {}", process::last_lines(&log));
    }
    let dump = |call| {
        let path = PathBuf::from(format!("{}.{call}", out.display()));
        fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))
    };
    (1..=calls).map(dump).collect()
}
