//! Address vectors: how the packets of a queue pair find the peer's port, by LID or by GID.

use super::sys::{ibv_ah_attr, ibv_gid, ibv_global_route};
use crate::error::ConnectError;
use crate::{Endpoint, Gid, GidEntry, LinkLayer, PathOptions, PortAttributes};

/// Makes the address vector from `port`, with the source GID `own`, to `peer`.
///
/// On Ethernet the GID is the address. On InfiniBand the LID is the address, and a peer of another subnet needs the
/// GID, too.
///
/// # Errors
///
/// [`ConnectError::GidBeyondPath`]: the C structure has 8 bits for the index, and tables may be longer.
pub(super) fn vector(
    port: &PortAttributes,
    own: Option<&GidEntry>,
    peer: &Endpoint,
    options: &PathOptions,
) -> Result<ibv_ah_attr, ConnectError> {
    let global = match port.link_layer {
        LinkLayer::ETHERNET => true,
        _ => {
            peer.lid.0 == 0
                || own.is_some_and(|own| subnet(own.gid) != subnet(peer.gid) && !peer.gid.is_zero())
        }
    };
    let index = options.gid_index;
    let sgid_index = match u8::try_from(index) {
        Err(_) if global => return Err(ConnectError::GidBeyondPath { index }),
        narrow => narrow.unwrap_or(0),
    };
    let route = ibv_global_route {
        dgid: ibv_gid { raw: peer.gid.0 },
        flow_label: 0,
        sgid_index,
        hop_limit: options.hop_limit,
        traffic_class: options.traffic_class,
    };
    Ok(ibv_ah_attr {
        grh: if global { route } else { ibv_global_route::zeroed() },
        dlid: peer.lid.0,
        sl: options.service_level,
        src_path_bits: 0,
        static_rate: 0,
        is_global: u8::from(global),
        port_num: port.port.0,
    })
}

/// The first half of a GID: on InfiniBand the prefix of the subnet.
fn subnet(gid: Gid) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = gid.0;
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests;
