//! Message that waits once and then comes at once.

use super::super::super::tests::{BASE, Rig, execute, terms, try_execute_small};
use super::super::{Executed, Outcome};
use super::*;
use crate::backend::soft::engine::message::{Nak, Reply, ReplyKind};
use crate::backend::soft::engine::sequence;
use crate::backend::soft::fault::Injected;

#[test]
fn what_was_told_to_wait_and_then_came_at_once_is_waited_for_no_more() {
    let mut rig = Rig::new(8, terms(1));
    rig.expose(1, 1);
    let send = rig.next(RequestOp::Send, 0, 0, 8);
    assert!(try_execute_small(&mut rig.responder, &send, &mut [7; 8]).is_none(), "there is no receive");
    let executed = execute(&mut rig.responder, &send, &mut [7; 8], Injected::Deliver);
    assert!(matches!(executed.outcome, Outcome::Reply(Reply { kind: ReplyKind::Rnr { .. }, .. })));
    rig.post(1, BASE, 8, 1);
    assert!(try_execute_small(&mut rig.responder, &send, &mut [7; 8]).is_some());
    // A missing request is asked for once for each gap, and this is a new gap.
    let missing = rig.next(RequestOp::Write, 1, BASE, 8).psn;
    let beyond = Request { psn: sequence::add(missing, 1), ..send };
    let Executed { outcome, .. } = execute(&mut rig.responder, &beyond, &mut [7; 8], Injected::Deliver);
    let kind = ReplyKind::Nak(Nak::Sequence);
    assert_eq!(outcome, Outcome::Reply(Reply { psn: missing, kind, len: 0 }));
}
