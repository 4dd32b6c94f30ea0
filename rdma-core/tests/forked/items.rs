//! Public functions, as `public-api.txt` lists them.

use std::collections::BTreeSet;

/// Returns the functions of this crate by their paths without generics, such as `QueuePair::connect`.
pub fn listed() -> BTreeSet<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/public-api.txt");
    let list = std::fs::read_to_string(path).unwrap();
    let items: BTreeSet<_> = list.lines().filter_map(function).collect();
    assert!(items.len() > 200, "{items:?}");
    items
}

/// Returns the function of a line; `None` for other items.
fn function(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub ")?;
    let rest = ["const ", "unsafe "].iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    let (mut depth, mut name) = (0, String::new());
    for sign in rest.strip_prefix("fn ")?.chars() {
        match sign {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth == 0 => break,
            _ if depth == 0 => name.push(sign),
            _ => {}
        }
    }
    let (_, within) = name.split_once("::")?;
    Some(within.replace("::::", "::"))
}
