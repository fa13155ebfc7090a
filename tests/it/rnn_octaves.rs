//! What a network knows of one number of vectors from others: sizes and plans are those of a
//! network that is asked for nothing else.

use kiln::device::{Buffer, DeviceChoice, Launch};
use kiln::engine::Part;
use kiln::graph::RowLayout;
use kiln::kernel::KernelSpec;
use kiln::layers::{PersistentRnn, RnnPack};
use kiln::plan::PlannedKernel;
use kiln::rnn::{CellKind, Extent, Optional, Rnn, Role, WeightSpace};
use kiln::{Config, DType, ExecutionPlan, Kiln, TensorDesc};

use crate::harness;

const BATCH: i64 = 3;

/// Networks of all layouts and types, some of which have tensors whose sizes are rounded.
fn networks() -> Vec<Rnn> {
    vec![
        Rnn::lstm(16, 32).dtype(DType::F16),
        Rnn::lstm(7, 9).layers(2),
        Rnn::gru(16, 32).dtype(DType::F16).bidirectional().layout(RowLayout::Packed),
        // Sums of what is rounded that are on a line at both ends of an octave, and not between.
        Rnn::gru(4, 9).dtype(DType::F16).layout(RowLayout::Packed),
        Rnn::gru(5, 3).dtype(DType::F64).layers(2).layout(RowLayout::BatchMajor),
        Rnn::lstm(16, 32).dtype(DType::Bf16).projection(8).bidirectional().layers(2),
        Rnn::new(CellKind::Tanh, 33, 17).layout(RowLayout::Packed),
        Rnn::lstm(64, 128).dtype(DType::F16).layers(2).layout(RowLayout::Packed),
    ]
}

fn with(rnn: &Rnn, reserve: bool) -> Optional {
    Optional { lengths: rnn.layout == RowLayout::Packed, reserve, ..Optional::default() }
}

/// Numbers of vectors in some octaves, not in order.
fn numbers(rnn: &Rnn) -> Vec<i64> {
    let unit = if rnn.layout == RowLayout::Packed { 1 } else { BATCH };
    let octave = |first: i64| (first..2 * first).step_by(unit as usize);
    let all = [4, 8, 64].into_iter().flat_map(|steps| octave(BATCH * steps));
    let mut all: Vec<i64> = all.collect();
    // 11 has no divisor in common with their number.
    let count = all.len();
    all = (0..count).map(|at| all[at * 11 % count]).collect();
    all
}

/// Sizes for every number of an octave are those that a question of it alone gets, on every class
/// of target.
#[test]
fn sizes_that_follow_are_those_measured() {
    let targets = ["t4", "a100", "h100", "b200", "rtx5090"];
    for (at, rnn) in networks().into_iter().enumerate() {
        let device = Some(DeviceChoice::Null(targets[at % targets.len()].to_owned()));
        let kiln = Kiln::open(Config { device, ..harness::config() }).expect("it opens");
        for reserve in [false, true] {
            let built = kiln.rnn(&rnn, BATCH).expect("valid");
            let with = with(&rnn, reserve);
            let all = numbers(&rnn);
            let step = if harness::all_are_wanted() || rnn.hidden_size < 16 { 1 } else { 3 };
            for rows in all.iter().step_by(step).copied() {
                let extent = Extent { batch: BATCH, rows };
                let alone = kiln.rnn_temp_space(&rnn, extent, with).expect("supported");
                let known = built.temp_space(rows, with).expect("supported");
                assert_eq!(known, alone, "{rows} vectors of {rnn:?}");
            }
        }
    }
}

/// Kernels, launches and parts of a plan.
fn described(plan: &ExecutionPlan) -> (Vec<(KernelSpec, Launch, Part)>, u64, Vec<i64>) {
    let kernel = |of: &PlannedKernel| (of.spec().clone(), of.launch(), of.part().clone());
    let kernels: Vec<_> = plan.kernels().iter().map(kernel).collect();
    (kernels, plan.workspace_bytes(), plan.tensors().collect::<Vec<_>>())
}

fn prepared(built: &mut PersistentRnn, rows: i64) -> &ExecutionPlan {
    let with = with(built.rnn(), false);
    match built.rnn().layout {
        RowLayout::Packed => built.prepare_packed(rows, with),
        _ => built.prepare(rows / BATCH, with),
    }
    .expect("supported")
}

#[test]
fn plans_that_follow_are_those_made_alone() {
    let kiln = harness::kiln();
    for rnn in networks() {
        let mut built = kiln.rnn(&rnn, BATCH).expect("valid");
        for rows in numbers(&rnn).into_iter().step_by(7) {
            let known = described(prepared(&mut built, rows));
            let mut alone = kiln.rnn(&rnn, BATCH).expect("valid");
            assert_eq!(known, described(prepared(&mut alone, rows)), "{rows} of {rnn:?}");
        }
    }
}

/// A caller's memory for all passes of training.
struct Memory {
    pack: RnnPack,
    written: Vec<(Role, Buffer)>,
    _others: Vec<Buffer>,
}

fn memory(kiln: &Kiln, rnn: &Rnn, rows: i64) -> Memory {
    let with = with(rnn, true);
    let training = rnn.training(Extent { batch: BATCH, rows }, with).expect("valid");
    let space = kiln.rnn_temp_space(rnn, Extent { batch: BATCH, rows }, with).expect("supported");
    let (mut pack, mut written, mut others) = (RnnPack::new(), Vec::new(), Vec::new());
    let mut add = |role: Role, bytes: &[u8], is_written: bool| {
        let buffer = kiln.device().upload(bytes).expect("memory");
        pack = std::mem::take(&mut pack).with(role, &buffer);
        if is_written { written.push((role, buffer)) } else { others.push(buffer) }
    };
    let mut known: Vec<Role> = Vec::new();
    for network in [&training.forward, &training.data].into_iter().chain(&training.weights) {
        for role in network.roles() {
            if known.contains(&role) {
                continue;
            }
            known.push(role);
            let (dtype, dims) = network.tensor(role);
            let tensor = TensorDesc::packed(1, role.name(), &dims, dtype);
            let is_written =
                role.is_output() || role.of_gradient() != role && role != Role::OutputGradient;
            let bytes = match role {
                Role::Lengths => {
                    let of = |at: i64| (rows / BATCH + i64::from(at < rows % BATCH)) as i32;
                    (0..BATCH).flat_map(|at| of(at).to_ne_bytes()).collect()
                }
                _ if is_written || role == Role::Reserve => {
                    vec![0; network.bytes(role) as usize]
                }
                _ => {
                    let values = harness::fill(&tensor, role as u64, 0.5);
                    let mut bytes = vec![0; network.bytes(role) as usize];
                    let elements = bytes.chunks_exact_mut(dtype.bytes());
                    elements.zip(values).for_each(|(to, value)| dtype.write(value, to));
                    bytes
                }
            };
            add(role, &bytes, is_written);
        }
    }
    if !known.contains(&Role::WeightGradients) {
        let bytes = WeightSpace::new(rnn).expect("valid").bytes() as usize;
        add(Role::WeightGradients, &vec![0; bytes], true);
    }
    let workspace = kiln.device().alloc(space.workspace_bytes).expect("memory");
    let pack = pack.with_workspace(&workspace);
    others.push(workspace);
    Memory { pack, written, _others: others }
}

/// What the passes of training write.
fn trained(kiln: &Kiln, built: &mut PersistentRnn, rows: i64) -> Vec<(Role, Vec<u8>)> {
    let Memory { pack, written, .. } = memory(kiln, built.rnn(), rows);
    let stream = kiln.stream();
    if built.rnn().layout == RowLayout::Packed {
        built.forward_packed(&stream, rows, &pack).expect("runs");
        built.backward_data_packed(&stream, rows, &pack).expect("runs");
        built.backward_weights_packed(&stream, rows, &pack).expect("runs");
    } else {
        built.forward(&stream, rows / BATCH, &pack).expect("runs");
        built.backward_data(&stream, rows / BATCH, &pack).expect("runs");
        built.backward_weights(&stream, rows / BATCH, &pack).expect("runs");
    }
    stream.synchronize().expect("runs");
    let read = |(role, buffer): &(Role, Buffer)| (*role, buffer.to_vec().expect("it can be read"));
    written.iter().map(read).collect()
}

/// Bit for bit, on the simulated device.
#[test]
fn passes_that_follow_compute_the_same() {
    let kiln = harness::kiln();
    for rnn in networks() {
        let mut built = kiln.rnn(&rnn, BATCH).expect("valid");
        let odd = if rnn.layout == RowLayout::Packed { 2 } else { 0 };
        for rows in [4, 7, 6, 5].map(|steps| BATCH * steps + odd) {
            let known = trained(kiln, &mut built, rows);
            let mut alone = kiln.rnn(&rnn, BATCH).expect("valid");
            for (one, other) in known.iter().zip(trained(kiln, &mut alone, rows)) {
                assert!(*one == other, "{} of {rows} vectors of {rnn:?}", one.0.name());
            }
        }
    }
}
