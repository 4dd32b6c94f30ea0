//! The public API of the libraries as text, checked in, so that a change of it is seen in review; and that each item of
//! it is shown in use.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::Value;

use super::example_links;
use crate::{cargo, workspace};

const LIBRARIES: [&str; 2] = ["rdma-core", "rdma-collective"];
/// The version of rustdoc's JSON that the crate `public-api`, as pinned, can read.
const FORMAT: u64 = 57;

/// Options of `cargo xtask public-api`.
#[derive(Parser)]
pub struct Args {
    /// Accept the API as it is now.
    #[arg(long)]
    bless: bool,
}

/// The subcommand.
pub fn main(args: &Args) -> Result<()> {
    if !args.bless {
        return check();
    }
    for library in LIBRARIES {
        let path = snapshot_path(library)?;
        fs::write(&path, extract(library)?.0).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {library}/public-api.txt");
    }
    Ok(())
}

/// Compares with what is checked in, and finds items that no doc shows in use.
pub fn check() -> Result<()> {
    let (mut changed, mut not_shown) = (Vec::new(), Vec::new());
    for library in LIBRARIES {
        let (now, rustdoc) = extract(library)?;
        not_shown.extend(example_links::missing(&rustdoc));
        let before = fs::read_to_string(snapshot_path(library)?).unwrap_or_default();
        if now != before {
            changed.push(library);
            print_difference(&before, &now);
        }
    }
    if !changed.is_empty() {
        let changed = changed.join(" and ");
        bail!("the public API of {changed} changed: if that is meant, run `cargo xtask public-api --bless`");
    }
    if !not_shown.is_empty() {
        bail!(
            "these public items have neither an example nor a link to an item that has one: {}",
            not_shown.join(", ")
        );
    }
    Ok(())
}

fn snapshot_path(library: &str) -> Result<PathBuf> {
    Ok(workspace::root()?.join(library).join("public-api.txt"))
}

/// The API as text, and rustdoc's JSON.
fn extract(library: &str) -> Result<(String, Value)> {
    let target = workspace::target()?.join("public-api");
    let mut rustdoc = cargo::nightly(&["rustdoc", "--quiet", "--lib", "-p", library, "--"])?;
    rustdoc.args(["-Zunstable-options", "--output-format=json", "--cap-lints=allow"]);
    cargo::check(rustdoc.env("CARGO_TARGET_DIR", &target))?;
    let json = target.join("doc").join(library.replace('-', "_")).with_extension("json");
    let text =
        fs::read_to_string(&json).with_context(|| format!("rustdoc did not write {}", json.display()))?;
    let value: Value = serde_json::from_str(&text).context("rustdoc's JSON does not parse")?;
    match value["format_version"].as_u64() {
        Some(FORMAT) => {}
        other => {
            bail!("this nightly's rustdoc writes JSON of format {other:?}, and format {FORMAT} is read here")
        }
    }
    let api = public_api::Builder::from_rustdoc_json(&json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .context("rustdoc's JSON cannot be read")?;
    Ok((api.to_string(), value))
}

fn print_difference(before: &str, now: &str) {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
    let (before, now) = (lines(before), lines(now));
    before.difference(&now).for_each(|line| println!("-{line}"));
    now.difference(&before).for_each(|line| println!("+{line}"));
}
