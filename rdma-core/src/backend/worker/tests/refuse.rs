//! What a device does not take.

use super::*;

#[test]
fn a_request_that_the_device_refuses_comes_back_and_holds_nothing() {
    let (mut core, qp) = core();
    let attached = core.attach(Region::new(registered(64, Access::LOCAL_WRITE, PD)));
    core.raw.accept = Some(0);
    let refused = core.post(qp, Work::send(attached.range(0, 64))).unwrap_err();
    assert!(matches!(refused.error, PostError::Refused { verb: "ibv_post_send", .. }), "{refused}");
    core.detach(attached).unwrap();
    core.raw.accept = Some(0);
    let refused = core.post(qp, Work::send(buffer(7))).unwrap_err();
    assert!(matches!(refused.work.into_segment(), Segment::Owned(buffer) if buffer.len() == 7));
    let ids: Vec<_> = (0..3).map(|_| core.post(qp, Work::send(buffer(8))).unwrap()).collect();
    for id in ids {
        complete(&mut core, id.0, CompletionStatus::SUCCESS);
        assert_eq!(core.poll().unwrap().unwrap().id, id);
    }
}
