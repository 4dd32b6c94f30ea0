//! Tests that the public API cannot express: a forked child, which must not disturb its parent.

#![expect(unsafe_code, reason = "forks")]

use crate::{Access, Deadline, Device, SoftOptions, Wire, Work, WorkerOptions, loopback};

#[test]
fn a_forked_child_that_ends_and_drops_everything_takes_nothing_from_its_parent() {
    for wire in [Wire::Local, Wire::Mapped, Wire::Tcp] {
        let context = Device::soft(SoftOptions { wire, ..SoftOptions::default() }).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut worker = context.worker(WorkerOptions::default()).unwrap();
        let (left, right) = loopback(&mut worker, &pd).unwrap();
        let target = pd.alloc_region(30, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let mut source = pd.alloc_local(30).unwrap();
        source.copy_from_slice(b"still registered and connected");
        // SAFETY: the child only makes calls that the library refuses after a fork, drops, and `_exit`; none of them
        // takes a lock that another thread of the parent may have held.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", std::io::Error::last_os_error());
        if child == 0 {
            let touched = worker.poll().is_ok()
                || worker.post(&left, Work::send(crate::Segment::Empty)).is_ok()
                || worker.post_recv(&left, crate::Segment::Empty).is_ok()
                || worker.wait(Deadline::after(std::time::Duration::ZERO)).is_ok();
            let fenced = worker.fence(right, Deadline::after(std::time::Duration::ZERO)).is_ok();
            let deregistered = target.deregister().is_ok();
            drop((worker, source, pd, context));
            // SAFETY: `_exit` must end the child, because exit handlers and destructors belong to the parent.
            unsafe { libc::_exit(i32::from(fenced) + 2 * i32::from(deregistered) + 4 * i32::from(touched)) };
        }
        let mut status = 0;
        // SAFETY: `child` is a child of this process that only this call waits for, and `status` is a variable of ours.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child did not end as it should");
        worker.post(&left, Work::write(source, target.remote())).unwrap();
        let deadline = Deadline::after(std::time::Duration::from_secs(60));
        worker.wait(deadline).unwrap().result.unwrap();
        let mut bytes = [0; 30];
        target.copy_out(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"still registered and connected");
    }
}
