//! Ranks whose rails die at moments of chance: every element is decided once, and alike on all of them.

use proptest::prelude::*;

use super::*;

#[test]
fn pieces_are_all_of_a_range_and_none_twice() {
    for (len, rails) in [(10, 3), (2, 3), (0, 2), (7, 1), (64, 8)] {
        let pieces: Vec<_> = pieces(5..5 + len, RailSet::first(rails)).collect();
        let mut at = 5;
        for (_, piece) in &pieces {
            assert_eq!(piece.start, at);
            assert!(piece.len() <= len.div_ceil(rails) && !piece.is_empty());
            at = piece.end;
        }
        assert_eq!(at, 5 + len);
    }
    let odd: RailSet = [1, 4].into_iter().collect();
    assert_eq!(pieces(0..5, odd).collect::<Vec<_>>(), [(1, 0..3), (4, 3..5)]);
}

#[test]
fn what_all_have_is_what_none_lacks() {
    let set = |rails: &[usize]| rails.iter().copied().collect::<RailSet>();
    let one = Statement { done: set(&[0, 1]), lost: set(&[2]) };
    let other = Statement { done: set(&[1, 2]), lost: set(&[0]) };
    let both = [one.encode(), other.encode()].concat();
    assert_eq!(Statement::of_all(&both), Statement { done: set(&[1]), lost: set(&[0, 2]) });
    assert_eq!(Statement::of_all(&one.encode()), one);
}

proptest! {
    #[test]
    fn every_element_is_decided_once_while_a_rail_is_left(
        ranks in 1_usize..5,
        rails in 1_usize..=RAILS_MAX,
        elements in 0_usize..500,
        piece_max in 1_usize..40,
        // For each rail but one: the round in which the rail dies, and the ranks that have its result nevertheless.
        deaths in prop::collection::vec((0_usize..12, any::<u8>()), RAILS_MAX),
        survivor in 0_usize..RAILS_MAX,
    ) {
        let survivor = survivor % rails;
        let mut stripes = vec![Stripes::new(elements, piece_max, RailSet::first(rails)); ranks];
        let mut decided = vec![0; elements];
        for round in 0.. {
            prop_assert!(round <= elements + rails, "it goes on for ever");
            let ranges: Vec<_> = stripes.iter_mut().map(Stripes::next_round).collect();
            prop_assert!(ranges.iter().all(|range| *range == ranges[0]));
            let Some(range) = ranges[0].clone() else { break };
            let statements: Vec<_> = (0..ranks).map(|rank| {
                let mut own = Statement::default();
                for (rail, piece) in pieces(range.clone(), stripes[rank].live) {
                    prop_assert!(piece.len() <= piece_max);
                    let (dies, has) = deaths[rail];
                    let dead = rail != survivor && dies <= round;
                    if !dead || dies == round && has & (1 << rank) != 0 {
                        own.done.insert(rail);
                    } else {
                        own.lost.insert(rail);
                    }
                }
                Ok(own.encode())
            }).collect::<Result<_, _>>()?;
            let all = Statement::of_all(&statements.concat());
            for (rank, stripes) in stripes.iter_mut().enumerate() {
                for (_, piece) in stripes.decide(range.clone(), all) {
                    if rank == 0 {
                        decided[piece].iter_mut().for_each(|times| *times += 1);
                    }
                }
            }
        }
        prop_assert!(stripes.iter().all(Stripes::is_done));
        prop_assert!(decided.iter().all(|times| *times == 1), "{:?}", decided);
    }
}

#[test]
fn without_a_rail_there_is_no_round() {
    let mut stripes = Stripes::new(10, 10, RailSet::first(1));
    let range = stripes.next_round().unwrap();
    let lost = Statement { done: RailSet::default(), lost: RailSet::first(1) };
    assert_eq!(stripes.decide(range, lost), []);
    assert_eq!(stripes.next_round(), None);
    assert!(!stripes.is_done());
}
