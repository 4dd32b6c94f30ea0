//! The variables of a Volcano job: its plugins `svc` and `env` list the hosts of each task, and number the pods of
//! each.
//!
//! With the plugin `pytorch` the pods have torch's variables, too, and those win.

use super::Launcher;
use super::claim::{Claim, Hosts};
use super::meeting::Endpoint;
use super::names::{HOSTNAME, HOSTS, MASTER_PORT, VC_TASK_INDEX, VK_TASK_INDEX};
use super::reader::{Number, Reader, WORLD_MAX, invalid};
use crate::env::Setting;
use crate::env::error::EnvErrorKind;

/// The claim of Volcano: the ranks are the hosts of all lists, in the order of the tasks' names.
pub(super) fn claim(reader: &Reader<'_>) -> Result<Option<Claim>, EnvErrorKind> {
    let lists = reader.named(HOSTS.0, HOSTS.1);
    let Some(index) = reader.rank(&[VC_TASK_INDEX, VK_TASK_INDEX])? else { return Ok(None) };
    let mut hosts: Vec<(String, usize)> = Vec::new();
    for (task, name) in lists.iter().enumerate() {
        let list = reader.text(name)?.unwrap_or_default();
        let named = list.split(',').map(str::trim).filter(|host| !host.is_empty());
        hosts.extend(named.map(|host| (host.to_owned(), task)));
        if hosts.len() > WORLD_MAX as usize {
            return Err(invalid(Setting { name: name.clone(), value: format!("{} hosts", hosts.len()) }));
        }
    }
    let Some((leader, list)) = hosts.first() else { return Ok(None) };
    let rank = match &lists[..] {
        [_] => index,
        lists => own_place(reader, &hosts, lists, &index)?,
    };
    let value = hosts.len() as u32;
    let world = Number { setting: Setting { name: lists.join("+"), value: format!("{value} hosts") }, value };
    let port = reader.port(MASTER_PORT)?.unwrap_or(Endpoint::PORT_DEFAULT);
    let address = Some(Endpoint { host: leader.clone(), port, by: lists[*list].clone() });
    let job = Some(leader.clone());
    let claim = Claim::new(Launcher::Volcano, rank, world)?;
    Ok(Some(Claim { hosts: Hosts::Several, job, address, ..claim }))
}

/// The index of this host among all hosts. The pod's own index counts within its task only.
fn own_place(
    reader: &Reader<'_>,
    hosts: &[(String, usize)],
    lists: &[String],
    index: &Number,
) -> Result<Number, EnvErrorKind> {
    let own = reader.text(HOSTNAME)?.unwrap_or_default();
    let is_own = |host: &str| host == own || host.split('.').next() == Some(own.as_str());
    let Some((place, (_, task))) = hosts.iter().enumerate().find(|(_, (host, _))| is_own(host)) else {
        return Err(EnvErrorKind::NotListed { host: own, lists: lists.join(" and ") });
    };
    let within = hosts.iter().take(place).filter(|(_, other)| other == task).count();
    let setting = Setting { name: HOSTNAME.to_owned(), value: own };
    if within != index.value as usize {
        return Err(EnvErrorKind::Contradiction { one: setting, other: index.setting.clone() });
    }
    Ok(Number { setting, value: place as u32 })
}
