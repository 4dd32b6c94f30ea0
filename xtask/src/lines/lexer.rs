//! Lexer behind [`lines`]: knows comments, strings and character literals, and nothing else of Rust. `syn` cannot
//! serve here because it drops plain comments.

use std::mem;

use super::{Comment, Kind, Line};

/// Classifies the lines of `text`.
pub fn lines(text: &str) -> Vec<Line> {
    let mut lexer = Lexer { rest: text, lines: Vec::new(), line: Line::default() };
    while let Some(next) = lexer.rest.chars().next() {
        lexer.step(next);
    }
    if lexer.line.columns > 0 {
        lexer.end_line();
    }
    lexer.lines
}

struct Lexer<'a> {
    rest: &'a str,
    lines: Vec<Line>,
    line: Line,
}

impl<'a> Lexer<'a> {
    fn step(&mut self, next: char) {
        if let Some(comment) = self.rest.strip_prefix("//") {
            self.line_comment(comment);
        } else if self.rest.starts_with("/*") {
            self.block_comment();
        } else if next == '"' {
            self.string();
        } else if next == '\'' {
            self.quote();
        } else if next.is_alphanumeric() || next == '_' {
            self.word();
        } else {
            self.take(next.len_utf8());
        }
    }

    /// Takes `length` bytes of code.
    fn take(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        for letter in taken.chars() {
            match letter {
                '\n' => self.end_line(),
                letter => {
                    self.line.columns += 1;
                    self.line.has_code |= !letter.is_whitespace();
                }
            }
        }
    }

    fn end_line(&mut self) {
        self.lines.push(mem::take(&mut self.line));
    }

    fn line_comment(&mut self, after: &'a str) {
        let length = self.rest.find('\n').unwrap_or(self.rest.len());
        self.line.columns += self.rest[..length].chars().count();
        let (kind, text) = match after.as_bytes() {
            [b'/', b'/', ..] => (Kind::Plain, after),
            [b'/', ..] => (Kind::Outer, &after[1..]),
            [b'!', ..] => (Kind::Inner, &after[1..]),
            _ => (Kind::Plain, after),
        };
        let text = text.split('\n').next().unwrap_or_default();
        self.line.comment = Some(Comment { kind, text: text.trim().to_owned() });
        self.rest = &self.rest[length..];
    }

    /// Takes a block comment with those nested in it. Each of its lines is a comment line.
    fn block_comment(&mut self) {
        let kind = match self.rest.as_bytes() {
            [_, _, b'*', b'*' | b'/', ..] => Kind::Plain,
            [_, _, b'*', ..] => Kind::Outer,
            [_, _, b'!', ..] => Kind::Inner,
            _ => Kind::Plain,
        };
        let mut depth = 0;
        let mut end = 0;
        let bytes = self.rest.as_bytes();
        while end < bytes.len() {
            let step = match &bytes[end..] {
                [b'/', b'*', ..] => {
                    depth += 1;
                    2
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    2
                }
                _ => 1,
            };
            end += step;
            if depth == 0 {
                break;
            }
        }
        let (comment, rest) = self.rest.split_at(end);
        self.rest = rest;
        for (index, text) in comment.split('\n').enumerate() {
            if index > 0 {
                self.end_line();
            }
            self.line.columns += text.chars().count();
            let text = text.trim_matches(|mark: char| mark.is_whitespace() || "/*!".contains(mark));
            self.line.comment = Some(Comment { kind, text: text.to_owned() });
        }
    }

    /// Takes a string from its opening quote.
    fn string(&mut self) {
        let mut escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, letter)| {
            let closes = *letter == '"' && !escaped;
            escaped = *letter == '\\' && !escaped;
            closes
        });
        self.take(end.map_or(self.rest.len(), |(at, _)| at + 1));
    }

    /// Takes a character literal whole, because it may hold a quote; of a lifetime, the mark alone.
    fn quote(&mut self) {
        let mut letters = self.rest.char_indices().skip(1);
        let end = match (letters.next(), letters.next()) {
            (Some((_, '\\')), Some(_)) => letters.find(|(_, letter)| *letter == '\'').map(|(at, _)| at + 1),
            (Some(_), Some((at, '\''))) => Some(at + 1),
            _ => None,
        };
        self.take(end.unwrap_or(1));
    }

    /// Takes a name or number, and with it the raw string that the name introduces.
    fn word(&mut self) {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let length = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, after) = self.rest.split_at(length);
        let hashes = after.len() - after.trim_start_matches('#').len();
        if matches!(word, "r" | "br" | "cr") && after[hashes..].starts_with('"') {
            let opening = length + hashes + 1;
            let closing = format!("\"{}", "#".repeat(hashes));
            let end = self.rest[opening..].find(&closing).map(|at| opening + at + closing.len());
            self.take(end.unwrap_or(self.rest.len()));
        } else {
            self.take(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each line as `(has_code, comment's text)`.
    fn shape(text: &str) -> Vec<(bool, Option<String>)> {
        lines(text)
            .into_iter()
            .map(|line| (line.has_code, line.comment.map(|comment| comment.text)))
            .collect()
    }

    fn only(text: &str) -> Option<Comment> {
        lines(text).remove(0).comment
    }

    #[test]
    fn kinds_are_told_by_their_marks() {
        let kinds = [
            ("// a", Kind::Plain),
            ("/// a", Kind::Outer),
            ("//! a", Kind::Inner),
            ("//// a", Kind::Plain),
            ("/* a */", Kind::Plain),
            ("/** a */", Kind::Outer),
            ("/*! a */", Kind::Inner),
        ];
        for (text, kind) in kinds {
            assert_eq!(only(text).map(|comment| comment.kind), Some(kind), "{text}");
        }
    }

    #[test]
    fn code_and_comment_may_share_a_line() {
        let expected = [(true, Some("b".to_owned())), (false, None), (false, Some("c".to_owned()))];
        assert_eq!(shape("a(); // b\n\n  // c\n"), expected);
    }

    #[test]
    fn strings_and_characters_hold_no_comments() {
        for text in [
            "\"// a\"",
            "\"\\\"// a\"",
            "r\"// a\\\"",
            "r#\"\"// a\"#",
            "br##\"\"# // a\"##",
            "b\"// a\"",
            "('\"', \"// a\")",
            "('\\'', \"// a\")",
            "(b'\"', \"// a\")",
        ] {
            assert_eq!(shape(text), [(true, None)], "{text}");
        }
    }

    #[test]
    fn a_lifetime_opens_no_literal() {
        assert_eq!(shape("&'a str // b"), [(true, Some("b".to_owned()))]);
        assert_eq!(shape("fn f<'a>(_: &'a r#type) {} // b"), [(true, Some("b".to_owned()))]);
    }

    #[test]
    fn lines_of_a_string_are_code_unless_they_are_blank() {
        assert_eq!(shape("\"a\n\n// b\n\""), [(true, None), (false, None), (true, None), (true, None)]);
    }

    #[test]
    fn a_block_comment_ends_where_the_outermost_does() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(shape("/* a /* b */\n * c */ d();\n"), [(false, text("a /* b")), (true, text("c"))]);
    }

    #[test]
    fn columns_are_characters() {
        assert_eq!(lines("// äö\n").remove(0).columns, 5);
    }
}
