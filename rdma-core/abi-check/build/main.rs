//! Reads rdma-core's own declarations and writes three tables of the same rows: from them, from the C headers and from
//! rdma-sys. Nothing is listed by hand, so that a declaration cannot be added and left unchecked.

mod c_table;
mod declarations;
mod names;
mod rust_table;

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
    cc::Build::new().file(&c).warnings(true).extra_warnings(true).warnings_into_errors(true).compile("table");
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}
