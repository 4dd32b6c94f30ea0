//! The budget of connections that are not trusted yet, one for the whole process.
//!
//! Anybody may connect to a listener, and each connection takes a descriptor. So all listeners of the process draw
//! from one budget: a quarter of the descriptors that are free, and 256 at most. A listener whose share is spent lets
//! its oldest stranger make room, and hears one at least. The other descriptors stay with the job, whoever connects.

use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, getrlimit};

/// Most strangers in all, so that a high limit on descriptors does not mean thousands of them.
pub const STRANGERS_MAX: usize = 256;
/// The part of the free descriptors that strangers may take, as a divisor.
const PART: usize = 4;
/// The part of the budget that is kept for each door, as a divisor: a crowd at one door then leaves half of the
/// budget to the four doors, an eighth each.
const KEPT: usize = 8;
/// Strangers at each door, 16 bits for each, in one word so that one exchange both asks and takes.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The kind of listener to which strangers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    /// The store of a job.
    Store,
    /// The handshake of a link.
    Handshake,
    /// The TCP wire of the software device.
    Tcp,
    /// The rendezvous of the mapped wire.
    Mapped,
}

/// The right to hold one connection that is not trusted yet. Dropping the place gives it back, so a connection that
/// has become trusted drops it.
#[derive(Debug)]
pub struct Place(Door);

impl Place {
    /// Takes a place; `None` when the share of this door is spent. The caller then drops its oldest stranger and asks
    /// again, or takes the [`first`](Self::first) if it has none.
    #[must_use]
    pub fn take(door: Door) -> Option<Self> {
        let most = budget(doors(HELD.load(Ordering::Relaxed)).iter().sum());
        let take = |word| has_room(doors(word), door, most).then_some(word + one(door));
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Self(door))
    }

    /// Takes a place for the only stranger of a listener, whose share is spent. Another listener at the same door has
    /// the places, and may have them for as long as a crowd comes there. So each listener hears one at least.
    #[must_use]
    pub fn first(door: Door) -> Self {
        HELD.fetch_add(one(door), Ordering::Relaxed);
        Self(door)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        HELD.fetch_sub(one(self.0), Ordering::Relaxed);
    }
}

/// Counts a single stranger at `door`, in the word of all.
fn one(door: Door) -> u64 {
    1 << (16 * door as u32)
}

/// The strangers at each door.
fn doors(word: u64) -> [usize; 4] {
    word.to_le_bytes()
        .as_chunks()
        .0
        .first_chunk()
        .map_or([0; 4], |doors| doors.map(u16::from_le_bytes))
        .map(usize::from)
}

/// Whether one more stranger fits at `door`: in the share kept for that door, or in the half that is for all.
fn has_room(held: [usize; 4], door: Door, most: usize) -> bool {
    let kept = (most / KEPT).max(1);
    let beyond: usize = held.iter().map(|held| held.saturating_sub(kept)).sum();
    held[door as usize] < kept || beyond < most.saturating_sub(held.len() * kept)
}

/// Most strangers now. Those that are `held` count as free, because they make room.
fn budget(held: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| limit as usize);
    // Without /proc the count is not known: half of the limit is then taken for free.
    let free = open_descriptors().map_or(limit / 2, |open| limit.saturating_sub(open.saturating_sub(held)));
    (free / PART).min(STRANGERS_MAX)
}

/// The number of this process's open descriptors.
fn open_descriptors() -> Option<usize> {
    const DESCRIPTORS: &str = "/proc/self/fd";
    // Since Linux 6.2 the length of the folder is that number, which costs 1 us. Before, the length is 0, and each
    // entry is counted.
    match std::fs::metadata(DESCRIPTORS).ok()?.len() {
        0 => Some(std::fs::read_dir(DESCRIPTORS).ok()?.count()),
        open => Some(open as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_door_keeps_its_share_and_all_together_keep_to_the_budget() {
        for most in [4, 11, 64, 256] {
            let mut held = [0; 4];
            while has_room(held, Door::Store, most) {
                held[Door::Store as usize] += 1;
            }
            let kept = (most / KEPT).max(1);
            assert_eq!(
                held[Door::Store as usize],
                most - 3 * kept,
                "one door takes all but the others' shares"
            );
            for door in [Door::Handshake, Door::Tcp, Door::Mapped] {
                assert!(has_room(held, door, most));
                held[door as usize] += kept;
                assert!(!has_room(held, door, most));
            }
            assert_eq!(held.iter().sum::<usize>(), most);
        }
        assert!(has_room([0; 4], Door::Tcp, 0), "a door without strangers always hears one");
    }

    #[test]
    fn descriptors_are_counted_and_strangers_among_them_are_free() {
        let before = open_descriptors().unwrap();
        let open: Vec<_> = (0..100).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let after = open_descriptors().unwrap();
        // Other tests of this process open and close descriptors meanwhile.
        assert!(after > before + 50, "{before}, and {after} with 100 more");
        drop(open);
        assert!(budget(0) <= budget(1000) && budget(1000) <= STRANGERS_MAX);
    }

    #[test]
    fn a_place_is_given_back() {
        let at_tcp = || doors(HELD.load(Ordering::Relaxed))[Door::Store as usize];
        // No other test of this crate takes places at a store.
        let places: Vec<_> = std::iter::from_fn(|| Place::take(Door::Store)).take(3).collect();
        assert_eq!((places.len(), at_tcp()), (3, 3));
        drop(places);
        assert_eq!(at_tcp(), 0);
    }
}
