//! vLLM's `KVConnectorBase_V1`: the half of the scheduler decides, and the half of the worker moves blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::task::Poll;
use std::time::Duration;

use rdma_collective::kv::{
    BlockVerdict, Blocks, HoldKind, KvError, PoolUse, Receiving, Request as Id, Sending,
};
use rdma_core::{Deadline, Wire};
use rustix::process::Signal;

use super::{Job, Server, step_until};
use crate::common::{WIRES, long};
use crate::pair::{SHAPE, line, parse};

/// `kv_transfer_params`: the proxy carries them from one server to the other.
#[derive(Clone, Default)]
struct Params {
    do_remote_prefill: bool,
    do_remote_decode: bool,
    /// The other server's name. vLLM's own has an address here, and prefill does not know decode before it asks.
    peer: &'static str,
    /// The handshake metadata of the other server.
    blob: Vec<u8>,
}

/// A request: a block of tokens for each of its texts.
#[derive(Clone)]
struct Request {
    id: &'static str,
    texts: Vec<u32>,
    params: Params,
}

impl Request {
    fn new(id: &'static str, texts: &[u32], params: Params) -> Self {
        Self { id, texts: texts.to_vec(), params }
    }

    fn tokens(&self) -> usize {
        self.texts.len() * SHAPE.block_tokens as usize
    }
}

/// The ways in which vLLM's own connectors move blocks, too: NIXL's pull, and its push.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pull,
    Push,
}

/// Orders of the scheduler to the worker, in a step.
#[derive(Default)]
struct Meta {
    to_recv: Vec<(Request, Vec<u32>, Vec<u32>)>,
    to_save: Vec<(Request, Vec<u32>)>,
    to_send: Vec<(Request, Vec<u32>)>,
    aborted: Vec<&'static str>,
}

struct Scheduler {
    mode: Mode,
    meta: Meta,
}

impl Scheduler {
    fn new(mode: Mode) -> Self {
        Self { mode, meta: Meta::default() }
    }

    /// The tokens that come from prefill, and that they come between steps.
    fn get_num_new_matched_tokens(&self, request: &Request, computed: usize) -> (usize, bool) {
        let count = if request.params.do_remote_prefill { request.tokens() - computed } else { 0 };
        (count, count > 0)
    }

    fn update_state_after_alloc(&mut self, request: &mut Request, blocks: &[u32], external_tokens: usize) {
        if std::mem::take(&mut request.params.do_remote_prefill) {
            let had = blocks.len() - external_tokens / SHAPE.block_tokens as usize;
            self.meta.to_recv.push((request.clone(), blocks.to_vec(), blocks[..had].to_vec()));
        } else if request.params.do_remote_decode && self.mode == Mode::Push {
            self.meta.to_save.push((request.clone(), blocks.to_vec()));
        }
    }

    fn build_connector_meta(&mut self) -> Meta {
        std::mem::take(&mut self.meta)
    }

    /// Whether the worker still reads the blocks, so that nobody may free them before `get_finished` names them.
    fn request_finished(&mut self, request: &Request, blocks: &[u32], is_aborted: bool) -> bool {
        if is_aborted {
            self.meta.aborted.push(request.id);
        } else if request.params.do_remote_decode && self.mode == Mode::Pull {
            self.meta.to_send.push((request.clone(), blocks.to_vec()));
        }
        request.params.do_remote_decode && !is_aborted
    }
}

struct Worker {
    mode: Mode,
    server: Server,
    /// The time for which blocks are kept for a decode that gives no sign of life, and for one that does.
    lease: [Duration; 2],
    loads: BTreeMap<&'static str, Job<Receiving>>,
    loaded: BTreeMap<&'static str, Vec<u32>>,
    sends: BTreeMap<&'static str, Job<Sending>>,
    /// Layers that were computed before their push had begun.
    saved: Vec<u32>,
    failed: BTreeSet<u32>,
    why: Vec<KvError>,
}

impl Worker {
    /// `register_kv_caches`: the pool of the server is registered, and its node has it.
    fn register_kv_caches(mode: Mode, server: Server) -> Self {
        let (loads, loaded, sends) = Default::default();
        let lease = [Duration::from_secs(60); 2];
        Self {
            mode,
            server,
            lease,
            loads,
            loaded,
            sends,
            saved: vec![],
            failed: BTreeSet::new(),
            why: vec![],
        }
    }

    fn get_handshake_metadata(&self) -> Vec<u8> {
        self.server.node.export()
    }

    /// Begins all transfers of the step. A server that was never met is met meanwhile.
    fn start_load_kv(&mut self, meta: Meta) {
        let node = &self.server.node;
        for (request, blocks, had) in meta.to_recv {
            drop(node.connect(&request.params.blob, long()));
            let list = Blocks::new(&blocks).having(&had);
            let begin = match self.mode {
                Mode::Pull => node.pull_layers(request.params.peer, request.id, list, long()),
                Mode::Push => node.grant(request.params.peer, request.id, list, long()),
            };
            self.loads.insert(request.id, Job::Begins(begin));
            self.loaded.insert(request.id, blocks);
        }
        for (request, blocks) in meta.to_save {
            drop(node.connect(&request.params.blob, long()));
            self.saved.clear();
            let begin = node.push_layers(request.params.peer, request.id, &blocks, long());
            self.sends.insert(request.id, Job::Begins(begin));
        }
        for (request, blocks) in meta.to_send {
            let [lease, cap] = self.lease;
            let id = Id::new(request.id).keep_alive(cap);
            let begin = node.offer(request.params.peer, id, &blocks, Deadline::after(lease));
            self.sends.insert(request.id, Job::Begins(begin));
        }
        // Dropping gives a transfer up. The pool keeps its blocks until no write can reach them.
        for id in meta.aborted {
            drop((self.loads.remove(id), self.loaded.remove(id), self.sends.remove(id)));
        }
        self.save();
    }

    /// Whether the layer of a load is there. vLLM blocks here, for which there is `wait_layer`.
    fn wait_for_layer_load(&mut self, id: &str, layer: u32) -> bool {
        let Ok(Some(load)) = self.loads.get_mut(id).unwrap().transfer() else { return false };
        let Poll::Ready(there) = load.poll_layer(layer) else { return false };
        there.unwrap().iter().all(|verdict| *verdict == BlockVerdict::Valid)
    }

    fn save_kv_layer(&mut self, layer: u32) {
        self.saved.push(layer);
        self.save();
    }

    fn save(&mut self) {
        for push in self.sends.values_mut() {
            let Ok(Some(push)) = push.transfer() else { return };
            self.saved.drain(..).for_each(|layer| push.layer_ready(layer).unwrap());
        }
    }

    /// Requests whose blocks are sent, and requests whose load has ended, well or badly.
    fn get_finished(&mut self) -> [Vec<&'static str>; 2] {
        self.save();
        let (mut sent, mut received) = (vec![], vec![]);
        self.sends.retain(|id, send| {
            let Poll::Ready(ended) = send.poll() else { return true };
            self.why.extend(ended.unwrap().err());
            sent.push(*id);
            false
        });
        self.loads.retain(|id, load| {
            let Poll::Ready(ended) = load.poll() else { return true };
            let blocks = self.loaded.remove(id).unwrap();
            match ended {
                Ok(Ok(received)) => assert!(received.verdicts.all_valid()),
                Ok(Err(error)) => self.failed.extend(error.verdicts.invalid().map(|(_, block, _)| block)),
                Err(_) => self.failed.extend(blocks),
            }
            received.push(*id);
            false
        });
        [sent, received]
    }

    fn get_block_ids_with_load_errors(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.failed)
    }
}

/// Prefill and decode, and what the proxy adds to a request for each of them.
fn servers(wire: Wire, mode: Mode) -> [(Scheduler, Worker, Params); 2] {
    let (at_prefill, at_decode) = match mode {
        Mode::Pull => (PoolUse::SourceToPull, PoolUse::Destination),
        Mode::Push => (PoolUse::Source, PoolUse::Destination),
    };
    let p = Worker::register_kv_caches(mode, Server::on(wire, "p", at_prefill));
    let d = Worker::register_kv_caches(mode, Server::on(wire, "d", at_decode));
    let to_prefill =
        Params { do_remote_decode: true, peer: "d", blob: d.get_handshake_metadata(), ..Params::default() };
    let to_decode =
        Params { do_remote_prefill: true, peer: "p", blob: p.get_handshake_metadata(), ..Params::default() };
    [(Scheduler::new(mode), p, to_prefill), (Scheduler::new(mode), d, to_decode)]
}

#[test]
fn a_pull_passes_through_every_call_and_the_free_waits_until_all_is_sent() {
    let [(mut sched_p, mut p, to_prefill), (mut sched_d, mut d, to_decode)] =
        servers(Wire::Local, Mode::Pull);
    d.server.node.connect(&to_decode.blob, long()).wait().unwrap();
    // Prefill: the whole prompt is computed, and the request is finished.
    let (texts, at_p, at_d) = ([50, 51, 52], [7, 2, 9], [4, 1, 0]);
    let mut request = Request::new("r", &texts, to_prefill);
    assert_eq!(sched_p.get_num_new_matched_tokens(&request, 0), (0, false));
    sched_p.update_state_after_alloc(&mut request, &at_p, 0);
    p.start_load_kv(sched_p.build_connector_meta());
    p.server.compute_all(&at_p, &texts);
    assert!(sched_p.request_finished(&request, &at_p, false), "the blocks are not free yet");
    p.start_load_kv(sched_p.build_connector_meta());
    assert_eq!(p.get_finished(), [[""; 0]; 2]);
    // Decode: it has the first block, and loads the others.
    d.server.compute_all(&at_d[..1], &texts[..1]);
    let mut request = Request::new("r", &texts, to_decode);
    let computed = SHAPE.block_tokens as usize;
    assert_eq!(sched_d.get_num_new_matched_tokens(&request, computed), (2 * computed, true));
    sched_d.update_state_after_alloc(&mut request, &at_d, 2 * computed);
    assert_eq!(sched_d.get_num_new_matched_tokens(&request, computed), (0, false), "it is asked for once");
    d.start_load_kv(sched_d.build_connector_meta());
    let mut is_sent = false;
    for layer in 0..SHAPE.layers {
        step_until("a layer is loaded", || {
            is_sent |= p.get_finished()[0] == ["r"];
            d.wait_for_layer_load("r", layer)
        });
        at_d.iter().zip(&texts).for_each(|(block, text)| d.server.assert_has(layer, *block, *text));
    }
    step_until("the load has ended", || d.get_finished() == [vec![], vec!["r"]]);
    assert!(d.get_block_ids_with_load_errors().is_empty());
    step_until("the blocks are sent", || is_sent || p.get_finished()[0] == ["r"]);
    assert!(p.server.are_free(&at_p) && d.server.are_free(&at_d) && p.why.is_empty());
}

#[test]
fn layers_are_loaded_while_later_ones_are_computed() {
    let [(mut sched_p, mut p, to_prefill), (mut sched_d, mut d, to_decode)] =
        servers(Wire::Local, Mode::Push);
    let (texts, at_p, at_d) = ([60, 61], [3, 5], [8, 6]);
    let mut request = Request::new("r", &texts, to_decode);
    let tokens = request.tokens();
    sched_d.update_state_after_alloc(&mut request, &at_d, tokens);
    d.start_load_kv(sched_d.build_connector_meta());
    assert!(!d.wait_for_layer_load("r", 0), "prefill has not begun, and decode's loop goes on");
    let mut request = Request::new("r", &texts, to_prefill);
    sched_p.update_state_after_alloc(&mut request, &at_p, 0);
    p.start_load_kv(sched_p.build_connector_meta());
    for layer in 0..SHAPE.layers {
        at_p.iter().zip(&texts).for_each(|(block, text)| p.server.compute(layer, *block, *text));
        p.save_kv_layer(layer);
        step_until("the layer is loaded", || {
            let is_last = layer + 1 == SHAPE.layers;
            is_last || (p.get_finished() == [[""; 0]; 2] && d.wait_for_layer_load("r", layer))
        });
    }
    assert!(sched_p.request_finished(&request, &at_p, false));
    step_until("the load has ended", || d.get_finished() == [vec![], vec!["r"]]);
    d.server.assert_has_all(&at_d, &texts);
    step_until("wait_for_save", || p.get_finished() == [vec!["r"], vec![]]);
    assert!(p.server.are_free(&at_p));
}

#[test]
fn blocks_that_nobody_loads_are_free_when_their_lease_ends_or_decode_is_gone() {
    for is_gone in [false, true] {
        let [(mut sched_p, mut p, to_prefill), (_, d, _)] = servers(Wire::Local, Mode::Pull);
        d.server.node.connect(&p.get_handshake_metadata(), long()).wait().unwrap();
        p.lease = [Duration::from_secs(1), Duration::from_secs(if is_gone { 60 } else { 2 })];
        let request = Request::new("r", &[1], to_prefill);
        assert!(sched_p.request_finished(&request, &[7], false));
        p.start_load_kv(sched_p.build_connector_meta());
        step_until("the offer has begun", || p.get_finished()[0] == ["r"] || !p.server.are_free(&[7]));
        assert_eq!(p.server.pool.held(7), Some(HoldKind::Leased));
        let d = (!is_gone).then_some(d);
        step_until("the lease has ended", || p.get_finished() == [vec!["r"], vec![]]);
        assert!(p.server.are_free(&[7]));
        let [why] = &p.why[..] else { panic!("one reason: {:?}", p.why) };
        assert_eq!(matches!(why, KvError::LeaseExpired { .. }), d.is_some(), "{why}");
    }
}

#[test]
fn a_request_aborted_amid_its_load_frees_blocks_once_no_write_can_reach_them() {
    for (wire, round) in WIRES.into_iter().flat_map(|wire| (0..7).map(move |round| (wire, round))) {
        let [(mut sched_p, mut p, to_prefill), (mut sched_d, mut d, to_decode)] = servers(wire, Mode::Push);
        let (texts, at_p, at_d) = ([100 + round, 200 + round], [3, 5], [8, 6]);
        for (id, is_aborted) in [("aborted", true), ("next", false)] {
            let mut load = Request::new(id, &texts, to_decode.clone());
            let tokens = load.tokens();
            sched_d.update_state_after_alloc(&mut load, &at_d, tokens);
            d.start_load_kv(sched_d.build_connector_meta());
            let mut save = Request::new(id, &texts, to_prefill.clone());
            sched_p.update_state_after_alloc(&mut save, &at_p, 0);
            p.start_load_kv(sched_p.build_connector_meta());
            p.server.compute_all(&at_p, &texts);
            p.save_kv_layer(0);
            if is_aborted {
                step_until("the first layer is there", || {
                    p.get_finished();
                    d.wait_for_layer_load(id, 0)
                });
                assert!(!sched_d.request_finished(&load, &at_d, true));
                d.start_load_kv(sched_d.build_connector_meta());
                // The blocks are given to the next request only now.
                step_until("decode's blocks are free", || d.server.are_free(&at_d));
                step_until("prefill has heard of it", || p.get_finished()[0] == ["aborted"]);
                assert!(matches!(p.why.pop(), Some(KvError::PeerRevoked { .. })));
                continue;
            }
            (1..SHAPE.layers).for_each(|layer| p.save_kv_layer(layer));
            let (mut is_sent, mut is_loaded) = (false, false);
            step_until("it is sent and loaded", || {
                is_sent |= p.get_finished()[0] == ["next"];
                is_loaded |= d.get_finished()[1] == ["next"];
                is_sent && is_loaded
            });
            assert!(p.why.is_empty() && d.failed.is_empty(), "{:?}, {:?}", p.why, d.failed);
            d.server.assert_has_all(&at_d, &texts);
        }
    }
}

/// A prefill in a process of its own, which sends one layer and computes no other.
#[test]
#[ignore = "a peer of the next test, which starts it"]
fn one_prefill() {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let server = Server::on(Wire::Mapped, "p", PoolUse::Source);
    server.compute_all(&[0, 1], &[70, 71]);
    print!("\n{}", line(&server.node.export()));
    std::io::stdout().flush().unwrap();
    step_until("decode has come", || !server.node.peers().is_empty());
    let push = server.node.push_layers("d", "r", &[0, 1], long()).wait().unwrap();
    push.layer_ready(0).unwrap();
    _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn a_killed_prefill_leaves_blocks_with_load_errors() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["connectors::vllm::one_prefill", "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let blob = lines.find_map(|line| parse(&line)).expect("it says its blob");
    let mut d = Worker::register_kv_caches(Mode::Push, Server::on(Wire::Mapped, "d", PoolUse::Destination));
    let mut sched = Scheduler::new(Mode::Push);
    let params = Params { do_remote_prefill: true, peer: "p", blob, ..Params::default() };
    let mut request = Request::new("r", &[70, 71], params);
    let tokens = request.tokens();
    sched.update_state_after_alloc(&mut request, &[4, 2], tokens);
    d.start_load_kv(sched.build_connector_meta());
    step_until("the first layer is there", || d.wait_for_layer_load("r", 0));
    d.server.assert_has(0, 4, 70);
    child.kill().unwrap();
    child.wait().unwrap();
    step_until("the load has ended", || d.get_finished()[1] == ["r"]);
    // vLLM computes these blocks itself, and may do so at once.
    assert_eq!(d.get_block_ids_with_load_errors(), BTreeSet::from([2, 4]));
    assert!(d.server.are_free(&[4, 2]));
}
