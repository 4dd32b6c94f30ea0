//! Parser of rdma-core's own declarations, from their Rust source.

use quote::ToTokens;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Fields, Ident, Item, LitStr, Token, Type, braced, token};

/// All structures, enums, constants and functions that rdma-core declares.
#[derive(Default)]
pub struct Declarations {
    pub structures: Vec<Structure>,
    pub enums: Vec<Enum>,
    /// Constants outside of an enum.
    pub constants: Vec<String>,
    pub functions: Vec<Function>,
}

/// A `#[repr(C)]` structure or union.
pub struct Structure {
    pub name: String,
    pub fields: Vec<(String, Type)>,
}

/// A C enum: its name, its integer type and its constants.
pub struct Enum {
    pub name: String,
    pub repr: Type,
    pub constants: Vec<String>,
}

/// An exported function.
pub struct Function {
    pub name: String,
    pub version: String,
    pub arguments: Vec<Type>,
    pub result: Option<Type>,
}

impl Declarations {
    /// Adds the declarations of one source file.
    pub fn read(&mut self, source: &str) {
        for item in syn::parse_file(source).unwrap().items {
            match item {
                Item::Struct(item) => {
                    let Fields::Named(fields) = item.fields else {
                        panic!("{} has unnamed fields", item.ident)
                    };
                    self.structure(item.ident, fields.named);
                }
                Item::Union(item) => self.structure(item.ident, item.fields.named),
                Item::Const(item) => self.constants.push(item.ident.to_string()),
                Item::Macro(item) => {
                    let tokens = item.mac.tokens.clone();
                    match item.mac.path.to_token_stream().to_string().as_str() {
                        "c_enum" => self.enums.extend(repeated::<Enum>.parse2(tokens).unwrap()),
                        "symbols" => {
                            let groups = repeated::<Group>.parse2(tokens).unwrap();
                            self.functions.extend(groups.into_iter().flat_map(|group| group.0));
                        }
                        "macro_rules" | "zeroable" | "opaque" => {}
                        other => panic!("an unknown macro {other}! would escape the check"),
                    }
                }
                Item::Type(_) | Item::Use(_) => {}
                other => panic!("unexpected item: {}", other.to_token_stream()),
            }
        }
    }

    /// Fails when the parser found fewer declarations than there surely are.
    pub fn check_plausible(&self) {
        let numbers: usize = self.enums.iter().map(|one| one.constants.len()).sum();
        let fields: usize = self.structures.iter().map(|one| one.fields.len()).sum();
        assert!(self.structures.len() >= 20 && fields >= 200, "{fields} fields");
        assert!(numbers >= 80 && !self.constants.is_empty(), "{numbers} numbers");
        assert!(self.functions.len() >= 20, "{} functions", self.functions.len());
    }

    /// Returns whether values of this type are signed; `None` for types that are no integers.
    pub fn signed(&self, of: &Type) -> Option<bool> {
        let name = of.to_token_stream().to_string();
        match name.as_str() {
            "c_int" | "i32" | "ssize_t" => Some(true),
            "c_uint" | "u8" | "u16" | "u32" | "u64" | "size_t" | "usize" => Some(false),
            _ => self.enums.iter().find(|one| one.name == name).and_then(|one| self.signed(&one.repr)),
        }
    }

    fn structure(&mut self, name: Ident, fields: impl IntoIterator<Item = syn::Field>) {
        let fields =
            fields.into_iter().map(|field| (field.ident.unwrap().to_string(), field.ty)).collect::<Vec<_>>();
        self.structures.push(Structure { name: name.to_string(), fields });
    }
}

fn repeated<T: Parse>(input: ParseStream<'_>) -> syn::Result<Vec<T>> {
    let mut all = Vec::new();
    while !input.is_empty() {
        all.push(input.parse()?);
    }
    Ok(all)
}

/// `NAME: REPR { CONSTANT = EXPRESSION, … }`
impl Parse for Enum {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        input.call(syn::Attribute::parse_outer)?;
        let name = input.parse::<Ident>()?.to_string();
        input.parse::<Token![:]>()?;
        let repr = input.parse()?;
        let content;
        braced!(content in input);
        let mut constants = Vec::new();
        while !content.is_empty() {
            constants.push(content.parse::<Ident>()?.to_string());
            content.parse::<Token![=]>()?;
            content.parse::<syn::Expr>()?;
            content.parse::<Token![,]>()?;
        }
        Ok(Self { name, repr, constants })
    }
}

/// `"VERSION" { NAME: fn(TYPE, …) -> TYPE; … }`
struct Group(Vec<Function>);

impl Parse for Group {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let version = input.parse::<LitStr>()?.value();
        let content;
        braced!(content in input);
        let mut functions = Vec::new();
        while !content.is_empty() {
            let name = content.parse::<Ident>()?.to_string();
            content.parse::<Token![:]>()?;
            let bare = content.parse::<syn::TypeBareFn>()?;
            content.parse::<Token![;]>()?;
            functions.push(Function {
                name,
                version: version.clone(),
                arguments: bare.inputs.into_iter().map(|argument| argument.ty).collect(),
                result: match bare.output {
                    syn::ReturnType::Default => None,
                    syn::ReturnType::Type(_, result) => Some(*result),
                },
            });
        }
        debug_assert!(!input.peek(token::Comma));
        Ok(Self(functions))
    }
}
