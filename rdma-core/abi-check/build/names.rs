//! Names that differ between rdma-core, C and rdma-sys.

use quote::ToTokens;
use syn::Type;

/// Structures without a name in C: our name, the member that holds them, and the name in rdma-sys.
const UNNAMED: [(&str, &str, &str); 6] = [
    ("ibv_async_event_element", "((struct ibv_async_event *)0)->element", "ibv_async_event_element_t"),
    ("ibv_send_wr_wr", "((struct ibv_send_wr *)0)->wr", "wr_t"),
    ("ibv_send_wr_rdma", "((struct ibv_send_wr *)0)->wr.rdma", "rdma_t"),
    ("ibv_send_wr_atomic", "((struct ibv_send_wr *)0)->wr.atomic", "atomic_t"),
    ("ibv_send_wr_ud", "((struct ibv_send_wr *)0)->wr.ud", "ud_t"),
    ("ibv_send_wr_bind_mw", "((struct ibv_send_wr *)0)->bind_mw", "bind_mw_t"),
];

/// The structure that grows at its front, so only distances from its last field are stable.
pub const ANCHORED: (&str, &str) = ("verbs_context", "context");

/// Functions whose C type is not the literal translation of ours: the type in the header.
const PROTOTYPES: [(&str, &str); 1] = [
    // The header declares an older structure, which is a prefix of ours.
    ("ibv_query_port", "int (*)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *)"),
];

/// Returns the C type of one of our structures.
pub fn c_structure(name: &str) -> String {
    match UNNAMED.iter().find(|unnamed| unnamed.0 == name) {
        Some(unnamed) => format!("__typeof__({})", unnamed.1),
        None if name == "ibv_gid" => "union ibv_gid".to_owned(),
        None => format!("struct {name}"),
    }
}

/// Returns the C name of a field.
pub fn c_field(structure: &str, field: &str) -> String {
    match (structure, field) {
        ("ibv_send_wr", "qp_type") => "qp_type.xrc.remote_srqn".to_owned(),
        _ => field.trim_start_matches("r#").to_owned(),
    }
}

/// Returns the path in rdma-sys of one of our structures.
pub fn rdma_sys_structure(name: &str) -> &str {
    UNNAMED.iter().find(|unnamed| unnamed.0 == name).map_or(name, |unnamed| unnamed.2)
}

/// Returns the name in rdma-sys of a field.
pub fn rdma_sys_field<'a>(structure: &str, field: &'a str) -> &'a str {
    match (structure, field) {
        ("ibv_wc" | "ibv_send_wr", "imm_data") => "imm_data_invalidated_rkey_union",
        ("ibv_send_wr", "bind_mw") => "bind_mw_tso_union",
        ("verbs_context", "r#priv") => "priv_",
        _ => field,
    }
}

/// Returns the expression in rdma-sys for a constant of an enum.
pub fn rdma_sys_constant(of: &str, constant: &str) -> String {
    match of {
        "ibv_wc_flags" | "ibv_access_flags" | "ibv_qp_attr_mask" | "ibv_send_flags" => {
            format!("rdma_sys::{of}::{constant}.0")
        }
        "ibv_gid_type" => format!("rdma_sys::{constant}"),
        _ => format!("rdma_sys::{of}::{constant}"),
    }
}

/// Returns the C type of one of ours; `None` where only size and sign are compared.
pub fn c_type(of: &Type) -> Option<String> {
    match of {
        Type::Ptr(pointer) => {
            let constant = if pointer.const_token.is_some() { "const " } else { "" };
            Some(format!("{constant}{} *", c_type(&pointer.elem)?))
        }
        Type::Path(path) => {
            let name = path.to_token_stream().to_string();
            Some(match name.as_str() {
                "c_void" => "void".to_owned(),
                "c_int" => "int".to_owned(),
                "c_uint" => "unsigned int".to_owned(),
                "u8" | "u16" | "u32" | "u64" => format!("uint{}_t", &name[1..]),
                "usize" | "size_t" => "size_t".to_owned(),
                "ssize_t" => "ssize_t".to_owned(),
                _ if name.starts_with("ibv_") => c_structure(&name),
                _ => return None,
            })
        }
        _ => None,
    }
}

/// Returns the C type of a pointer to one of our exported functions.
pub fn c_prototype(name: &str, arguments: &[Type], result: Option<&Type>) -> String {
    if let Some(known) = PROTOTYPES.iter().find(|known| known.0 == name) {
        return known.1.to_owned();
    }
    let translate = |of: &Type| c_type(of).unwrap_or_else(|| panic!("{name}: {}", of.to_token_stream()));
    let arguments = arguments.iter().map(translate).collect::<Vec<_>>().join(", ");
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments };
    format!("{} (*)({arguments})", result.map_or("void".to_owned(), translate))
}

/// Returns the function type inside of `Option<unsafe extern "C" fn(…) -> …>`; `None` for other types.
pub fn function_pointer(of: &Type) -> Option<&syn::TypeBareFn> {
    let Type::Path(path) = of else { return None };
    let last = path.path.segments.last().filter(|segment| segment.ident == "Option")?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        syn::GenericArgument::Type(Type::BareFn(function)) => Some(function),
        _ => None,
    }
}
