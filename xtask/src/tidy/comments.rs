//! Rules for the comments of Rust source: how they begin, what a `SAFETY:` argues, how wide they are. [`rust`]
//! measures the code; this file never looks at it.
//!
//! [`rust`]: super::rust

use std::fmt;

use super::Finding;
use crate::lines::{self, Block};

/// Words that name nothing, so a reader who sees the comment alone learns nothing from the sentence they open.
const BARE: [&str; 11] =
    ["what", "who", "that", "those", "it", "its", "of", "one", "the same", "whose", "which"];
/// Words of which an argument needs at least one.
const ARGUES: [&str; 6] = ["because", "so", "since", "only", "must", "never"];
/// Words that leave the argument to another comment, which the next edit may move or change.
const REFERS: [&str; 3] = ["as above", "the same", "same as"];
/// Forms of a comment that says nothing but where to read.
const POINTERS: [&str; 6] = [
    "see the module",
    "see this module",
    "see the module's documentation",
    "see the module documentation",
    "see the module's header",
    "see the module docs",
];
/// Widest line with a comment, in characters. rustfmt keeps code within 110 and never touches comments.
const COLUMNS_MAX: usize = 120;

/// Rule of this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A comment or a paragraph of it begins with a bare word.
    Beginning,
    /// A comment only points at the module.
    Pointer,
    /// A `SAFETY:` refers to another comment.
    SafetyRefers,
    /// A `SAFETY:` gives no reason.
    SafetyArgues,
    /// A comment's line is too wide.
    Width,
}

impl Rule {
    /// Every rule, in the order of reports.
    pub const ALL: [Rule; 5] =
        [Rule::Beginning, Rule::Pointer, Rule::SafetyRefers, Rule::SafetyArgues, Rule::Width];
}

impl fmt::Display for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Rule::Beginning => "bare beginnings",
            Rule::Pointer => "mere pointers",
            Rule::SafetyRefers => "SAFETY by reference",
            Rule::SafetyArgues => "SAFETY without a reason",
            Rule::Width => "wide comment lines",
        })
    }
}

/// Outcome for one file.
#[derive(Debug, Default)]
pub struct Checked {
    /// Blocks of comments in the file.
    pub comments: usize,
    /// `SAFETY:` comments among them.
    pub safety: usize,
    /// Findings with the rule that each breaks.
    pub findings: Vec<(Rule, Finding)>,
}

/// Checks all comments of one file.
pub fn check(path: &str, text: &str) -> Checked {
    let lines = lines::lines(text);
    let mut checked = Checked::default();
    let mut add = |rule, line, message: String| {
        checked.findings.push((rule, Finding { path: path.to_owned(), line, message }));
    };
    for (index, line) in lines.iter().enumerate() {
        if line.comment.is_some() && line.columns > COLUMNS_MAX {
            let message = format!("{} columns with a comment, {COLUMNS_MAX} at most: wrap it", line.columns);
            add(Rule::Width, index + 1, message);
        }
    }
    let blocks = lines::blocks(&lines);
    checked.comments = blocks.len();
    for block in blocks {
        for (line, word) in bare_beginnings(&block) {
            add(Rule::Beginning, line, format!("begins with a bare `{word}`: name the thing first"));
        }
        if is_pointer(&block) {
            add(Rule::Pointer, block.line, "says only where to read: say what the item is".to_owned());
        }
        for (line, argument) in safety(&block) {
            checked.safety += 1;
            if let Some(words) = REFERS.iter().find(|words| contains(&argument, words)) {
                let message = format!("SAFETY says `{words}`: name the invariant here, in full");
                add(Rule::SafetyRefers, line, message);
            }
            if !ARGUES.iter().any(|word| contains(&argument, word)) {
                let message = format!("SAFETY gives no reason: it has none of {}", ARGUES.join(", "));
                add(Rule::SafetyArgues, line, message);
            }
        }
    }
    checked.findings.sort_by_key(|(_, finding)| finding.line);
    checked
}

/// Lines that begin a paragraph with a bare word, code examples left out.
fn bare_beginnings(block: &Block<'_>) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    let (mut begins, mut in_code) = (true, false);
    for (line, text) in (block.line..).zip(&block.texts) {
        if text.starts_with("```") {
            in_code = !in_code;
            begins = false;
        } else if text.is_empty() {
            begins = true;
        } else {
            if begins && !in_code {
                found.extend(bare_word(text).map(|word| (line, word)));
            }
            begins = false;
        }
    }
    found
}

/// Bare word that `text` begins with, behind marks of markdown. A name in backquotes is no word.
fn bare_word(text: &str) -> Option<&'static str> {
    let is_mark = |letter: char| letter.is_whitespace() || "*_#>-+|[(\"'".contains(letter);
    let text = text.trim_start_matches(is_mark).to_lowercase();
    BARE.into_iter().find(|word| {
        let after = text.strip_prefix(word).map(|after| after.chars().next());
        after.is_some_and(|next| !next.is_some_and(is_word))
    })
}

/// Whether the whole comment is a pointer to the module.
fn is_pointer(block: &Block<'_>) -> bool {
    let text = block.texts.join(" ").to_lowercase();
    POINTERS.contains(&text.trim_end_matches(['.', ' ']))
}

/// Arguments of a block, each from `SAFETY:` to the next one or to the end, in lower case on one line.
fn safety(block: &Block<'_>) -> Vec<(usize, String)> {
    let mut arguments: Vec<(usize, String)> = Vec::new();
    for (line, text) in (block.line..).zip(&block.texts) {
        let text = text.to_lowercase();
        if text.starts_with("safety:") {
            arguments.push((line, text));
        } else if let Some((_, argument)) = arguments.last_mut() {
            argument.push(' ');
            argument.push_str(&text);
        }
    }
    arguments
}

/// Whether `text` has `words` as whole words.
fn contains(text: &str, words: &str) -> bool {
    text.match_indices(words).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + words.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(Rule, usize)> {
        check("a.rs", text).findings.into_iter().map(|(rule, finding)| (rule, finding.line)).collect()
    }

    #[test]
    fn every_bare_word_is_found_in_every_kind_of_comment() {
        for word in BARE {
            for text in [format!("//! {word} is."), format!("/// {word}: x"), format!("let a = 1; // {word}")]
            {
                assert_eq!(found(&text), [(Rule::Beginning, 1)], "{text}");
                assert_eq!(found(&text.to_uppercase()), [(Rule::Beginning, 1)], "{text}");
            }
        }
    }

    #[test]
    fn a_word_that_only_starts_like_a_bare_one_is_none() {
        for text in
            ["/// Items.", "// Offset of it.", "// `It` of the macro.", "/// There is one.", "// Ones."]
        {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn marks_of_markdown_are_looked_behind() {
        for text in ["/// - It is.", "/// **One** lane.", "/// # Which", "/// [The same](x)", "// It's late."]
        {
            assert_eq!(found(text), [(Rule::Beginning, 1)], "{text}");
        }
    }

    #[test]
    fn each_paragraph_begins_anew_and_no_other_line_does() {
        let text =
            "/// A lane.\n/// It is one.\n///\n/// It ends.\n/// Of course.\nfn f() {}\n// That one.\n";
        assert_eq!(found(text), [(Rule::Beginning, 4), (Rule::Beginning, 7)]);
        assert_eq!(found("/// A lane.\n// It is plain.\n"), [(Rule::Beginning, 2)]);
    }

    #[test]
    fn examples_are_code() {
        assert_eq!(
            found("/// Runs.\n///\n/// ```\n///\n/// it();\n/// ```\n///\n/// It ran.\n"),
            [(Rule::Beginning, 8)]
        );
    }

    #[test]
    fn a_mere_pointer_is_found() {
        assert_eq!(found("/// See the module.\n"), [(Rule::Pointer, 1)]);
        assert_eq!(found("// see the module's\n// documentation\n"), [(Rule::Pointer, 1)]);
        assert_eq!(found("/// See the module. Zeroed memory is an idle slot.\n"), []);
    }

    #[test]
    fn a_safety_comment_argues_in_its_own_words() {
        assert_eq!(found("// SAFETY: as above, because it must.\n"), [(Rule::SafetyRefers, 1)]);
        assert_eq!(found("// SAFETY: only\n// the same.\n"), [(Rule::SafetyRefers, 1)]);
        assert_eq!(found("// SAFETY: the slot is ours, also by solitude.\n"), [(Rule::SafetyArgues, 1)]);
        assert_eq!(found("// SAFETY: same as f\n"), [(Rule::SafetyRefers, 1), (Rule::SafetyArgues, 1)]);
        assert_eq!(found("// Aligned.\n// SAFETY: the slot has one writer,\n// so no store races.\n"), []);
        assert_eq!(check("a.rs", "// SAFETY: so.\nx();\n// SAFETY: so.\n").safety, 2);
    }

    #[test]
    fn comments_have_a_widest_line_and_strings_have_none() {
        let fits = format!("// {}\n", "ä".repeat(COLUMNS_MAX - 3));
        assert_eq!(found(&fits), []);
        assert_eq!(found(&format!("x();\n /{fits}")), [(Rule::Width, 2)]);
        assert_eq!(found(&format!("const A: &str = \"{}\";\n", "//".repeat(COLUMNS_MAX))), []);
    }
}
