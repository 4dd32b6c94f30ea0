//! No program may need more than the C library to start: the RDMA libraries are opened at run time, where they are
//! there, and nothing else has to be installed.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::{build, cargo};
use crate::{process, programs};

/// Libraries that a program may be linked with: the C library, its loader, and what unwinds panics.
const ALLOWED: [&str; 4] = ["libc.so.", "libm.so.", "libgcc_s.so.", "ld-linux"];

/// Builds every program, and reads its dynamic section.
pub fn run() -> Result<()> {
    let built = build(&mut cargo(programs::BUILD_FOR_TESTS)?)?;
    let programs: Vec<_> = built.iter().filter(|built| !built.is_test).collect();
    if programs.is_empty() {
        bail!("the workspace has no program to look at");
    }
    for program in programs {
        let libraries = needed(&program.path)?;
        println!("{}: {}", program.name, libraries.join(" "));
        if let Some(found) = libraries.iter().find(|library| !is_allowed(library)) {
            bail!("{} cannot start without {found}: open it at run time instead", program.name);
        }
    }
    Ok(())
}

fn is_allowed(library: &str) -> bool {
    ALLOWED.iter().any(|name| library.starts_with(name))
}

fn needed(path: &Path) -> Result<Vec<String>> {
    let path = path.to_string_lossy();
    let headers = process::answer("objdump", &["-p", &path]).with_context(|| {
        format!("objdump cannot read {path}: it is part of the package binutils, as the linker is")
    })?;
    Ok(parse(&headers))
}

fn parse(headers: &str) -> Vec<String> {
    headers
        .lines()
        .filter_map(|line| line.trim().strip_prefix("NEEDED"))
        .map(|name| name.trim().to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_libraries_are_read_from_objdump() {
        let headers =
            "\nDynamic Section:\n  NEEDED               libibverbs.so.1\n  NEEDED  libc.so.6\n  INIT 0x1\n";
        assert_eq!(parse(headers), ["libibverbs.so.1", "libc.so.6"]);
    }
    #[test]
    fn the_c_library_is_allowed_and_nothing_else() {
        for library in ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"] {
            assert!(is_allowed(library), "{library}");
        }
        for library in ["libibverbs.so.1", "librdmacm.so.1", "libcap.so.2", "libmnl.so.0", "libssl.so.3"] {
            assert!(!is_allowed(library), "{library}");
        }
    }
}
