//! libibverbs and the provider of each device.

use super::{Scope, list};
use crate::doctor::finding::{Finding, Mend, Severity};
use crate::doctor::finding_id::FindingId;
use crate::doctor::{Libraries, RdmaDevice};

/// Drivers of the kernel, or beginnings of the names of devices without one, and the provider of libibverbs for each.
const PROVIDERS: [(&str, &str); 15] = [
    ("mlx5_core", "mlx5"),
    ("mlx5_core.sf", "mlx5"), // a scalable function
    ("mlx4_core", "mlx4"),
    ("bnxt_en", "bnxt_re"),
    ("ice", "irdma"),
    ("i40e", "irdma"),
    ("efa", "efa"),
    ("erdma", "erdma"),
    ("hns3", "hns"),
    ("qede", "qedr"),
    ("ionic", "ionic"),
    ("mana", "mana"),
    ("cxgb4", "cxgb4"),
    ("rxe", "rxe"),
    ("siw", "siw"),
];
/// The packages that hold the library and its providers.
const IMAGE: &str =
    "an image with libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)";

pub(super) fn check(scope: &Scope<'_>) -> Vec<Finding> {
    let libraries = &scope.machine.libraries;
    if scope.devices.is_empty() {
        return Vec::new();
    }
    if libraries.libibverbs.is_none() {
        return vec![Finding {
            id: FindingId::NoLibibverbs,
            severity: Severity::Warning,
            text:
                "libibverbs.so.1 is in none of the usual folders of libraries, so a device opens only where \
                   LD_LIBRARY_PATH or /etc/ld.so.conf names another one"
                    .to_owned(),
            source: scope.machine.root.join("usr/lib").display().to_string(),
            value: "no libibverbs.so.1".to_owned(),
            mend: install(),
        }];
    }
    let mut names: Vec<_> = scope.devices.iter().filter_map(|device| provider(device)).collect();
    names.sort_unstable();
    names.dedup();
    let is_loaded = |device| provider(device).is_some_and(|name| of_provider(libraries, name).is_none());
    let is_served = scope.devices.iter().any(|device| scope.can_serve(device) && is_loaded(device));
    let mut findings: Vec<_> = names.into_iter().filter_map(|name| of_provider(libraries, name)).collect();
    if is_served {
        // `max` makes an error a warning, and nothing worse.
        findings.iter_mut().for_each(|finding| finding.severity = finding.severity.max(Severity::Warning));
    }
    findings
}

/// Returns the provider that a device needs; `None` for a driver that is not listed here.
fn provider(device: &RdmaDevice) -> Option<&'static str> {
    let driver = device.driver.as_ref().ok()?.as_deref();
    let (_, provider) = PROVIDERS.iter().find(|(known, _)| match driver {
        Some(driver) => driver == *known,
        None => device.name.starts_with(known),
    })?;
    Some(provider)
}

fn of_provider(libraries: &Libraries, name: &str) -> Option<Finding> {
    let folder = libraries.folder.display().to_string();
    if !libraries.has_provider(name) {
        return Some(no_provider(libraries, name));
    }
    match &libraries.configured {
        Err(unknown) => {
            let effect = format!("it is open whether libibverbs loads the provider {name}");
            Some(Finding::not_visible(FindingId::ProviderNotConfigured, unknown, &effect))
        }
        Ok(names) if !names.iter().any(|configured| configured == name) => Some(Finding {
            id: FindingId::ProviderNotConfigured,
            severity: Severity::Error,
            text: format!("no file of {folder} names the provider {name}, so libibverbs does not load it"),
            value: list(names),
            mend: Mend::new(
                format!("echo 'driver {name}' > {folder}/{name}.driver"),
                "the same; no setting of the unit replaces the file",
                format!(
                    "an image with the file {folder}/{name}.driver, which the package of the providers has"
                ),
            ),
            source: folder,
        }),
        Ok(_) => None,
    }
}

/// The provider is not here, or that of another release, which libibverbs does not look for.
fn no_provider(libraries: &Libraries, name: &str) -> Finding {
    let others: Vec<_> = libraries.abis_of(name).map(|(file, _)| file).collect();
    let number = libraries.provider_abi.map_or("N".to_owned(), |abi| abi.to_string());
    let (why, value) = if others.is_empty() {
        ("is here without its provider", format!("no lib{name}-rdmav{number}.so"))
    } else {
        (
            "is of another release than its provider",
            format!("no lib{name}-rdmav{number}.so, but {}", list(&others)),
        )
    };
    let library = libraries.libibverbs.as_deref().unwrap_or(&libraries.folder);
    Finding {
        id: FindingId::NoProvider,
        severity: Severity::Error,
        text: format!("libibverbs {why} {name}, so it lists none of the devices of {name}"),
        source: library.with_file_name("libibverbs").display().to_string(),
        value,
        mend: install(),
    }
}

fn install() -> Mend {
    Mend::new(
        "apt install libibverbs1 ibverbs-providers, both of one release",
        "the same; ExecStart= may set LD_LIBRARY_PATH by `env`",
        IMAGE,
    )
}
