//! Splits Rust source into lines that carry code, comments, both or neither. `tidy` judges the comments, `count`
//! counts the lines; both see the same comments because both read them here. A string that looks like a comment is
//! code.

mod lexer;

pub use lexer::lines;

/// Kind of a comment. Two neighbouring comment lines belong together only if their kinds are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `// …` and `/* … */`.
    Plain,
    /// `/// …` and `/** … */`: documents the item below.
    Outer,
    /// `//! …` and `/*! … */`: documents the module or crate around.
    Inner,
}

/// Share of a comment that lies on one line, without its marks and outer blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// How rustdoc takes the comment.
    pub kind: Kind,
    /// Text after `//`, `///` or `//!`, trimmed.
    pub text: String,
}

/// Line of a source file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Whether anything but blanks and comments is on the line.
    pub has_code: bool,
    /// Comment on the line, if any.
    pub comment: Option<Comment>,
    /// Characters of the line, blanks included.
    pub columns: usize,
}

/// Comment of one kind on neighbouring lines, or the comment behind the code of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block<'a> {
    /// Number of the first line, from 1.
    pub line: usize,
    /// How rustdoc takes the comment.
    pub kind: Kind,
    /// Text of each line, trimmed.
    pub texts: Vec<&'a str>,
}

/// Groups the comments of a file into blocks, in their order.
pub fn blocks(lines: &[Line]) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    // Only a comment without code before it can be carried on by the next line.
    let mut open = false;
    for (index, line) in lines.iter().enumerate() {
        let Some(comment) = &line.comment else {
            open = false;
            continue;
        };
        match blocks.last_mut() {
            Some(last) if open && !line.has_code && last.kind == comment.kind => {
                last.texts.push(&comment.text);
            }
            _ => blocks.push(Block { line: index + 1, kind: comment.kind, texts: vec![&comment.text] }),
        }
        open = !line.has_code;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_comments_of_one_kind_are_one_block() {
        let text = "//! a\n//! b\n\n/// c\n// d\n// e\nlet x = 1; // f\n// g\n";
        let lines = lines(text);
        let found: Vec<_> = blocks(&lines).into_iter().map(|block| (block.line, block.texts)).collect();
        let expected =
            [(1, vec!["a", "b"]), (4, vec!["c"]), (5, vec!["d", "e"]), (7, vec!["f"]), (8, vec!["g"])];
        assert_eq!(found, expected);
    }
}
