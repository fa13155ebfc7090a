//! When built networks compile: at once, for every number of steps and whatever states a call
//! brings; a question of sizes never. And what they keep.

use std::time::Duration;

use kiln::device::DeviceChoice;
use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;
use kiln::graph::RowLayout;
use kiln::layers::{ForwardMode, PersistentRnn, RnnPack};
use kiln::plan::{Background, Manifest, PlannedKernel, Tier};
use kiln::rnn::{
    CellKind, Extent, Optional, Rnn, RnnDataDescriptor, RnnDataSettings, Role, WeightSpace,
};
use kiln::{Config, DType, ExecutionPlan, Kiln};

use crate::{allocations, harness};

fn open() -> (Kiln, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache_dir = Some(folder.path().to_owned());
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let kiln = Kiln::open(Config { device, cache_dir, ..Config::default() }).expect("it opens");
    (kiln, folder)
}

fn compiled(kiln: &Kiln) -> u64 {
    kiln.metrics().kernels.get("compiled").copied().unwrap_or(0)
}

#[test]
fn building_compiles_and_nothing_else_does() {
    let (kiln, _folder) = open();
    let rnn = Rnn::lstm(16, 32).dtype(DType::F16);
    let mut built = kiln.build_rnn_dynamic(&rnn, 4).expect("supported");
    let first = compiled(&kiln);
    assert!(first >= 2, "{first} kernels");
    for states in 0..16 {
        let with = Optional {
            h_initial: states & 1 > 0,
            h_final: states & 2 > 0,
            states_initial: states & 4 > 0,
            states_final: states & 8 > 0,
            ..Optional::default()
        };
        for steps in [1, 7, 64] {
            built.prepare(steps, with).expect("supported");
        }
    }
    assert_eq!(compiled(&kiln), first);
}

/// What another number of steps runs is not even rendered: its kernels are described alike.
#[test]
fn another_number_of_steps_renders_nothing() {
    let (kiln, _folder) = open();
    for rnn in [Rnn::lstm(16, 32).dtype(DType::F16).layers(2), Rnn::gru(16, 32).bidirectional()] {
        let mut built = kiln.build_rnn_dynamic(&rnn, 4).expect("supported");
        for reserve in [false, true] {
            let with = Optional { reserve, ..Optional::default() };
            let kernels = |plan: &ExecutionPlan| {
                let described = |kernel: &PlannedKernel| kernel.spec().clone();
                plan.kernels().iter().map(described).collect::<Vec<_>>()
            };
            let first = kernels(built.prepare(32, with).expect("supported"));
            for steps in [33, 47, 63] {
                let own = kernels(built.prepare(steps, with).expect("supported"));
                assert_eq!(own.len(), first.len());
                for (own, first) in own.iter().zip(&first) {
                    let [one, other] = [own, first].map(|of| of.parameters.as_object().unwrap());
                    let apart = one.iter().find(|(name, value)| other[*name] != **value);
                    assert_eq!(apart, None, "{}", own.stem);
                    assert_eq!(own, first);
                }
            }
        }
    }
}

/// Without a compiler, kernels of exactly this number of steps are enough, as packs have them.
#[test]
fn training_runs_on_what_was_built_for_its_number_of_steps() {
    let (kiln, folder) = open();
    // Its products have other tiles than those of 64 steps.
    let (rnn, batch, steps) = (Rnn::lstm(16, 32).dtype(DType::F16), 4, 100);
    let with = Optional { reserve: true, ..Optional::default() };
    let states = Optional {
        h_initial: true,
        h_final: true,
        states_initial: true,
        states_final: true,
        ..with
    };
    let training = rnn.training(Extent { batch, rows: batch * steps }, states).expect("valid");
    for network in [&training.forward, &training.data] {
        kiln.plan(&network.graph).expect("supported");
    }
    let strict = strict(&folder);
    let mut built = strict.rnn(&rnn, batch).expect("valid");
    let space = built.temp_space(batch * steps, with).expect("supported");
    let plan = built.prepare(steps, with).expect("its kernels are there");
    assert!(plan.workspace_bytes() <= space.workspace_bytes);
    assert_eq!(compiled(&strict), 0);
}

/// Kernels count vectors at run time: packed networks of any number of them share kernels.
#[test]
fn another_number_of_packed_vectors_compiles_nothing() {
    for rnn in [
        Rnn::lstm(16, 32).dtype(DType::F16).bidirectional(),
        Rnn::gru(16, 32).layers(2),
        // With a product and a cell for every step.
        Rnn::lstm(16, 1024).dtype(DType::F64),
    ] {
        let (kiln, _folder) = open();
        let rnn = rnn.layout(RowLayout::Packed);
        let mut built = kiln.build_rnn_dynamic(&rnn, 5).expect("supported");
        let with = Optional { lengths: true, ..Optional::default() };
        built.prepare_packed(9, with).expect("supported");
        let before = compiled(&kiln);
        for rows in [7, 16, 21] {
            built.prepare_packed(rows, with).expect("supported");
        }
        assert_eq!(compiled(&kiln), before, "{rnn:?}");
    }
}

/// So do those of large layers on Hopper, whose products leave their prologues to other kernels.
#[test]
fn kernels_of_prologues_serve_all_steps_in_training() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let device = Some(DeviceChoice::Null("h200".to_owned()));
    let cache_dir = Some(folder.path().to_owned());
    let kiln = Kiln::open(Config { device, cache_dir, ..Config::default() }).expect("it opens");
    let dropout = DropoutDescriptor::set(Real::new(0.1), 1).expect("valid");
    let rnn = Rnn::lstm(512, 512).dtype(DType::F16).layers(2).dropout(dropout);
    let mut built = kiln.rnn(&rnn, 32).expect("valid");
    let with = Optional { reserve: true, ..Optional::default() };
    let mut counts = Vec::new();
    for steps in [256, 511, 300, 400] {
        let forward = built.prepare(steps, with).expect("supported");
        let mut apart = forward.parts().iter().filter(|of| of.config.engine == "pointwise").count();
        for plan in built.prepare_backward(steps, with).expect("supported").concat() {
            apart += plan.parts().iter().filter(|of| of.config.engine == "pointwise").count();
        }
        // Of the dropout, in the forward pass and in that of the weights; of three operands that
        // are kept in f32.
        assert!(apart >= 5, "{apart}");
        counts.push(compiled(&kiln));
    }
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

/// In training, products along the vectors count them too: other numbers of steps, from a power of
/// two to the next, share all kernels of all passes.
#[test]
fn another_number_of_steps_in_training_compiles_nothing() {
    for rnn in [Rnn::lstm(16, 32).dtype(DType::F16).bidirectional(), Rnn::gru(16, 32).layers(2)] {
        for layout in [RowLayout::SequenceMajor, RowLayout::Packed] {
            let (kiln, _folder) = open();
            let rnn = rnn.clone().layout(layout);
            let (batch, most) = (4, 4 * 64);
            let mut built = kiln.rnn(&rnn, batch).expect("supported");
            let packed = layout == RowLayout::Packed;
            let with = Optional { lengths: packed, reserve: true, ..Optional::default() };
            let extent = Extent { batch, rows: most };
            let training = rnn.training(extent, with).expect("valid");
            let mut memory = RnnPack::new();
            let mut buffers = Vec::new();
            let networks = [&training.forward, &training.data];
            for network in networks.into_iter().chain(&training.weights) {
                for role in network.roles() {
                    let bytes = vec![0; network.bytes(role) as usize];
                    let buffer = kiln.device().upload(&bytes).expect("memory");
                    memory = memory.with(role, &buffer);
                    buffers.push(buffer);
                }
            }
            let gradients = vec![0; WeightSpace::new(&rnn).expect("valid").bytes() as usize];
            let gradients = kiln.device().upload(&gradients).expect("memory");
            memory = memory.with(Role::WeightGradients, &gradients);
            let lengths = |rows: i64| {
                let of = |at: i64| (rows / batch + i64::from(at < rows % batch)) as i32;
                let bytes: Vec<u8> = (0..batch).flat_map(|at| of(at).to_ne_bytes()).collect();
                kiln.device().upload(&bytes).expect("memory")
            };
            let mut first = None;
            for rows in [4 * 32, 4 * 63, 4 * 47, 4 * 60 + if packed { 3 } else { 0 }] {
                let sizes = built.temp_space(rows, with).expect("supported");
                let before = compiled(&kiln);
                let workspace = kiln.device().alloc(sizes.workspace_bytes).expect("memory");
                let pack = memory.clone().with_workspace(&workspace);
                let stream = kiln.stream();
                if packed {
                    let pack = pack.with(Role::Lengths, &lengths(rows));
                    built.forward_packed(&stream, rows, &pack).expect("runs");
                    built.backward_data_packed(&stream, rows, &pack).expect("runs");
                    built.backward_weights_packed(&stream, rows, &pack).expect("runs");
                } else {
                    built.forward(&stream, rows / batch, &pack).expect("runs");
                    built.backward_data(&stream, rows / batch, &pack).expect("runs");
                    built.backward_weights(&stream, rows / batch, &pack).expect("runs");
                }
                stream.synchronize().expect("runs");
                match first {
                    None => first = Some(compiled(&kiln)),
                    Some(_) => assert_eq!(compiled(&kiln), before, "{rows} vectors of {rnn:?}"),
                }
            }
        }
    }
}

#[test]
fn questions_of_sizes_compile_nothing() {
    for kind in [CellKind::Lstm, CellKind::GruResetBefore] {
        let (kiln, _folder) = open();
        let rnn = Rnn::new(kind, 8, 16).layers(2).bidirectional();
        let mut built = kiln.build_rnn_dynamic(&rnn, 3).expect("supported");
        let first = compiled(&kiln);
        for (mode, seq_lengths) in [
            (ForwardMode::Training, vec![5, 5, 5]),
            (ForwardMode::Training, vec![5, 3, 2]),
            (ForwardMode::Inference, vec![5, 3, 2]),
        ] {
            let x = RnnDataDescriptor::set(RnnDataSettings {
                data_type: DType::F32,
                layout: RowLayout::SequenceMajor,
                max_seq_length: 5,
                batch_size: 3,
                vector_size: 8,
                seq_lengths,
                padding_fill: None,
            });
            let x = x.expect("valid");
            let before = compiled(&kiln);
            let sizes = built.temp_space_sizes(mode, &x).expect("supported");
            assert_eq!(compiled(&kiln), before, "{mode:?}");
            // What a plan takes then is at most what was said.
            let with = Optional {
                lengths: x.is_ragged(),
                reserve: mode == ForwardMode::Training,
                ..Optional::default()
            };
            let plan = built.prepare(5, with).expect("supported");
            assert!(plan.workspace_bytes() <= sizes.workspace_bytes, "{mode:?}");
            assert_eq!(built.temp_space_sizes(mode, &x).expect("supported"), sizes);
        }
        assert!(compiled(&kiln) >= first);
    }
}

/// A network that was made without building it compiles where it is first needed.
#[test]
fn networks_are_made_without_compiling() {
    let (kiln, _folder) = open();
    let dropout = DropoutDescriptor::set(Real::new(0.5), 7).expect("valid");
    for rnn in [Rnn::lstm(8, 16), Rnn::gru(8, 16).layers(2).dropout(dropout)] {
        let before = compiled(&kiln);
        let mut made = kiln.rnn(&rnn, 2).expect("valid");
        made.temp_space(10, Optional { reserve: true, ..Optional::default() }).expect("supported");
        assert_eq!(compiled(&kiln), before, "{rnn:?}");
        made.prepare(5, Optional::default()).expect("supported");
        assert!(compiled(&kiln) > before, "{rnn:?}");
    }
    let error = kiln.rnn(&Rnn::lstm(8, 0), 2).expect_err("it has no units");
    assert_eq!(error.kind(), kiln::ErrorKind::BadParam);
}

/// Sizes that were given out before anything was built are enough for all that is built later,
/// among it other kernels that stand in while those of the network are compiled.
#[test]
fn sizes_hold_for_what_is_built_later() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let device = Some(DeviceChoice::Sim("h100".to_owned()));
    let background = Some(Background::default());
    let cache_dir = Some(folder.path().to_owned());
    let config = Config { device, cache_dir, background, ..Config::default() };
    let kiln = Kiln::open(config).expect("it opens");
    let of = |rnn: &Rnn, rows: i64, with: Optional| {
        let extent = Extent { batch: 4, rows };
        let space = kiln.rnn_temp_space(rnn, extent, with).expect("supported");
        let mut made = kiln.rnn(rnn, 4).expect("valid");
        assert_eq!(made.temp_space(rows, with).expect("supported"), space);
        let plan = made.prepare(rows / 4, with).expect("supported").clone();
        assert!(plan.workspace_bytes() <= space.workspace_bytes, "{rnn:?} {rows}: {space:?}");
        if plan.tier() != Tier::Special {
            plan.settle(Duration::from_secs(300)).expect("it compiles");
            assert!(plan.workspace_bytes() <= space.workspace_bytes, "{rnn:?} {rows}: {space:?}");
        }
        assert_eq!(kiln.rnn_temp_space(rnn, extent, with).expect("supported"), space);
    };
    for rnn in [
        Rnn::lstm(24, 32).dtype(DType::F16).layers(2).bidirectional(),
        Rnn::gru(8, 16),
        Rnn::new(CellKind::GruResetBefore, 8, 16).dtype(DType::F64),
    ] {
        for rows in [4, 400] {
            of(&rnn, rows, Optional::default());
            of(&rnn, rows, Optional { lengths: true, reset: true, ..Optional::default() });
        }
    }
}

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = status.split(' ').nth(1).and_then(|of| of.parse().ok()).expect("a number");
    pages * 4096
}

/// Plans of the numbers of steps used last are kept, no others.
#[test]
fn many_lengths_take_no_more_memory_than_fifty() {
    let test = "rnn_builds::many_lengths_take_no_more_memory_than_fifty";
    if harness::in_own_processes(test, &["measure"]).is_none() {
        return;
    }
    let kiln = allocations::null();
    let lengths = |built: &mut PersistentRnn, all: std::ops::Range<i64>| {
        for steps in all {
            built.prepare(steps, Optional::default()).expect("supported");
        }
    };
    let mut built = kiln.build_rnn_dynamic(&Rnn::lstm(64, 64).layers(2), 8).expect("supported");
    lengths(&mut built, 1..51);
    let before = resident();
    lengths(&mut built, 51..351);
    let grown = resident().saturating_sub(before);
    // Kept, they would be 100 MB.
    assert!(grown < 32 << 20, "{grown} bytes more");
}

/// What cannot be built says so where it is built.
#[test]
fn errors_of_compilation_belong_to_the_build() {
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let folder = tempfile::tempdir().expect("temporary folder");
    let cache_dir = Some(folder.path().to_owned());
    let no_jit = Some(true);
    let config = Config { device, cache_dir, no_jit, ..Config::default() };
    let kiln = Kiln::open(config).expect("it opens");
    let error = kiln.build_rnn_dynamic(&Rnn::gru(8, 16), 2).expect_err("nothing is compiled");
    assert!(error.to_string().starts_with("no-JIT mode: kernel "), "{error}");
}

/// Products of all steps' inputs are planned for as many rows as they have, to a power of two: not
/// for those of one step, whose sums would be split over blocks that there are enough of.
#[test]
fn products_have_settings_for_their_rows() {
    for target in ["t4", "a100", "rtx4090", "h200", "b200", "rtx5090"] {
        let device = Some(DeviceChoice::Null(target.to_owned()));
        let kiln = Kiln::open(Config { device, ..harness::config() }).expect("it opens");
        for dtype in [DType::F16, DType::F32] {
            for (units, batch, steps) in [(256, 8, 512), (256, 64, 100), (1024, 64, 100)] {
                let rnn = Rnn::lstm(units, units).dtype(dtype);
                let rows = batch * steps;
                let extent = Extent { batch, rows };
                let space = kiln.rnn_temp_space(&rnn, extent, Optional::default());
                let bytes = space.expect("supported").workspace_bytes;
                // Gates in f32 are most of it. Kernels for each step have sums of their own.
                let gates = (rows * 4 * units * 4) as u64;
                assert!(
                    bytes < gates * 5 / 4 + (20 << 20),
                    "{target}: {bytes} of {gates}, {rnn:?}"
                );
            }
        }
    }
}

#[test]
fn layers_plan_as_their_graphs_do() {
    let device = Some(DeviceChoice::Null("h200".to_owned()));
    let kiln = Kiln::open(Config { device, ..harness::config() }).expect("it opens");
    let states = Optional {
        h_initial: true,
        h_final: true,
        states_initial: true,
        states_final: true,
        ..Optional::default()
    };
    let mut products = Vec::new();
    for batch in [8, 64] {
        let rnn = Rnn::lstm(512, 512).dtype(DType::F16);
        let mut built = kiln.rnn(&rnn, batch).expect("valid");
        for (steps, like) in [(1, 1), (100, 64), (512, 512)] {
            let plan = built.prepare(steps, Optional::default()).expect("supported");
            let own: Vec<_> = plan.parts().iter().map(|part| part.config.clone()).collect();
            let extent = Extent { batch, rows: batch * like };
            let network = rnn.network(extent, states).expect("valid");
            let parts = kiln.parts(&network.graph).expect("supported");
            assert_eq!(own, parts.into_iter().map(|part| part.config).collect::<Vec<_>>());
            products.push(own[0].clone());
        }
    }
    products.dedup();
    assert!(products.len() >= 4, "{products:?}");
}

fn strict(folder: &tempfile::TempDir) -> Kiln {
    let device = Some(DeviceChoice::Sim("sim".to_owned()));
    let cache_dir = Some(folder.path().to_owned());
    let config = Config { device, cache_dir, no_jit: Some(true), ..Config::default() };
    Kiln::open(config).expect("it opens")
}

/// Without a compiler, kernels that were built for fewer steps serve more.
#[test]
fn kernels_of_one_step_serve_more_without_a_compiler() {
    let (kiln, folder) = open();
    let rnn = Rnn::lstm(64, 64);
    let one = kiln.rnn(&rnn, 4).expect("valid").prepare(1, Optional::default()).cloned();
    let one = one.expect("supported");
    let strict = strict(&folder);
    let mut built = strict.rnn(&rnn, 4).expect("valid");
    for steps in [512, 3, 100] {
        let space = built.temp_space(4 * steps, Optional::default()).expect("supported");
        let plan = built.prepare(steps, Optional::default()).expect("its kernels are there");
        assert_eq!(plan.parts()[0].config, one.parts()[0].config, "{steps} steps");
        assert!(plan.workspace_bytes() <= space.workspace_bytes, "{steps} steps");
    }
    assert_eq!(compiled(&strict), 0);
}

/// A network in a manifest brings what a layer runs for as many steps and for fewer.
#[test]
fn what_is_warmed_serves_fewer_steps() {
    let (kiln, folder) = open();
    let manifest = r#"[[problem]]
inline = '''{"rnn": {"cell": "lstm", "input_size": 64, "hidden_size": 64, "batch": 4, "steps": 200,
    "dtype": "f32"}}'''
"#;
    let manifest = Manifest::parse(manifest, folder.path()).expect("valid");
    let summary = kiln.warm(&manifest, &[], |_| ()).expect("it compiles");
    assert!(summary.failed.is_empty(), "{:?}", summary.failed);
    let strict = strict(&folder);
    let mut built = strict.rnn(&Rnn::lstm(64, 64), 4).expect("valid");
    let mut products = Vec::new();
    for steps in [1, 2, 7, 64, 100, 127, 128, 200] {
        let plan = built.prepare(steps, Optional::default()).expect("its kernels are there");
        products.push(plan.parts()[0].config.clone());
    }
    products.dedup();
    assert!(products.len() > 1, "{products:?}");
    assert_eq!(compiled(&strict), 0);
}
