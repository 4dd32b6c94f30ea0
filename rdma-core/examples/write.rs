//! Writes 64 KiB into a peer's memory and checks them there: `cargo run -p rdma-core --example write`.

use std::{error::Error, time::Duration};

use rdma_core::*;

const BYTES: usize = 64 << 10;

/// Opens the first RDMA device whose port is up, or else the software device.
fn open_best() -> Result<Context, error::OpenError> {
    let is_up = |open: &Context| open.port(PortNum(1)).is_ok_and(|port| port.state == PortState::ACTIVE);
    let opened = DeviceList::probe().devices().iter().flat_map(Device::open).find(is_up);
    opened.map_or_else(|| Device::soft(SoftOptions::default()).open(), Ok)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let context = open_best()?;
    let (pd, port) = (context.alloc_pd()?, context.port(PortNum(1))?);
    let gid = gid::choose(port.port, &context.gids(port.port)?, &gid::Preference::new(port.link_layer))?;
    let path = PathOptions { gid_index: gid.entry.index, ..PathOptions::default() };
    let retry = RetryOptions::suiting(&context.attributes()?);

    // Each side has a worker of its own. Here both are in one process; usually they are on two hosts.
    let new_side = || -> Result<(Worker, QueuePair<Init>), Box<dyn Error + Send + Sync>> {
        let mut worker = context.worker(WorkerOptions::default())?;
        let qp = worker.create_queue_pair(&pd, &QueuePairOptions::default())?;
        let qp = qp.init(&mut worker, &InitOptions::default())?;
        Ok((worker, qp))
    };
    let ((mut writer, writer_qp), (mut target, target_qp)) = (new_side()?, new_side()?);
    let region = pd.alloc_region(BYTES, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    // Send these values to the other side, for example over a TCP connection.
    let writer_endpoint: Endpoint = writer_qp.endpoint(&writer, path.gid_index)?;
    let (target_endpoint, remote) = (target_qp.endpoint(&target, path.gid_index)?, region.remote());
    let target_qp = target_qp.connect(&mut target, &writer_endpoint, &path, &retry)?;
    let writer_qp = writer_qp.connect(&mut writer, &target_endpoint, &path, &retry)?;
    // The immediate consumes this receive and tells the target that all bytes are there.
    target.post_recv(&target_qp, Segment::Empty)?;
    let mut source = pd.alloc_local(BYTES)?;
    source.fill(0xA5);
    writer.post(&writer_qp, Work::write(source, remote).with_imm(7))?;
    let deadline = Deadline::after(Duration::from_secs(5));
    writer.wait(deadline)?.result?;
    assert_eq!(target.wait(deadline)?.result?.imm, Some(7));
    let mut arrived = vec![0; BYTES];
    region.copy_out(0, &mut arrived)?;
    assert_eq!(arrived, [0xA5; BYTES]);
    println!("wrote {BYTES} bytes: every byte arrived");
    Ok(())
}
