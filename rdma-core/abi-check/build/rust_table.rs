//! The table of sizes, offsets and constants, as Rust source for our declarations and for rdma-sys.

use std::fmt::Write as _;

use crate::declarations::Declarations;
use crate::names;

/// Returns every row of the C table, with the values of our declarations.
pub fn ours(declarations: &Declarations) -> String {
    let mut text = String::from("&[\n");
    for structure in &declarations.structures {
        let name = &structure.name;
        row(&mut text, &format!("sizeof {name}"), &format!("size_of::<sys::{name}>()"));
        row(&mut text, &format!("alignof {name}"), &format!("align_of::<sys::{name}>()"));
        for (field, field_type) in &structure.fields {
            let offset = offset("sys", name, field, names::ANCHORED.1);
            row(&mut text, &format!("offsetof {name}.{field}"), &offset);
            row(&mut text, &format!("sizeof {name}.{field}"), &size_of_field("sys", name, field));
            if let Some(signed) = declarations.signed(field_type) {
                row(&mut text, &format!("signed {name}.{field}"), &u8::from(signed).to_string());
            }
            row(&mut text, &format!("type {name}.{field}"), "1");
        }
    }
    for one in &declarations.enums {
        let name = &one.name;
        let signed = declarations.signed(&one.repr).unwrap();
        row(&mut text, &format!("signed {name}"), &u8::from(signed).to_string());
        row(&mut text, &format!("sizeof {name}"), &format!("size_of::<sys::{name}>()"));
        one.constants.iter().for_each(|constant| row(&mut text, constant, &format!("sys::{constant}")));
    }
    declarations.constants.iter().for_each(|constant| row(&mut text, constant, &format!("sys::{constant}")));
    for function in &declarations.functions {
        row(&mut text, &format!("prototype {}", function.name), "1");
    }
    text.push_str("]\n");
    text
}

/// Returns the rows that rdma-sys can answer: sizes, offsets and constants of enums.
pub fn rdma_sys(declarations: &Declarations) -> String {
    let mut text = String::from("&[\n");
    for structure in &declarations.structures {
        let name = &structure.name;
        let theirs = names::rdma_sys_structure(name);
        row(&mut text, &format!("sizeof {name}"), &format!("size_of::<rdma_sys::{theirs}>()"));
        row(&mut text, &format!("alignof {name}"), &format!("align_of::<rdma_sys::{theirs}>()"));
        for (field, _) in &structure.fields {
            let their_field = names::rdma_sys_field(name, field);
            let offset = offset("rdma_sys", theirs, their_field, names::ANCHORED.1);
            row(&mut text, &format!("offsetof {name}.{field}"), &offset);
        }
    }
    for one in &declarations.enums {
        for constant in &one.constants {
            row(&mut text, constant, &names::rdma_sys_constant(&one.name, constant));
        }
    }
    text.push_str("]\n");
    text
}

/// Returns the symbols with their versions, for a lookup in the installed library.
pub fn symbols(declarations: &Declarations) -> String {
    let mut text = String::from("&[\n");
    for function in &declarations.functions {
        writeln!(text, "    (c\"{}\", c\"{}\"),", function.name, function.version).unwrap();
    }
    text.push_str("]\n");
    text
}

fn offset(module: &str, structure: &str, field: &str, anchor: &str) -> String {
    let of = |field: &str| format!("offset_of!({module}::{structure}, {field})");
    if structure == names::ANCHORED.0 { format!("({} - {})", of(anchor), of(field)) } else { of(field) }
}

fn size_of_field(module: &str, structure: &str, field: &str) -> String {
    format!("size_of_pointee(|it: *const {module}::{structure}| unsafe {{ &raw const (*it).{field} }})")
}

fn row(text: &mut String, name: &str, value: &str) {
    writeln!(text, "    (\"{name}\", {value} as i64),").unwrap();
}
