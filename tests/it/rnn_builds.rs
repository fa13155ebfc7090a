//! When built networks compile: at once, for every number of steps and whatever states a call
//! brings; a question of sizes never.

use kiln::device::DeviceChoice;
use kiln::graph::RowLayout;
use kiln::layers::ForwardMode;
use kiln::rnn::{CellKind, Optional, Rnn, RnnDataDescriptor, RnnDataSettings};
use kiln::{Config, DType, Kiln};

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
            // What a plan takes then is what was said.
            let with = Optional {
                lengths: x.is_ragged(),
                reserve: mode == ForwardMode::Training,
                ..Optional::default()
            };
            let plan = built.prepare(5, with).expect("supported");
            match mode {
                ForwardMode::Inference => {
                    assert_eq!(plan.workspace_bytes(), sizes.workspace_bytes);
                }
                // The passes backward may take more.
                ForwardMode::Training => {
                    assert!(plan.workspace_bytes() <= sizes.workspace_bytes);
                }
            }
        }
        assert!(compiled(&kiln) >= first);
    }
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
