//! Tests of links that cannot be made: no lane is left over, and progress counts from the change to the ring.

use std::thread;
use std::time::{Duration, Instant};

use rdma_core::{Deadline, Device, SoftOptions, Wire};

use super::LinkExec;
use crate::collective::call::{Call, Collective, Lengths, staging};
use crate::collective::communicator::{Communicator, CommunicatorOptions, Reach};
use crate::collective::execute::plan::{ExecutionPlan, LinkPlan, Plan};
use crate::collective::execute::tests::each_client;
use crate::collective::{DataType, ReduceOp};
use crate::engine::{Engine, EngineOptions};

fn soon() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// Runs `body` on each rank of a world. The last rank has a completion queue of `max_cqe` entries only.
fn each_rank(world: u32, max_cqe: u32, body: impl Fn(Communicator) + Copy + Send + 'static) {
    each_client(world, move |rank, store| {
        let device = Device::soft(SoftOptions { wire: Wire::Local, ..SoftOptions::default() });
        let options = EngineOptions::default();
        let max_cqe = if rank + 1 == world { max_cqe } else { options.max_cqe };
        let engine = Engine::new(&device.open().unwrap(), EngineOptions { max_cqe, ..options }).unwrap();
        let algorithms = "tree".parse().unwrap();
        let options = CommunicatorOptions { algorithms, ..CommunicatorOptions::default() };
        body(Communicator::new(&engine, store, options, soon()).unwrap());
    });
}

#[test]
fn what_was_opened_for_other_operations_goes_with_links_that_could_not_be_made() {
    each_rank(6, 300, |mut comm| {
        let [word, sum] = [(); 2].map(|()| comm.alloc::<u32>(9000).unwrap());
        // Rank 2 comes last, so the other ranks have opened links for both operations when the first one fails.
        thread::sleep(Duration::from_millis(if comm.rank() == 2 { 500 } else { 0 }));
        let word = comm.start_broadcast(word, 1, soon()).unwrap();
        let sum = comm.start_all_reduce(sum, ReduceOp::Sum, soon()).unwrap();
        word.wait(soon()).unwrap();
        sum.wait(soon()).unwrap();
        let (lanes, known) = comm
            .with_links(|_, links| (links.lanes().count(), links.table.unlinked(Reach::Doublings).is_some()))
            .unwrap();
        assert!(known, "there is room for them");
        assert_eq!(lanes, 2, "links to others are left that nobody connects");
        comm.close(soon()).unwrap();
    });
}

#[test]
fn what_goes_around_in_the_end_counts_from_there() {
    each_rank(2, EngineOptions::default().max_cqe, |comm| {
        let call = Call::new(Collective::Broadcast.at(0), DataType::U8, Lengths::InPlace(10), comm.rank_of());
        let call = call.unwrap();
        let steps = call.schedule(comm.rank_of(), staging(comm.options()), false).unwrap().unwrap();
        let over = LinkPlan::around(steps);
        let plan = Plan::new(call, comm.rank_of(), ExecutionPlan::Links(over.clone()));
        let now = Instant::now();
        let mut exec = LinkExec::new(&plan, &over, (comm.rank(), 0), now);
        exec.go_on(now + Duration::from_secs(9));
        let progress = exec.progress();
        assert_eq!([progress.started, progress.progressed], [now, now + Duration::from_secs(9)]);
    });
}
