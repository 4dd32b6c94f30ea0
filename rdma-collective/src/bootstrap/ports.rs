//! Which ports ranks meet at when the one they were told may be taken by somebody else.

/// How far from the port that was given the others begin: jobs count theirs up by one.
const DISTANCE: u16 = 512;
/// How many they are.
const COUNT: u16 = 16;

/// The ports where the store of a job may listen that was told `port`, in the order in which rank 0 tries them: `port`
/// itself, unless it is `taken` for good as under torchrun, and the 16 from 512 above it; where there is no room for
/// those, the 16 that end 512 below it.
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
