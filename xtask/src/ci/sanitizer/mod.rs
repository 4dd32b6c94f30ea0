//! The sanitizers: AddressSanitizer over the tests of the libraries and over the programs, ThreadSanitizer over the
//! software device. What the tests spawn is built the same way. A report of any process is a file, so that a process
//! whose exit status nobody looked at counts too.

mod asan;
mod tsan;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub use self::asan::ASAN;
pub use self::tsan::TSAN;
use crate::beside::Company;
use crate::cargo::{self, Executable};
use crate::soft_roce::Share;
use crate::times::Times;
use crate::{beside, programs, test, workspace};

/// A sanitizer, and what runs under it.
pub struct Sanitizer {
    pub name: &'static str,
    rustflags: &'static str,
    /// Packages and tests of every run.
    regular: &'static [&'static str],
    /// Tests that a soak has besides.
    besides: &'static [&'static str],
    /// Beginnings of the names of tests that are left out.
    left_out: &'static [&'static str],
    /// Whether the README's programs run, too.
    runs_programs: bool,
    /// The variable of the sanitizer's options, and the options.
    options: (&'static str, &'static str),
    /// A file of suppressions, by its content. Only for what is not built with the sanitizer.
    suppressions: Option<&'static str>,
}

const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Flags that choose the features once for all packages, so that nothing is built twice.
const UNITED: [&str; 3] = ["-Zfeature-unification", "--config", "resolver.feature-unification='workspace'"];
/// No other failure ends with this.
const EXIT_CODE: u8 = 97;

impl Sanitizer {
    /// Builds with the sanitizer, runs everything, and looks for reports.
    pub fn run(&self, share: Share) -> Result<()> {
        let reports = self.folder()?.join("reports");
        if reports.exists() {
            fs::remove_dir_all(&reports)?;
        }
        fs::create_dir_all(&reports).with_context(|| format!("cannot create {}", reports.display()))?;
        if let Some(suppressions) = self.suppressions {
            fs::write(reports.with_extension("supp"), suppressions)?;
        }
        // Doctests run elsewhere: each is a program of its own, and building them takes longer than all the rest.
        println!("{}: leaving out `{}`", self.name, self.left_out.join("`, `"));
        let mut times = Times::default();
        let (tests, programs) = times.step(&format!("{}, built", self.name), || self.build(share))?;
        let mut rows = vec![times.step(&format!("{}, tests", self.name), || {
            beside::run_tests("tests", &tests, Company::Others, |command| {
                command.args(self.left_out.iter().flat_map(|name| ["--skip", name]));
                self.instrument(command, &reports);
            })
        })];
        if share == Share::Soak {
            rows.push(beside::run_tests("tests, alone", &tests, Company::Alone, |command| {
                self.instrument(command, &reports)
            }));
        }
        times.step(&format!("{}, programs", self.name), || {
            for program in programs.iter().filter(|program| programs::README.contains(&program.name.as_str()))
            {
                let mut command = program.command();
                self.instrument(&mut command, &reports);
                rows.push(beside::run(&program.name, &mut command));
            }
        });
        println!("\n{}", times.list());
        let result = test::conclude(&rows);
        match print_reports(&reports)? {
            0 => result,
            count => bail!("{count} reports of the sanitizer"),
        }
    }

    /// Builds the tests, and the programs.
    pub fn build(&self, share: Share) -> Result<(Vec<Executable>, Vec<Executable>)> {
        let target = self.folder()?;
        let build = |args: &[&str]| {
            let mut command = cargo::nightly(&[args, &["--target", TRIPLE], &UNITED].concat())?;
            command.env("RUSTFLAGS", self.rustflags).env("CARGO_TARGET_DIR", &target);
            // Suppressions go by the names of functions, those inlined among them.
            if self.suppressions.is_some() {
                command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
            }
            cargo::build(&mut command)
        };
        let besides = if share == Share::Soak { self.besides } else { &[] };
        let mut tests = build(&[&["test", "--no-run"], self.regular, besides].concat())?;
        tests.retain(|built| built.is_test);
        if !self.runs_programs {
            return Ok((tests, Vec::new()));
        }
        // With one of the tests, since what tests alone need has a part in the choice of features.
        let mut args = vec!["build", "--test=driver"];
        args.extend(programs::README.iter().flat_map(|program| ["--bin", program]));
        Ok((tests, build(&args)?))
    }

    /// Where it is built, in a folder of its own.
    fn folder(&self) -> Result<PathBuf> {
        Ok(workspace::target()?.join(self.name))
    }

    /// Lets a program, and whatever it starts, write reports.
    fn instrument(&self, command: &mut Command, reports: &Path) {
        let (variable, options) = self.options;
        let mut options =
            format!("exitcode={EXIT_CODE}:log_path={}:{options}", reports.join("report").display());
        if self.suppressions.is_some() {
            options += &format!(":suppressions={}", reports.with_extension("supp").display());
        }
        command.env(variable, options).env("LSAN_OPTIONS", format!("exitcode={EXIT_CODE}"));
    }
}

fn print_reports(folder: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        println!("{}:\n{}", path.display(), fs::read_to_string(&path).unwrap_or_default());
        count += 1;
    }
    Ok(count)
}
