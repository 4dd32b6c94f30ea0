//! Times at which a rule strikes, and its random numbers.

use super::*;

fn strikes(mut rule: Rule, event: Event, count: usize) -> Vec<usize> {
    let mut seed = Seed::new(3);
    (1..=count).filter(|_| true).filter(|_| rule.strikes(&event, &mut seed).is_some()).collect()
}

const REQUEST: Event =
    Event::Message { queue_pair: QpNum(5), is_request: true, has_payload: true, takes_receive: false };
const REPLY: Event =
    Event::Message { queue_pair: QpNum(5), is_request: false, has_payload: false, takes_receive: false };

#[test]
fn after_times_and_nth_count_from_one() {
    assert_eq!(strikes(Rule::new(Fault::Drop), REQUEST, 3), [1, 2, 3]);
    assert_eq!(strikes(Rule::new(Fault::Drop).after(2).times(2), REQUEST, 9), [3, 4]);
    assert_eq!(strikes(Rule::new(Fault::Drop).nth(3), REQUEST, 9), [3]);
    assert_eq!(strikes(Rule::new(Fault::Drop).nth(1), REQUEST, 9), [1]);
}

#[test]
fn a_rule_looks_only_at_what_its_fault_can_strike() {
    let none: [usize; 0] = [];
    assert_eq!(strikes(Rule::new(Fault::Drop).on(Messages::Replies), REQUEST, 3), none);
    assert_eq!(strikes(Rule::new(Fault::Drop).on(Messages::Requests), REPLY, 3), none);
    assert_eq!(strikes(Rule::new(Fault::Drop).on_queue_pair(QpNum(5)), REPLY, 2), [1, 2]);
    assert_eq!(strikes(Rule::new(Fault::Drop).on_queue_pair(QpNum(6)), REPLY, 2), none);
    assert_eq!(strikes(Rule::new(Fault::Corrupt), REPLY, 3), none);
    assert_eq!(strikes(Rule::new(Fault::Rnr), REQUEST, 3), none);
    assert_eq!(strikes(Rule::new(Fault::RefuseDeregistration), REQUEST, 3), none);
    assert_eq!(strikes(Rule::new(Fault::RefuseDeregistration), Event::Deregistration, 1), [1]);
    assert_eq!(strikes(Rule::new(Fault::Drop), Event::Deregistration, 3), none);
}

#[test]
fn the_same_seed_strikes_the_same() {
    let rule = || Rule::new(Fault::Drop).with_probability(0.3);
    let first = strikes(rule(), REQUEST, 100);
    assert_eq!(first, strikes(rule(), REQUEST, 100));
    assert!((10..60).contains(&first.len()), "{}", first.len());
}

#[test]
fn the_published_sequence_comes_out() {
    let mut seed = Seed::new(1234567);
    assert_eq!([seed.next(), seed.next()], [6457827717110365317, 3203168211198807973]);
}

#[test]
fn chance_keeps_its_bounds_and_its_rate() {
    let mut seed = Seed::new(1);
    assert!((0..1000).all(|_| !seed.chance(0.0) && seed.chance(1.0)));
    let hits = (0..10_000).filter(|_| seed.chance(0.25)).count();
    assert!((2300..2700).contains(&hits), "{hits}");
}
