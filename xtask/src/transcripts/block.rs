//! The transcripts of a Markdown file: `console` blocks of commands (`$ …`) and of what they print.

use anyhow::{Result, bail};

/// How the documents name a program that a reader builds first; the check runs the one that is built.
const BY_CARGO: &str = "cargo run --release --bin ";
/// Likewise of the examples of a crate.
const EXAMPLE_BY_CARGO: &str = "cargo run -p ";

/// A `console` block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// Line of its opening fence, from 1.
    pub line: usize,
    /// Commands of the block, in their order.
    pub entries: Vec<Entry>,
}

/// A command, and the lines that the document shows below it.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Line of the command, from 1.
    pub line: usize,
    /// The command as the check runs it.
    pub command: String,
    /// The lines that are to be printed; empty where the document shows none.
    pub expected: Vec<String>,
}

/// Finds the `console` blocks of `text`.
///
/// # Errors
///
/// A block that is not closed, or that begins with something else than a command.
pub fn find(text: &str) -> Result<Vec<Block>> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line.trim() != "```console" {
            continue;
        }
        let mut block = Block { line: index + 1, entries: Vec::new() };
        loop {
            let Some((index, line)) = lines.next() else {
                bail!("line {}: a block without an end", block.line)
            };
            if line.trim() == "```" {
                break;
            }
            match (line.strip_prefix("$ "), block.entries.last_mut()) {
                (Some(command), _) => {
                    block.entries.push(Entry {
                        line: index + 1,
                        command: runnable(command),
                        expected: Vec::new(),
                    });
                }
                (None, Some(entry)) => entry.expected.push(line.to_owned()),
                // `hostA$ …`: commands of several hosts, which no check can run.
                (None, None) if line.contains("$ ") => {}
                (None, None) => bail!("line {}: output without a command; begin it with `$ `", index + 1),
            }
        }
        blocks.push(block);
    }
    Ok(blocks)
}

/// The command without its comment, with the programs that are built in place of those that cargo would build.
fn runnable(command: &str) -> String {
    let command = command.split("  #").next().unwrap_or_default().trim();
    let (command, server) = match command.strip_suffix('&') {
        Some(command) => (command.trim_end(), " &"),
        None => (command, ""),
    };
    let run = if let Some(at) = command.find(BY_CARGO) {
        let (before, rest) = command.split_at(at);
        format!("{before}{}", rest[BY_CARGO.len()..].replacen(" -- ", " ", 1))
    } else if let Some((_, name)) =
        command.strip_prefix(EXAMPLE_BY_CARGO).and_then(|rest| rest.split_once(" --example "))
    {
        format!("examples/{name}")
    } else {
        command.to_owned()
    };
    // An example stands in a folder beside the programs, which PATH does not search.
    let run = if run.starts_with("examples/") { format!("\"${{PATH%%:*}}/{run}\"") } else { run };
    run + server
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_with_what_they_print() {
        let text = "text\n```console\n$ cargo run --release --bin a -- -n 1  # why\none\n$ b &\n```\n```text\n$ c\n```\n";
        let entry = |line, command: &str, expected: &[&str]| Entry {
            line,
            command: command.to_owned(),
            expected: expected.iter().map(|line| (*line).to_owned()).collect(),
        };
        let expected = Block { line: 2, entries: vec![entry(3, "a -n 1", &["one"]), entry(5, "b &", &[])] };
        assert_eq!(find(text).unwrap(), [expected]);
        assert_eq!(runnable("X=1 cargo run --release --bin a"), "X=1 a");
        assert_eq!(runnable("cargo run -p c --example e"), "\"${PATH%%:*}/examples/e\"");
    }

    #[test]
    fn a_block_that_is_no_transcript_is_refused() {
        assert!(find("```console\noutput\n```\n").is_err());
        assert!(find("```console\n$ a\n").is_err());
        assert!(find("```console\nhostA$ a\n```\n").unwrap()[0].entries.is_empty());
    }
}
