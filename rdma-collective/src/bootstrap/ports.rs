//! The ports at which ranks meet, because another program may have taken the port that a launcher gives.

/// The distance of the other ports from the given one. Large, because jobs on one host often count their ports up by
/// one.
const DISTANCE: u16 = 512;
/// The number of other ports.
const COUNT: u16 = 16;

/// The ports at which the store of a job may listen, in the order in which rank 0 tries them.
///
/// They are the given `port` itself, unless it is `taken` for good (under torchrun, whose own store listens there), and
/// 16 ports from 512 above it. If those would lie beyond 65535, they are the 16 that end 512 below it. All ranks
/// compute the same list, so the others find rank 0 at whichever port was free.
///
/// ```
/// use rdma_collective::bootstrap::meeting_ports;
///
/// assert_eq!(meeting_ports(29500, false)[..3], [29500, 30012, 30013]);
/// assert_eq!(meeting_ports(29500, true).len(), 16);
/// assert_eq!(meeting_ports(65535, true).last(), Some(&65023));
/// ```
#[must_use]
pub fn meeting_ports(port: u16, taken: bool) -> Vec<u16> {
    let first = match port.checked_add(DISTANCE + COUNT - 1) {
        Some(last) => last - (COUNT - 1),
        None => port - DISTANCE - (COUNT - 1),
    };
    let itself = (!taken).then_some(port);
    itself.into_iter().chain(first..=first + (COUNT - 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_sixteen_others_that_are_not_its_neighbours() {
        for port in 1..=u16::MAX {
            let ports = meeting_ports(port, true);
            assert_eq!(ports.len(), usize::from(COUNT));
            assert!(ports.iter().all(|other| *other > 0 && other.abs_diff(port) >= DISTANCE), "{port}");
            assert_eq!(meeting_ports(port, false)[1..], ports);
        }
    }
}
