//! What an engine says of its device at INFO, once: in the words of NCCL's `NET/IB : Using`.
//!
//! Which devices were not taken is said by who chose this one.

use rdma_core::{Context, Gid, LinkLayer, PortAttributes, gid};

/// Says which device, port and address lanes will use, and why none of the other addresses.
pub(super) fn announce(context: &Context, port: &PortAttributes, gid: &gid::Chosen, asked: bool) {
    let net = net(context);
    let (name, number, mtu) = (context.name(), port.port, port.active_mtu);
    let fabric = if port.link_layer == LinkLayer::INFINIBAND { "IB" } else { "RoCE" };
    tracing::info!("{net} : Using [0]{name}:{number}/{fabric}, MTU {mtu}");
    let gid::Chosen { entry, rejected } = gid;
    let why = why(entry.gid, asked && rejected.is_empty());
    tracing::info!("{net} : GID {} {} ({}) is used: {why}", entry.index, entry.gid, entry.kind);
    for (entry, why) in rejected {
        tracing::info!("{net} : GID {} {} ({}) is not: {why}", entry.index, entry.gid, entry.kind);
    }
}

/// What carries the data, as NCCL would call it.
pub(crate) fn net(context: &Context) -> &'static str {
    if context.is_soft() { "NET/Soft" } else { "NET/IB" }
}

/// Why an address was taken; `only_asked` tells that it was by its index alone.
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
