//! Figures of the comments: lines of documentation and of plain comments, words, and reasons given.

use super::source::{Source, Without};
use crate::lines::Kind;

/// Rule of the figures in this file. Comments of tests explain tests, so neither they nor the tests' code count.
const WITHOUT: Without = Without::TestModules;

/// Comments of some files, beside their code.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Prose {
    /// Lines of code.
    pub code: usize,
    /// Lines of `///` and `//!`, empty ones included.
    pub docs: usize,
    /// Lines of `//`, behind code or alone.
    pub plain: usize,
    /// Words of all comments.
    pub words: usize,
    /// Words among them that are "because".
    pub because: usize,
}

/// Sums over `sources`.
pub fn sum<'a>(sources: impl Iterator<Item = &'a Source>) -> Prose {
    let mut prose = Prose::default();
    for line in sources.flat_map(|source| source.lines(WITHOUT)) {
        prose.code += usize::from(line.has_code);
        let Some(comment) = &line.comment else { continue };
        match comment.kind {
            Kind::Plain => prose.plain += 1,
            Kind::Outer | Kind::Inner => prose.docs += 1,
        }
        let words = comment.text.split(|letter: char| !letter.is_alphanumeric() && letter != '\'');
        for word in words.filter(|word| !word.is_empty()) {
            prose.words += 1;
            prose.because += usize::from(word.eq_ignore_ascii_case("because"));
        }
    }
    prose
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::count::source;

    #[test]
    fn docs_and_plain_comments_are_counted_apart_and_tests_not_at_all() {
        let text = "//! Header.\n\n/// Doc, because it's so.\nfn f() {} // Why.\n#[cfg(test)]\nmod tests {\n// Because.\n}\n";
        let files = [("a/src/lib.rs".to_owned(), text.to_owned())].into();
        let prose = sum(source::parse(&files, &["a/src/"]).iter());
        assert_eq!(prose, Prose { code: 1, docs: 2, plain: 1, words: 6, because: 1 });
    }
}
