//! The page of a demo: one file, which needs no network.

use anyhow::Result;

use super::Record;

/// The page, but for its figures' numbers.
const PAGE: &str = include_str!("page.html");
/// The place of the numbers.
const NUMBERS: &str = "/*NUMBERS*/null";

/// Writes the page.
pub fn write(record: &Record) -> Result<String> {
    // A text that ends a script would end it in the page.
    let numbers = serde_json::to_string(record)?.replace("</", "<\\/");
    Ok(PAGE.replace(NUMBERS, &numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{End, Outcome};

    #[test]
    fn the_page_has_its_numbers_once_and_no_text_ends_its_script() {
        let failed = End::Failed("</script><b>".to_owned());
        let outcome = Outcome {
            at: 0.5,
            ended: 0.9,
            first: Some(0.1),
            between: vec![0.01],
            tokens: vec![1],
            end: failed,
        };
        let (split, single, marks, bytes) = (vec![outcome], Vec::new(), Vec::new(), Vec::new());
        let page = write(&Record { seconds: 1.0, split, single, marks, bytes, equal: 0 }).unwrap();
        assert!(!page.contains(NUMBERS) && page.contains("\"at\":0.5"));
        assert_eq!(page.matches("</script>").count(), PAGE.matches("</script>").count());
        assert!(!page.contains("http:") && !page.contains("https:"), "no network");
    }
}
