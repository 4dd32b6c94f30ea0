//! Devices, ports and GIDs.

use rdma_core::error::{ConnectError, OpenError, QueryError};
use rdma_core::{DeviceList, LinkLayer, PathOptions, PortNum, PortState};

use super::cases;
use crate::{CaseResult, Lab, check, check_eq};

cases!("device":
    reports_its_limits,
    #[exact] unknown_device_names_those_there_are,
    opens_twice_at_once,
    port_is_active,
    #[exact] port_zero_does_not_exist,
    #[exact] port_beyond_the_last_does_not_exist,
    gid_table_has_the_chosen_one,
    #[exact] gid_index_that_does_not_exist,
    gids_are_distinct_by_index,
);

fn reports_its_limits(lab: &Lab) -> CaseResult {
    let limits = lab.context.attributes()?;
    check!(limits.ports >= 1 && limits.max_qp > 0 && limits.max_qp_wr >= 128 && limits.max_cqe >= 256);
    check!(limits.max_mr > 0 && limits.max_mr_size >= 1 << 20, "{limits:?}");
    Ok(())
}

fn unknown_device_names_those_there_are(_: &Lab) -> CaseResult {
    let list = DeviceList::probe();
    match list.find("no_such_device_0") {
        Err(OpenError::UnknownDevice { name, available, .. }) => {
            check_eq!(name, "no_such_device_0");
            check_eq!(available.len(), list.devices().len());
            Ok(())
        }
        other => Err(format!("expected UnknownDevice, got {other:?}").into()),
    }
}

fn opens_twice_at_once(lab: &Lab) -> CaseResult {
    let again = lab.device.open()?;
    check_eq!(again.name(), lab.context.name());
    check_eq!(again.gids(lab.port)?, lab.context.gids(lab.port)?);
    again.alloc_pd()?.alloc_local(4096)?;
    Ok(())
}

fn port_is_active(lab: &Lab) -> CaseResult {
    let port = lab.context.port(lab.port)?;
    check_eq!(port.state, PortState::ACTIVE);
    check!(port.active_mtu.bytes().is_some() && port.active_mtu <= port.max_mtu, "{port:?}");
    check!(port.link_layer == LinkLayer::ETHERNET || port.lid.0 != 0, "InfiniBand without a LID: {port:?}");
    Ok(())
}

fn port_zero_does_not_exist(lab: &Lab) -> CaseResult {
    no_such_port(lab, 0)
}

fn port_beyond_the_last_does_not_exist(lab: &Lab) -> CaseResult {
    no_such_port(lab, lab.context.attributes()?.ports + 1)
}

fn no_such_port(lab: &Lab, number: u8) -> CaseResult {
    for result in [lab.context.port(PortNum(number)).err(), lab.context.gids(PortNum(number)).err()] {
        match result {
            Some(QueryError::NoSuchPort { port, .. }) => check_eq!(port, number),
            other => return Err(format!("expected NoSuchPort, got {other:?}").into()),
        }
    }
    Ok(())
}

fn gid_table_has_the_chosen_one(lab: &Lab) -> CaseResult {
    let table = lab.context.gids(lab.port)?;
    check!(table.contains(&lab.gid), "{table:?}");
    check!(table.iter().all(|entry| !entry.gid.is_zero()), "an empty entry in {table:?}");
    Ok(())
}

fn gids_are_distinct_by_index(lab: &Lab) -> CaseResult {
    let table = lab.context.gids(lab.port)?;
    let mut indices: Vec<_> = table.iter().map(|entry| entry.index).collect();
    indices.dedup();
    check_eq!(indices.len(), table.len());
    Ok(())
}

fn gid_index_that_does_not_exist(lab: &Lab) -> CaseResult {
    let pd = lab.context.alloc_pd()?;
    let options = lab.options();
    let (mut worker, qp) = lab.half(&pd, &options)?;
    let peer = lab.endpoint(&worker, &qp)?;
    let path = PathOptions { gid_index: 9999, ..PathOptions::default() };
    let refused = match qp.ready_to_receive(&mut worker, &peer, &path) {
        Err(refused) => refused,
        Ok(_) => return Err("a GID index that does not exist was accepted".into()),
    };
    match &refused.error {
        ConnectError::NoSuchGid { index: 9999, table, .. } => check!(!table.is_empty()),
        other => return Err(format!("expected NoSuchGid, got {other:?}").into()),
    }
    // The refused queue pair comes back, and connects with the right index.
    lab.connect(&mut worker, refused.object, &peer, &options).map(drop)?;
    Ok(())
}
