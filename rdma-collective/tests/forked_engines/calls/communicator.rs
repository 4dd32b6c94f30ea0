//! Calls on a communicator.

use rdma_collective::collective::{Algorithm, Communicator, CommunicatorOptions, DataType, Group, ReduceOp};

use super::{Call, Outcome, done, harmless, refused, told};
use crate::fixture::soon;

pub const CALLS: &[Call] = &[
    refused("collective::Communicator::all_gather", |mut f| told(f.comm.all_gather(&mut [0_f32; 4], soon()))),
    refused("collective::Communicator::all_gather_bytes", |mut f| {
        told(f.comm.all_gather_bytes(&mut [0_u8; 16], DataType::F32, soon()))
    }),
    refused("collective::Communicator::all_gather_bytes_into", |mut f| {
        told(f.comm.all_gather_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, soon()))
    }),
    refused("collective::Communicator::all_gather_into", |mut f| {
        told(f.comm.all_gather_into(&[0_f32; 4], &mut [0_f32; 4], soon()))
    }),
    refused("collective::Communicator::all_to_all", |mut f| told(f.comm.all_to_all(&mut [0_f32; 4], soon()))),
    refused("collective::Communicator::all_to_all_bytes", |mut f| {
        told(f.comm.all_to_all_bytes(&mut [0_u8; 16], DataType::F32, soon()))
    }),
    refused("collective::Communicator::all_to_all_bytes_into", |mut f| {
        told(f.comm.all_to_all_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, soon()))
    }),
    refused("collective::Communicator::all_to_all_into", |mut f| {
        told(f.comm.all_to_all_into(&[0_f32; 4], &mut [0_f32; 4], soon()))
    }),
    refused("collective::Communicator::all_gather_v", |mut f| {
        told(f.comm.all_gather_v(&[0_f32; 4], &mut [0_f32; 4], &[2, 2], soon()))
    }),
    refused("collective::Communicator::all_gather_v_bytes", |mut f| {
        told(f.comm.all_gather_v_bytes(&[0_u8; 16], &mut [0_u8; 16], &[2, 2], DataType::F32, soon()))
    }),
    refused("collective::Communicator::all_to_all_v", |mut f| {
        told(f.comm.all_to_all_v(&[0_f32; 4], &[2, 2], &mut [0_f32; 4], &[2, 2], soon()))
    }),
    refused("collective::Communicator::all_to_all_v_bytes", |mut f| {
        told(f.comm.all_to_all_v_bytes(&[0_u8; 16], &[2, 2], &mut [0_u8; 16], &[2, 2], DataType::F32, soon()))
    }),
    refused("collective::Communicator::all_reduce", |mut f| {
        told(f.comm.all_reduce(&mut [0_f32; 4], ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::all_reduce_bytes", |mut f| {
        told(f.comm.all_reduce_bytes(&mut [0_u8; 16], DataType::F32, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::all_reduce_bytes_into", |mut f| {
        told(f.comm.all_reduce_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::all_reduce_into", |mut f| {
        told(f.comm.all_reduce_into(&[0_f32; 4], &mut [0_f32; 4], ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::reduce_scatter", |mut f| {
        told(f.comm.reduce_scatter(&mut [0_f32; 4], ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::reduce_scatter_bytes", |mut f| {
        told(f.comm.reduce_scatter_bytes(&mut [0_u8; 16], DataType::F32, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::reduce_scatter_bytes_into", |mut f| {
        told(f.comm.reduce_scatter_bytes_into(
            &[0_u8; 16],
            &mut [0_u8; 16],
            DataType::F32,
            ReduceOp::Sum,
            soon(),
        ))
    }),
    refused("collective::Communicator::reduce_scatter_into", |mut f| {
        told(f.comm.reduce_scatter_into(&[0_f32; 4], &mut [0_f32; 4], ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::reduce_scatter_v", |mut f| {
        told(f.comm.reduce_scatter_v(&[0_f32; 4], &mut [0_f32; 2], &[2, 2], ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::reduce_scatter_v_bytes", |mut f| {
        told(f.comm.reduce_scatter_v_bytes(
            &[0_u8; 16],
            &mut [0_u8; 8],
            &[2, 2],
            DataType::F32,
            ReduceOp::Sum,
            soon(),
        ))
    }),
    refused("collective::Communicator::broadcast", |mut f| {
        told(f.comm.broadcast(&mut [0_f32; 4], 0, soon()))
    }),
    refused("collective::Communicator::broadcast_bytes", |mut f| {
        told(f.comm.broadcast_bytes(&mut [0_u8; 16], DataType::F32, 0, soon()))
    }),
    refused("collective::Communicator::broadcast_bytes_into", |mut f| {
        told(f.comm.broadcast_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, 0, soon()))
    }),
    refused("collective::Communicator::broadcast_into", |mut f| {
        told(f.comm.broadcast_into(&[0_f32; 4], &mut [0_f32; 4], 0, soon()))
    }),
    refused("collective::Communicator::gather", |mut f| told(f.comm.gather(&mut [0_f32; 4], 0, soon()))),
    refused("collective::Communicator::gather_bytes", |mut f| {
        told(f.comm.gather_bytes(&mut [0_u8; 16], DataType::F32, 0, soon()))
    }),
    refused("collective::Communicator::gather_bytes_into", |mut f| {
        told(f.comm.gather_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, 0, soon()))
    }),
    refused("collective::Communicator::gather_into", |mut f| {
        told(f.comm.gather_into(&[0_f32; 4], &mut [0_f32; 4], 0, soon()))
    }),
    refused("collective::Communicator::scatter", |mut f| told(f.comm.scatter(&mut [0_f32; 4], 0, soon()))),
    refused("collective::Communicator::scatter_bytes", |mut f| {
        told(f.comm.scatter_bytes(&mut [0_u8; 16], DataType::F32, 0, soon()))
    }),
    refused("collective::Communicator::scatter_bytes_into", |mut f| {
        told(f.comm.scatter_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, 0, soon()))
    }),
    refused("collective::Communicator::scatter_into", |mut f| {
        told(f.comm.scatter_into(&[0_f32; 4], &mut [0_f32; 4], 0, soon()))
    }),
    refused("collective::Communicator::gather_v", |mut f| {
        told(f.comm.gather_v(&[0_f32; 4], &mut [0_f32; 4], &[2, 2], 0, soon()))
    }),
    refused("collective::Communicator::gather_v_bytes", |mut f| {
        told(f.comm.gather_v_bytes(&[0_u8; 16], &mut [0_u8; 16], &[2, 2], 0, DataType::F32, soon()))
    }),
    refused("collective::Communicator::scatter_v", |mut f| {
        told(f.comm.scatter_v(&[0_f32; 4], &[2, 2], &mut [0_f32; 4], 0, soon()))
    }),
    refused("collective::Communicator::scatter_v_bytes", |mut f| {
        told(f.comm.scatter_v_bytes(&[0_u8; 16], &[2, 2], &mut [0_u8; 16], 0, DataType::F32, soon()))
    }),
    refused("collective::Communicator::reduce", |mut f| {
        told(f.comm.reduce(&mut [0_f32; 4], ReduceOp::Sum, 0, soon()))
    }),
    refused("collective::Communicator::reduce_bytes", |mut f| {
        told(f.comm.reduce_bytes(&mut [0_u8; 16], DataType::F32, ReduceOp::Sum, 0, soon()))
    }),
    refused("collective::Communicator::reduce_bytes_into", |mut f| {
        told(f.comm.reduce_bytes_into(&[0_u8; 16], &mut [0_u8; 16], DataType::F32, ReduceOp::Sum, 0, soon()))
    }),
    refused("collective::Communicator::reduce_into", |mut f| {
        told(f.comm.reduce_into(&[0_f32; 4], &mut [0_f32; 4], ReduceOp::Sum, 0, soon()))
    }),
    refused("collective::Communicator::barrier", |mut f| told(f.comm.barrier(soon()))),
    refused("collective::Communicator::connect", |mut f| told(f.comm.connect(soon()))),
    refused("collective::Communicator::recv", |mut f| told(f.comm.recv(&mut [0_f32; 4], 1, soon()))),
    refused("collective::Communicator::recv_bytes", |mut f| {
        told(f.comm.recv_bytes(&mut [0_u8; 16], DataType::F32, 1, soon()))
    }),
    refused("collective::Communicator::send", |mut f| told(f.comm.send(&[0_f32; 4], 1, soon()))),
    refused("collective::Communicator::send_bytes", |mut f| {
        told(f.comm.send_bytes(&[0_u8; 16], DataType::F32, 1, soon()))
    }),
    refused("collective::Communicator::send_recv", |mut f| {
        told(f.comm.send_recv(&[0_f32; 4], 1, &mut [0_f32; 4], 1, soon()))
    }),
    refused("collective::Communicator::send_recv_bytes", |mut f| {
        told(f.comm.send_recv_bytes(&[0_u8; 16], 1, &mut [0_u8; 16], 1, DataType::F32, soon()))
    }),
    refused("collective::Communicator::send_recv_replace", |mut f| {
        told(f.comm.send_recv_replace(&mut [0_f32; 4], 1, 1, soon()))
    }),
    refused("collective::Communicator::send_recv_replace_bytes", |mut f| {
        told(f.comm.send_recv_replace_bytes(&mut [0_u8; 16], DataType::F32, 1, 1, soon()))
    }),
    refused("collective::Communicator::split", |mut f| told(f.comm.split(Some(0), 0, soon()))),
    refused("collective::Communicator::start_all_gather", |mut f| {
        told(f.comm.start_all_gather(f.tensor, soon()))
    }),
    refused("collective::Communicator::start_all_gather_into", |mut f| {
        told(f.comm.start_all_gather_into(f.tensor, f.other_tensor, soon()))
    }),
    refused("collective::Communicator::start_all_to_all", |mut f| {
        told(f.comm.start_all_to_all(f.tensor, soon()))
    }),
    refused("collective::Communicator::start_all_to_all_into", |mut f| {
        told(f.comm.start_all_to_all_into(f.tensor, f.other_tensor, soon()))
    }),
    refused("collective::Communicator::start_all_gather_v", |mut f| {
        told(f.comm.start_all_gather_v(f.tensor, f.other_tensor, &[2, 2], soon()))
    }),
    refused("collective::Communicator::start_all_to_all_v", |mut f| {
        told(f.comm.start_all_to_all_v(f.tensor, &[2, 2], f.other_tensor, &[2, 2], soon()))
    }),
    refused("collective::Communicator::start_all_reduce", |mut f| {
        told(f.comm.start_all_reduce(f.tensor, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::start_all_reduce_into", |mut f| {
        told(f.comm.start_all_reduce_into(f.tensor, f.other_tensor, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::start_reduce_scatter", |mut f| {
        told(f.comm.start_reduce_scatter(f.tensor, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::start_reduce_scatter_into", |mut f| {
        told(f.comm.start_reduce_scatter_into(f.tensor, f.other_tensor, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::start_all_reduce_region", |mut f| {
        told(f.comm.start_all_reduce_region(&f.region, 0..16, DataType::F32, ReduceOp::Sum, soon()))
    }),
    refused("collective::Communicator::start_barrier", |mut f| told(f.comm.start_barrier(soon()))),
    refused("collective::Communicator::start_broadcast", |mut f| {
        told(f.comm.start_broadcast(f.tensor, 0, soon()))
    }),
    refused("collective::Communicator::start_broadcast_into", |mut f| {
        told(f.comm.start_broadcast_into(f.tensor, f.other_tensor, 0, soon()))
    }),
    refused("collective::Communicator::start_gather", |mut f| told(f.comm.start_gather(f.tensor, 0, soon()))),
    refused("collective::Communicator::start_gather_into", |mut f| {
        told(f.comm.start_gather_into(f.tensor, f.other_tensor, 0, soon()))
    }),
    refused("collective::Communicator::start_scatter", |mut f| {
        told(f.comm.start_scatter(f.tensor, 0, soon()))
    }),
    refused("collective::Communicator::start_scatter_into", |mut f| {
        told(f.comm.start_scatter_into(f.tensor, f.other_tensor, 0, soon()))
    }),
    refused("collective::Communicator::start_gather_v", |mut f| {
        told(f.comm.start_gather_v(f.tensor, f.other_tensor, &[2, 2], 0, soon()))
    }),
    refused("collective::Communicator::start_scatter_v", |mut f| {
        told(f.comm.start_scatter_v(f.tensor, &[2, 2], f.other_tensor, 0, soon()))
    }),
    refused("collective::Communicator::start_reduce", |mut f| {
        told(f.comm.start_reduce(f.tensor, ReduceOp::Sum, 0, soon()))
    }),
    refused("collective::Communicator::start_reduce_into", |mut f| {
        told(f.comm.start_reduce_into(f.tensor, f.other_tensor, ReduceOp::Sum, 0, soon()))
    }),
    refused("collective::Communicator::start_recv", |mut f| told(f.comm.start_recv(f.tensor, 1, soon()))),
    refused("collective::Communicator::start_send", |mut f| told(f.comm.start_send(f.tensor, 1, soon()))),
    refused("collective::Communicator::start_send_recv", |mut f| {
        told(f.comm.start_send_recv(f.tensor, 1, f.other_tensor, 1, soon()))
    }),
    refused("collective::Communicator::start_send_recv_replace", |mut f| {
        told(f.comm.start_send_recv_replace(f.tensor, 1, 1, soon()))
    }),
    harmless("collective::Communicator::aborter", |f| done(f.comm.aborter())),
    refused("collective::Communicator::alloc", |f| told(f.comm.alloc::<f32>(4))),
    harmless("collective::Communicator::can", |f| done(f.comm.can(Algorithm::Flat))),
    refused("collective::Communicator::close", |f| told(f.comm.close(soon()))),
    harmless("collective::Communicator::drop", |f| {
        drop(f.comm);
        Outcome::Done
    }),
    harmless("collective::Communicator::engine", |f| done(f.comm.engine().options().driver)),
    refused("collective::Communicator::failure", |f| told(f.comm.failure(soon()).map_or(Ok(()), Err))),
    harmless("collective::Communicator::neighbours", |f| done(f.comm.neighbours().count())),
    refused("collective::Communicator::new", |mut f| {
        told(Communicator::new(&f.engine, &mut f.store, CommunicatorOptions::default(), soon()))
    }),
    harmless("collective::Communicator::options", |f| done(f.comm.options().epoch)),
    harmless("collective::Communicator::peers", |f| done(f.comm.peers())),
    harmless("collective::Communicator::rank", |f| done(f.comm.rank())),
    harmless("collective::Communicator::rank_in_parent", |f| done(f.comm.rank_in_parent(0))),
    harmless("collective::Communicator::lost_lanes", |f| done(f.comm.lost_lanes().len())),
    harmless("collective::Communicator::ranks", |f| done(f.comm.ranks().len())),
    harmless("collective::Communicator::size", |f| done(f.comm.size())),
    harmless("collective::Aborter::abort", |f| {
        f.aborter.abort();
        Outcome::Done
    }),
    harmless("collective::Group::new", |_| done(Group::new())),
    harmless("collective::Group::recv", |_| done(Group::new().recv(&mut [0_f32; 4], 1))),
    harmless("collective::Group::recv_bytes", |_| {
        done(Group::new().recv_bytes(&mut [0; 16], DataType::F32, 1))
    }),
    refused("collective::Group::run", |mut f| {
        told(Group::new().send(&[0_f32; 4], 1).recv(&mut [0_f32; 4], 1).run(&mut f.comm, soon()))
    }),
    harmless("collective::Group::send", |_| done(Group::new().send(&[0_f32; 4], 1))),
    harmless("collective::Group::send_bytes", |_| done(Group::new().send_bytes(&[0; 16], DataType::F32, 1))),
];
