//! The man page of a command.

use clap::Command;
use clap::builder::Resettable;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Makes the page of `command`, which is built, and belongs to `source`: a program with its version.
pub fn page(command: &Command, source: String) -> String {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    // clap_mangen would fill the lines of this text to paragraphs, and most of them are tables and examples.
    let man = Man::new(command.clone().after_help(Resettable::Reset)).source(source);
    let mut page = Vec::new();
    let written = man.render(&mut page);
    debug_assert!(written.is_ok(), "a Vec takes every write");
    String::from_utf8_lossy(&page).into_owned() + &sections(&after).to_roff()
}

/// The text behind the options, as sections: a title and a table below it are one of that name.
fn sections(text: &str) -> Roff {
    let mut page = Roff::new();
    let mut name = None;
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let mut lines = paragraph.lines().peekable();
        let is_table = paragraph.lines().skip(1).all(|line| line.starts_with(' '));
        let titled = lines.next_if(|line| is_table && line.ends_with(':'));
        let title = titled.map_or("NOTES".to_owned(), |line| line.trim_end_matches(':').to_uppercase());
        let again = name.as_ref() == Some(&title);
        page.control(if again { "PP" } else { "SH" }, (!again).then_some(title.as_str()));
        page.control("nf", []);
        for line in lines {
            page.text([roman(line)]);
        }
        page.control("fi", []);
        name = Some(title);
    }
    page
}
