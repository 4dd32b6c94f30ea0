//! The engine's lines about its devices, at INFO and once per engine, in the form of NCCL's `NET/IB : Using`.
//!
//! The devices that were not chosen are reported by `env::select`, which made the choice.

use rdma_core::{Context, Gid, LinkLayer, PortAttributes, gid};

/// Logs the device, the port and the GID that the lanes of rail `rail` will use, and for each other GID the reason
/// against it.
pub(super) fn announce(
    context: &Context,
    rail: usize,
    port: &PortAttributes,
    gid: &gid::Chosen,
    asked: bool,
) {
    let net = net(context);
    let (name, number, mtu) = (context.name(), port.port, port.active_mtu);
    let fabric = if port.link_layer == LinkLayer::INFINIBAND { "IB" } else { "RoCE" };
    crate::log::info!("{net} : Using [{rail}]{name}:{number}/{fabric}, MTU {mtu}");
    let gid::Chosen { entry, rejected } = gid;
    let why = why(entry.gid, asked && rejected.is_empty());
    crate::log::info!("{net} : GID {} {} ({}) is used: {why}", entry.index, entry.gid, entry.kind);
    for (entry, why) in rejected {
        crate::log::info!("{net} : GID {} {} ({}) is not: {why}", entry.index, entry.gid, entry.kind);
    }
}

/// The name of the transport, as NCCL writes it in its log.
pub(crate) fn net(context: &Context) -> &'static str {
    if context.is_soft() { "NET/Soft" } else { "NET/IB" }
}

/// The reason for the choice of `gid`; `only_asked` says that the index was given, so no rule was applied.
fn why(gid: Gid, only_asked: bool) -> &'static str {
    match gid {
        _ if only_asked => "asked for by its index",
        gid if gid.ipv4_mapped().is_some() => "IPv4 goes first",
        gid if gid.is_link_local() => "there is none better",
        _ => "routable, and there is no IPv4 address to take",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_that_of_the_rule() {
        let gid = |text: &str| Gid::from(text.parse::<std::net::Ipv6Addr>().unwrap());
        for (address, only_asked, expected) in [
            ("::ffff:10.0.0.9", false, "IPv4 goes first"),
            ("2001:db8::1", false, "routable, and there is no IPv4 address to take"),
            ("fe80::1", false, "there is none better"),
            ("::ffff:10.0.0.9", true, "asked for by its index"),
        ] {
            assert_eq!(why(gid(address), only_asked), expected, "{address}");
        }
    }
}
