//! `devinfo` on a host without libibverbs: the lines that sysfs has files for.

use std::iter;

use anyhow::bail;
use rdma_core::doctor::{Machine, Port, RdmaDevice};

use super::{Devinfo, Sheet, Unseen, device, of_a_port, of_device, port, print, print_names, source};

/// Prints the devices of sysfs, and the software device where it is asked for.
pub fn run(flags: &Devinfo, machine: &Machine) -> anyhow::Result<()> {
    let wanted = flags.device.as_deref();
    let soft = source::soft_device(&flags.common.soft)
        .filter(|device| wanted.is_none_or(|name| name == device.name()));
    let devices = source::devices(machine, wanted, soft.is_some())?;
    if flags.list {
        let names = devices.iter().map(|device| device.name.as_str());
        return print_names(
            flags,
            &names.chain(soft.as_ref().map(|device| device.name())).collect::<Vec<_>>(),
        );
    }
    let mut unseen = Unseen::default();
    let mut sheets = Vec::new();
    for device in devices {
        sheets.push(of_folder(flags, device, &mut unseen)?);
    }
    if let Some(device) = &soft {
        sheets.push(of_device(flags, device, machine)?);
    }
    print(flags, &sheets)?;
    unseen.end()
}

fn of_folder(flags: &Devinfo, device: &RdmaDevice, unseen: &mut Unseen) -> anyhow::Result<Sheet> {
    let guids = [&device.node_guid, &device.sys_image_guid];
    let unread = guids.into_iter().filter_map(|guid| guid.as_ref().err());
    unread.chain(device.node_type.as_ref().err()).for_each(|unknown| unseen.note(unknown));
    let ports: Vec<_> = unseen.take(&device.ports).into_iter().flatten().collect();
    if let Some(wanted) = flags.port.filter(|wanted| ports.iter().all(|port| port.number.0 != *wanted)) {
        bail!("{} has no port {wanted}; it has {}", device.name, ports.len());
    }
    let mut sheet = Sheet::default();
    let head = device::Head::in_sysfs(device);
    device::head(&mut sheet, &head);
    let ports = ports.into_iter().filter(|port| flags.port.is_none_or(|wanted| port.number.0 == wanted));
    sheet.sheets("ports", ports.map(|port| of_port(flags, port, head.is_infiniband(), unseen)).collect());
    Ok(sheet)
}

fn of_port(flags: &Devinfo, port: &Port, is_infiniband: bool, unseen: &mut Unseen) -> Sheet {
    let numbers = [&port.lid, &port.lmc, &port.sm_lid].into_iter().filter_map(|number| number.as_ref().err());
    let others = iter::empty().chain(port.state.as_ref().err()).chain(port.link_layer.as_ref().err());
    numbers.chain(others).for_each(|unknown| unseen.note(unknown));
    let mut sheet = Sheet::default();
    port::head(&mut sheet, &port::Head::in_sysfs(port));
    if flags.verbose {
        if let Some(mask) = unseen.take(&port.cap_mask) {
            of_a_port(&mut sheet, "port_cap_flags", *mask, &format!("0x{mask:08x}"));
        }
        if let Some(level) = unseen.take(&port.sm_sl) {
            of_a_port(&mut sheet, "sm_sl", *level, &level.to_string());
        }
        if let Some(state) = unseen.take(&port.phys_state).filter(|_| is_infiniband) {
            port::physical_state(&mut sheet, u8::try_from(state.code).unwrap_or(u8::MAX));
        }
        if let Some(table) = unseen.take(&port.gids) {
            table.unread.iter().for_each(|(_, unknown)| unseen.note(unknown));
            of_a_port(&mut sheet, "gid_tbl_len", table.len, &table.len.to_string());
            port::gids(&mut sheet, table.rows.iter().map(|row| (row.index, row.gid, row.kind)));
        }
    }
    sheet.text("\n");
    sheet
}
