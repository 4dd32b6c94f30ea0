//! Programs beside each other, where most of them wait most of the time: the tests that cargo built, above all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo::{Executable, LIMIT};
use crate::tally::{Counts, Row};
use crate::{process, workspace};

/// Test executables that measure times or the use of a processor, or that stop and kill at moments of their choice
/// (`kv` after some packets, and heartbeats are packets): nothing may run beside these.
const ALONE: [&str; 9] =
    ["busy", "chaos", "hosts", "idle", "kill", "killed", "killed_ranks", "kv", "liveness"];
/// Executables of [`ALONE`] that wait nearly all the time: they run beside each other.
const WAITING: [&str; 3] = ["idle", "killed", "killed_ranks"];
/// Test executables that take longest. They start first, so that the others need not wait for them at the end.
const FIRST: &[&str] = &[
    "etcd",
    "demo",
    "jobs",
    "rdma_collective",
    "collectives",
    "twins",
    "mapped",
    "ui",
    "soft",
    "transfers",
    "ring_collectives",
    "strangers",
    "revocation",
];

/// Does `work` with each of `items`, `width` at a time; what came of it is in their order.
pub fn each<T: Sync, R: Send>(items: &[T], width: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..width {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(index) else { break };
                    let result = work(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// How many processors there are.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Test executables by what may run beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Company {
    /// Nothing: one executable at a time.
    Alone,
    /// Others of this kind, and work of low priority.
    Others,
}

/// Runs the tests among `built` that bear such company, as cargo does, with what `prepare` adds to each; the row of
/// all of them.
pub fn run_tests(
    suite: &str,
    built: &[Executable],
    company: Company,
    prepare: impl Fn(&mut Command) + Sync,
) -> Row {
    let is = |names: &[&str], test: &Executable| names.contains(&test.name.as_str());
    let is_alone = company == Company::Alone;
    let mut tests: Vec<_> =
        built.iter().filter(|built| built.is_test && is(&ALONE, built) == is_alone).collect();
    tests.sort_by_key(|test| !is(FIRST, test));
    let (waiting, others): (Vec<_>, Vec<_>) = tests.into_iter().partition(|test| is(&WAITING, test));
    let work = |test: &&Executable| {
        let mut command = test.command();
        prepare(&mut command);
        run(&test.title(), &mut command)
    };
    let mut rows = each(&waiting, WAITING.len(), work);
    rows.extend(each(&others, if is_alone { 1 } else { processors() + 1 }, work));
    let failed = rows.iter().filter(|row| row.counts.failed > 0).map(|row| row.suite.as_str());
    let failed = failed.collect::<Vec<_>>().join(", ");
    Row {
        suite: suite.to_owned(),
        counts: rows.iter().map(|row| row.counts).fold(Counts::default(), Counts::plus),
        note: if failed.is_empty() { failed } else { format!("failed: {failed}") },
    }
}

/// Runs a suite that others may run beside: what it prints is shown when it has ended.
pub fn run(suite: &str, command: &mut Command) -> Row {
    run_apart(suite, command).unwrap_or_else(|error| Row {
        suite: suite.to_owned(),
        counts: Counts::ONE_FAILED,
        note: format!("{error:#}"),
    })
}

fn run_apart(suite: &str, command: &mut Command) -> Result<Row> {
    let folder = workspace::target()?.join("test-logs");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().display();
    let name = format!("{suite} {program}");
    // Two files, since what goes to the one may stand in the middle of a line of the other, which is read.
    let logs = ["out", "err"].map(|kind| folder.join(format!("{name}.{kind}")));
    command.stdout(File::create(&logs[0])?).stderr(File::create(&logs[1])?);
    let started = Instant::now();
    let status = process::run(command, LIMIT);
    let [out, err] = logs.map(|log| String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned());
    let took = started.elapsed().as_secs_f64();
    writeln!(io::stdout().lock(), "--- {suite}: {took:.1} s\n{out}{err}")?;
    let status = status?;
    let note = if status.success() { String::new() } else { format!("ended with {status}") };
    let counts = Counts::of_run(&out, status.success());
    Ok(Row { suite: suite.to_owned(), counts, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_each_is_in_their_order_though_the_first_ends_last() {
        let over = AtomicUsize::new(0);
        let results = each(&[0, 1, 2, 3], 2, |item| {
            while *item == 0 && over.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            over.fetch_add(1, Ordering::Relaxed);
            item * 10
        });
        assert_eq!(results, [0, 10, 20, 30]);
    }

    #[test]
    fn a_program_that_fails_or_is_not_there_is_a_failure() {
        let failed = run("false", &mut Command::new("false"));
        assert_eq!(failed.counts, Counts::ONE_FAILED);
        let absent = run("absent", &mut Command::new("/no/such/program"));
        assert_eq!(absent.counts, Counts::ONE_FAILED);
        assert!(absent.note.contains("/no/such/program"), "{}", absent.note);
    }
}
