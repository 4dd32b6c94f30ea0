//! The table of sizes, offsets and constants, as C source.

use std::fmt::Write as _;

use syn::Type;

use crate::declarations::{Declarations, Structure};
use crate::names;

/// Returns a C file that defines the array that `ABI_ROWS` names; its last row has no name.
pub fn table(declarations: &Declarations) -> String {
    let mut text = String::from(HEAD);
    for structure in &declarations.structures {
        rows_of(declarations, structure, &mut text);
    }
    for one in &declarations.enums {
        let name = &one.name;
        if !["ibv_wc_flags", "ibv_access_flags", "ibv_qp_attr_mask", "ibv_send_flags"]
            .contains(&name.as_str())
        {
            row(&mut text, &format!("signed {name}"), &format!("IS_SIGNED(enum {name})"));
        }
        row(&mut text, &format!("sizeof {name}"), &format!("sizeof(enum {name})"));
        one.constants.iter().for_each(|constant| row(&mut text, constant, constant));
    }
    declarations.constants.iter().for_each(|constant| row(&mut text, constant, constant));
    for function in &declarations.functions {
        let name = &function.name;
        let prototype = names::c_prototype(name, &function.arguments, function.result.as_ref());
        row(
            &mut text,
            &format!("prototype {name}"),
            &compatible(&format!("__typeof__(&{name})"), &prototype),
        );
    }
    text.push_str("    { 0, 0 },\n};\n");
    text
}

const HEAD: &str = "\
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#undef ibv_reg_mr
#undef ibv_query_port
#define IS_SIGNED(type) ((type)-1 < (type)1)
struct abi_row { const char *name; long long value; };
extern const struct abi_row ABI_ROWS[];
const struct abi_row ABI_ROWS[] = {
";

fn rows_of(declarations: &Declarations, structure: &Structure, text: &mut String) {
    let name = &structure.name;
    let of = names::c_structure(name);
    row(text, &format!("sizeof {name}"), &format!("sizeof({of})"));
    row(text, &format!("alignof {name}"), &format!("__alignof__({of})"));
    for (field, field_type) in &structure.fields {
        let c_field = names::c_field(name, field);
        let member = format!("(({of} *)0)->{c_field}");
        let offset = if name == names::ANCHORED.0 {
            format!("offsetof({of}, {}) - offsetof({of}, {c_field})", names::ANCHORED.1)
        } else {
            format!("offsetof({of}, {c_field})")
        };
        row(text, &format!("offsetof {name}.{field}"), &offset);
        row(text, &format!("sizeof {name}.{field}"), &format!("sizeof({member})"));
        if declarations.signed(field_type).is_some() {
            row(text, &format!("signed {name}.{field}"), &format!("IS_SIGNED(__typeof__({member}))"));
        }
        if let Some(expected) = pointer(field_type) {
            row(
                text,
                &format!("type {name}.{field}"),
                &compatible(&format!("__typeof__({member})"), &expected),
            );
        }
    }
}

/// Returns the C type of a field that points to data or to a function that is called.
fn pointer(of: &Type) -> Option<String> {
    if let Some(function) = names::function_pointer(of) {
        let arguments = function.inputs.iter().map(|argument| argument.ty.clone()).collect::<Vec<_>>();
        let result = match &function.output {
            syn::ReturnType::Default => None,
            syn::ReturnType::Type(_, result) => Some(&**result),
        };
        return Some(names::c_prototype("", &arguments, result));
    }
    match of {
        Type::Ptr(_) => names::c_type(of).filter(|c| !c.starts_with("void")),
        _ => None,
    }
}

fn compatible(one: &str, other: &str) -> String {
    format!("__builtin_types_compatible_p({one}, {other})")
}

fn row(text: &mut String, name: &str, value: &str) {
    writeln!(text, "    {{ \"{name}\", (long long)({value}) }},").unwrap();
}
