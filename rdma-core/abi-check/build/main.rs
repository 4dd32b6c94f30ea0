//! Reads rdma-core's own declarations and writes three tables of the same rows: from them, from the C headers and from
//! rdma-sys. Nothing is listed by hand, so that a declaration cannot be added and left unchecked.

mod c_table;
mod declarations;
mod names;
mod rust_table;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use declarations::Declarations;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap());
    let backend = manifest.join("../src/backend/ibverbs");

    let mut declarations = Declarations::default();
    for file in ["sys/constants.rs", "sys/structs.rs", "sys/work.rs", "sys/context.rs", "symbols.rs"] {
        let path = backend.join(file);
        println!("cargo::rerun-if-changed={}", path.display());
        declarations.read(&fs::read_to_string(&path).unwrap());
    }
    declarations.check_plausible();

    write(&out.join("ours.rs"), &rust_table::ours(&declarations));
    write(&out.join("rdma_sys.rs"), &rust_table::rdma_sys(&declarations));
    write(&out.join("symbols.rs"), &rust_table::symbols(&declarations));
    let c = out.join("table.c");
    write(&c, &c_table::table(&declarations));
    let mut sets = String::from("&[");
    for (index, (release, include)) in headers().into_iter().enumerate() {
        let rows = format!("abi_rows_{index}");
        let mut build = cc::Build::new();
        build.file(&c).define("ABI_ROWS", rows.as_str()).includes(include);
        build
            .warnings(true)
            .extra_warnings(true)
            .warnings_into_errors(true)
            .compile(&format!("table_{index}"));
        write!(sets, "({release:?}, {{ unsafe extern \"C\" {{ static {rows}: [CRow; 0]; }} (&raw const {rows}).cast() }}),")
            .unwrap();
    }
    write(&out.join("c_rows.rs"), &(sets + "]"));
}

/// The sets of C headers: those installed, and those that `ABI_CHECK_HEADERS` names (`RELEASE=FOLDER:RELEASE=FOLDER`).
fn headers() -> Vec<(String, Option<PathBuf>)> {
    println!("cargo::rerun-if-env-changed=ABI_CHECK_HEADERS");
    let named = env::var("ABI_CHECK_HEADERS").unwrap_or_default();
    let other = |entry: &str| {
        let (release, folder) = entry.split_once('=').expect("RELEASE=FOLDER");
        (format!("the C headers of {release}"), Some(PathBuf::from(folder)))
    };
    let others = named.split(':').filter(|entry| !entry.is_empty()).map(other);
    [("the installed C headers".to_owned(), None)].into_iter().chain(others).collect()
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}
