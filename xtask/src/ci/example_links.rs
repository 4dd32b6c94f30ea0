//! Finds the public items that a reader of the docs cannot see in use: without an example, and without a link.
//!
//! An item counts as shown when its docs have a code block or a link, or when an item within it has a code block. A
//! method is shown by its type. rustdoc checks by itself that links lead somewhere and that examples run.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// The paths of all public items in rustdoc's JSON that have neither example nor link.
pub fn missing(rustdoc: &Value) -> Vec<String> {
    let Some(index) = rustdoc["index"].as_object() else { return Vec::new() };
    let mut walk = Walk { index, seen: BTreeSet::new(), missing: Vec::new() };
    walk.item(&rustdoc["root"], "");
    walk.missing
}

struct Walk<'a> {
    index: &'a Map<String, Value>,
    /// Items that were looked at, because a re-export leads to an item again.
    seen: BTreeSet<String>,
    missing: Vec<String>,
}

impl<'a> Walk<'a> {
    fn item(&mut self, id: &Value, parent: &str) {
        let Some((item, kind, inner)) = find(self.index, id) else { return };
        if kind == "use" {
            return self.item(&inner["id"], parent);
        }
        if item["crate_id"] != 0 || !self.seen.insert(id.to_string()) {
            return;
        }
        let path = format!("{parent}::{}", item["name"].as_str().unwrap_or_default());
        if kind == "module" {
            for child in items(inner) {
                self.item(child, &path);
            }
        } else if !is_shown(item) && !self.children(inner).any(has_example) {
            self.missing.push(path.trim_start_matches("::").to_owned());
        }
    }

    /// Methods of a type or a trait.
    fn children(&self, inner: &'a Value) -> impl Iterator<Item = &'a Value> {
        let index = self.index;
        let own = inner["impls"].as_array().into_iter().flatten();
        let own = own.filter_map(|id| find(index, id)).filter(|(.., block)| block["trait"].is_null());
        let methods = own.flat_map(|(.., block)| items(block)).chain(items(inner));
        methods.filter_map(|id| Some(find(index, id)?.0))
    }
}

fn items(inner: &Value) -> impl Iterator<Item = &Value> {
    inner["items"].as_array().into_iter().flatten()
}

/// An item with its kind and what that kind has.
fn find<'a>(index: &'a Map<String, Value>, id: &Value) -> Option<(&'a Value, &'a str, &'a Value)> {
    let item = index.get(&id.to_string())?;
    let (kind, inner) = item["inner"].as_object()?.iter().next()?;
    Some((item, kind, inner))
}

fn has_example(item: &Value) -> bool {
    item["docs"].as_str().is_some_and(|docs| docs.contains("```"))
}

fn is_shown(item: &Value) -> bool {
    let has_link = |docs: &str| docs.contains("[`") || docs.contains("](");
    has_example(item) || item["docs"].as_str().is_some_and(has_link)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_item_without_example_and_link_is_found() {
        let structure = |name: &str, docs: &str, impls: Value| json!({"crate_id": 0, "name": name, "docs": docs, "inner": {"struct": {"impls": impls}}});
        let rustdoc = json!({"root": 0, "index": {
            "0": {"crate_id": 0, "name": "c", "inner": {"module": {"items": [1, 2, 3, 4]}}},
            "1": structure("Bare", "Words alone.", json!([])),
            "2": structure("Linked", "Raised by [`f`].", json!([])),
            "3": structure("Used", "Words alone.", json!([5])),
            "4": {"crate_id": 0, "name": null, "docs": null, "inner": {"use": {"id": 1}}},
            "5": {"crate_id": 0, "name": null, "docs": null, "inner": {"impl": {"trait": null, "items": [6]}}},
            "6": {"crate_id": 0, "name": "new", "docs": "```\nUsed::new();\n```", "inner": {"function": {}}},
        }});
        assert_eq!(missing(&rustdoc), ["c::Bare"]);
    }
}
