//! Bad input: each kind with its exact error, and nothing lost.

use kiln::engine::EngineConfig;
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Operation};
use kiln::{Config, DType, Error, ErrorKind, Kiln, OperationGraph, TensorDesc, VariantPack};

use crate::harness;

fn tensor(uid: i64, name: &str, dims: &[i64]) -> TensorDesc {
    TensorDesc::packed(uid, name, dims, DType::F32)
}

fn hidden(uid: i64, name: &str, dims: &[i64]) -> TensorDesc {
    TensorDesc { is_virtual: true, ..tensor(uid, name, dims) }
}

fn op(mode: Mode, inputs: &[i64], output: i64) -> Operation {
    Operation::pointwise(Pointwise::new(mode), inputs, output)
}

#[track_caller]
fn refused(kind: ErrorKind, text: &str, result: Result<impl std::fmt::Debug, Error>) {
    let error = result.expect_err("bad input is refused");
    assert_eq!((error.kind(), error.to_string().as_str()), (kind, text));
}

#[track_caller]
fn invalid(text: &str, tensors: Vec<TensorDesc>, operations: Vec<Operation>) {
    refused(ErrorKind::BadParam, text, OperationGraph::new(tensors, operations));
}

#[test]
fn shapes_that_do_not_fit() {
    let y = || tensor(3, "y", &[4, 8]);
    let graph = |b: &[i64], y: TensorDesc| vec![tensor(1, "x", &[4, 8]), tensor(2, "b", b), y];
    invalid(
        "add: dimensions cannot be broadcast: `x` is [4, 8], `b` is [4, 7]",
        graph(&[4, 7], y()),
        vec![op(Mode::Add, &[1, 2], 3)],
    );
    invalid(
        "add: operands differ in rank: `x` is [4, 8], `b` is [8]",
        graph(&[8], y()),
        vec![op(Mode::Add, &[1, 2], 3)],
    );
    invalid(
        "add: output `y` is [4, 9], expected [4, 8]",
        graph(&[1, 8], tensor(3, "y", &[4, 9])),
        vec![op(Mode::Add, &[1, 2], 3)],
    );
    invalid(
        "binary_select: ternary operations do not broadcast: `x` is [4, 8], `b` is [1, 8]",
        graph(&[1, 8], y()),
        vec![op(Mode::BinarySelect, &[1, 2, 1], 3)],
    );
    invalid(
        "gen_index: axis -1 is not in [0, 1]",
        vec![tensor(1, "x", &[4, 8]), y()],
        vec![op(Mode::GenIndex, &[1], 3)],
    );
    invalid(
        "add: expected 2 operands, got 1",
        vec![tensor(1, "x", &[4, 8]), y()],
        vec![op(Mode::Add, &[1], 3)],
    );
}

#[test]
fn graphs_that_are_none() {
    let x = || tensor(1, "x", &[4]);
    let y = || tensor(2, "y", &[4]);
    invalid("the graph has no operation", vec![x()], vec![]);
    invalid("neg: no tensor of the graph has uid 9", vec![x(), y()], vec![op(Mode::Neg, &[9], 2)]);
    invalid(
        "the graph has a cycle: `a` -> `b` -> `c` -> `a`",
        vec![x(), hidden(3, "b", &[4]), hidden(4, "a", &[4]), hidden(5, "c", &[4]), y()],
        vec![
            op(Mode::Add, &[1, 5], 4),
            op(Mode::Neg, &[4], 3),
            op(Mode::Neg, &[3], 5),
            op(Mode::Neg, &[5], 2),
        ],
    );
    invalid(
        "tensors `x` and `z` share uid 1",
        vec![x(), tensor(1, "z", &[4])],
        vec![op(Mode::Neg, &[1], 1)],
    );
    invalid(
        "tensors with uids 1 and 2 are both named `x`",
        vec![x(), tensor(2, "x", &[4])],
        vec![op(Mode::Neg, &[1], 2)],
    );
    invalid(
        "tensor `y` is written by two operations",
        vec![x(), y()],
        vec![op(Mode::Neg, &[1], 2), op(Mode::Abs, &[1], 2)],
    );
    invalid(
        "tensor `h` is virtual but no operation writes it",
        vec![hidden(1, "h", &[4]), y()],
        vec![op(Mode::Neg, &[1], 2)],
    );
    invalid(
        "tensor `h` is virtual but no operation reads it",
        vec![x(), y(), hidden(3, "h", &[4])],
        vec![op(Mode::Neg, &[1], 2), op(Mode::Neg, &[1], 3)],
    );
    invalid(
        "tensor `z` is not used by any operation",
        vec![x(), y(), tensor(3, "z", &[4])],
        vec![op(Mode::Neg, &[1], 2)],
    );
    invalid(
        "the operations form 2 unconnected graphs",
        vec![x(), y(), tensor(3, "z", &[4]), tensor(4, "w", &[4])],
        vec![op(Mode::Neg, &[1], 2), op(Mode::Neg, &[3], 4)],
    );
    refused(
        ErrorKind::NotSupported,
        "neg: `x` is both read and written: give the output a uid of its own and pass the same \
         pointer for both",
        OperationGraph::new(vec![x()], vec![op(Mode::Neg, &[1], 1)]),
    );
    refused(
        ErrorKind::NotSupported,
        "tensor `y` is written but its elements may overlap: dimensions [2, 4], strides [2, 1]",
        OperationGraph::new(
            vec![
                tensor(1, "x", &[2, 4]),
                TensorDesc { strides: vec![2, 1], ..tensor(2, "y", &[2, 4]) },
            ],
            vec![op(Mode::Neg, &[1], 2)],
        ),
    );
}

#[test]
fn parameters_out_of_range() {
    let check = |text: &str, op: Pointwise| {
        let operation = Operation::pointwise(op, &[1], 2);
        invalid(text, vec![tensor(1, "x", &[4]), tensor(2, "y", &[4])], vec![operation]);
    };
    check("exp: alpha1 NaN is not finite", Pointwise::new(Mode::Exp).alphas(f64::NAN, 1.0));
    check(
        "exp: alpha2 2 is set without a second operand",
        Pointwise::new(Mode::Exp).alphas(1.0, 2.0),
    );
    check(
        "relu_fwd: relu_lower_clip 3 is not at most relu_upper_clip 2",
        Pointwise::new(Mode::ReluFwd).relu(3.0, 2.0, 0.0),
    );
    check(
        "swish_fwd: beta is 0 in the math precision",
        Pointwise::new(Mode::SwishFwd).shape(1e-60),
    );
}

#[test]
fn problem_files() {
    let read = OperationGraph::from_json;
    let refuse = |text: &str, json: &str| refused(ErrorKind::BadParam, text, read(json));
    refuse("malformed problem: EOF while parsing an object at line 1 column 1", "{");
    refuse(
        "malformed problem: unknown field `gaph`, expected `graph` at line 1 column 7",
        r#"{"gaph": 1}"#,
    );
    let problem = |dtype: &str, mode: &str, input: &str| {
        format!(
            r#"{{"graph": {{"tensors": [{{"name": "x", "dtype": "{dtype}", "dims": [4]}},
            {{"name": "y", "dtype": "f32", "dims": [4]}}],
            "operations": [{{"pointwise": "{mode}", "inputs": ["{input}"], "output": "y"}}]}}}}"#
        )
    };
    assert!(read(&problem("f32", "neg", "x")).is_ok());
    refuse("unknown pointwise mode `gelu`, did you mean `gelu_fwd`?", &problem("f32", "gelu", "x"));
    refuse("unknown pointwise mode `quux`", &problem("f32", "quux", "x"));
    refuse("neg: no tensor of the graph is named `z`", &problem("f32", "neg", "z"));
    refuse(
        "tensor `x`: unknown data type `fp32`: expected one of f64, f32, f16, bf16, i64, i32, \
         f8e4m3, f8e5m2, i8, u8, bool",
        &problem("fp32", "neg", "x"),
    );
}

#[test]
fn variant_packs() {
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[100], DType::F32);
    let scale = graph.scalar("scale", 1, DType::F32);
    let h = graph.pointwise(Pointwise::new(Mode::Mul), &[x, scale]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Exp), &[h]).unwrap();
    graph.name(h, "h", DType::F32);
    graph.output(y, "y", DType::F32);
    let plan = kiln.plan(&graph.build().unwrap()).unwrap();
    let buffer = |bytes: u64| kiln.device().alloc(bytes).unwrap();
    let (from, to) = (buffer(400), buffer(400));
    let whole = VariantPack::new().with(x, &from).with(y, &to).with_value(scale, 2.0);
    let refuse = |text: &str, pack: &VariantPack| {
        refused(ErrorKind::BadParam, text, plan.execute(&kiln.stream(), pack));
    };
    from.write(0, &[0; 400]).unwrap();
    to.write(0, &[7; 400]).unwrap();
    refuse(
        "variant pack: tensor `h` (uid 3) is virtual: it has no memory",
        &whole.clone().with(h, &from),
    );
    refuse(
        "variant pack: tensor `y` (uid 4) is missing",
        &VariantPack::new().with(x, &from).with_value(scale, 2.0),
    );
    refuse(
        "variant pack: no tensor of the graph has uid 77",
        &VariantPack::new().with(x, &from).with(77, &to).with_value(scale, 2.0),
    );
    refuse(
        "variant pack: tensor `scale` (uid 2) is by value but the pack holds memory",
        &whole.clone().with(scale, &from),
    );
    refuse(
        "variant pack: tensor `x` (uid 1) is in memory but the pack holds a value",
        &whole.clone().with_value(x, 1.0),
    );
    let small = buffer(399);
    refuse(
        "tensor `x` (uid 1): the buffer has 399 bytes, the tensor spans 400",
        &whole.clone().with(x, &small),
    );
    let mut misaligned = whole.clone();
    harness::place(&mut misaligned, x, from.address() + 4, 400);
    let address = from.address() + 4;
    refuse(
        &format!("tensor `x` (uid 1): address {address:#x} is not aligned to 16 bytes"),
        &misaligned,
    );
    let other = kiln::device::Device::null(kiln.device().target().clone());
    refused(
        ErrorKind::BadParam,
        "the stream belongs to another device than the plan",
        plan.execute(&other.default_stream(), &whole),
    );
    let elsewhere = other.alloc(400).unwrap();
    refuse(
        "tensor `x` (uid 1): the buffer is on another device",
        &whole.clone().with(x, &elsewhere),
    );
    let mut shifted = whole.clone();
    harness::place(&mut shifted, x, to.address() + 16, 400);
    refuse("tensor `y` (uid 4) is written but its memory overlaps that of `x`", &shifted);
    assert_eq!(to.to_vec().unwrap(), [7; 400], "a refused call writes nothing");
    plan.execute(&kiln.stream(), &whole).unwrap();
    assert_eq!(DType::F32.read(&to.to_vec().unwrap()), 1.0);
}

#[test]
fn memory_shared_with_a_broadcast_operand() {
    // Every row reads the bias while the first one would overwrite it.
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[64, 768], DType::F32);
    let bias = graph.input("bias", &[1, 768], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Add), &[x, bias]).unwrap();
    let doubled = graph.pointwise(Pointwise::new(Mode::Add), &[bias, bias]).unwrap();
    graph.output(y, "y", DType::F32);
    graph.output(doubled, "doubled", DType::F32);
    let plan = kiln.plan(&graph.build().unwrap()).unwrap();
    let buffer = |bytes: u64| kiln.device().alloc(bytes).unwrap();
    let (xs, row) = (buffer(64 * 768 * 4), buffer(768 * 4));
    let pack = VariantPack::new().with(x, &xs).with(bias, &row).with(y, &xs).with(doubled, &row);
    refused(
        ErrorKind::BadParam,
        "tensor `doubled` (uid 4) is written but its memory overlaps that of `bias`",
        plan.execute(&kiln.stream(), &pack),
    );
}

#[test]
fn events_of_two_devices() {
    let target = kiln::target::Target::sim();
    let devices = [0, 1].map(|_| kiln::device::Device::null(target.clone()));
    let [first, second] = devices.map(|device| device.default_stream().record().unwrap());
    refused(
        ErrorKind::BadParam,
        "the events belong to different devices",
        first.elapsed_ms(&second),
    );
}

#[test]
fn engines_and_knobs() {
    let kiln = harness::kiln();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[100], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Exp), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let plan = |config: EngineConfig| kiln.plan_with(&graph, &config);
    let base = EngineConfig::new(
        "pointwise",
        &[("grid", 0), ("items", 1), ("threads", 128), ("vector", 4)],
    );
    assert!(plan(base.clone()).is_ok());
    refused(
        ErrorKind::BadParam,
        "unknown engine `conv`: expected one of pointwise, pointwise_transposed, \
         pointwise_general, pointwise_grouped, reduction_columns, reduction, \
         gemm_wgmma, gemm_mma, gemm_simt, convolution_depthwise, \
         convolution_depthwise_filter, convolution_direct, resample_direct, ctc_loss, \
         pointwise_loop, resident_loop, dynamic_slice, attention_decode, \
         attention_wgmma, attention_mma, attention_simt, attention_backward_wgmma, \
         attention_backward_mma, attention_backward_simt, rnn_cta, rnn_cluster, \
         rnn_grid, rnn_stream, rnn_step, signal",
        plan(EngineConfig::new("conv", &[])),
    );
    refused(
        ErrorKind::BadParam,
        "engine pointwise: knob `vector` is 3, expected one of [1, 2, 4]",
        plan(base.with("vector", 3)),
    );
}

#[test]
fn graphs_no_engine_runs() {
    let mut graph = OperationGraph::builder();
    let [a, b] = ["a", "b"].map(|name| graph.input(name, &[1 << 22, 1 << 22], DType::F32));
    let c = graph.matmul(Matmul::default(), a, b).unwrap();
    graph.output(c, "c", DType::F32);
    refused(
        ErrorKind::NotSupported,
        "no engine runs the graph: pointwise: matmul is not pointwise; \
         reduction_columns: matmul is neither pointwise nor a reduction; \
         gemm_wgmma: the GEMM has more than 2^62 multiplications; \
         convolution_depthwise: matmul is neither a convolution nor pointwise; \
         resample_direct: matmul is neither a resampling nor pointwise; \
         ctc_loss: the graph has no CTC loss; pointwise_loop: the graph has no pointwise loop; \
         resident_loop: the graph has no resident loop; \
         dynamic_slice: the graph has no dynamic slice; \
         attention_decode: matmul is no attention; attention_backward_wgmma: matmul is no \
         gradient of attention; rnn_cta: the operation is not a recurrent \
         layer; signal: the graph has no signal",
        harness::kiln().plan(&graph.build().unwrap()),
    );
}

#[test]
fn a_graph_that_no_engine_runs_as_one() {
    let tensors = vec![
        tensor(1, "s", &[1]),
        tensor(2, "a", &[5]),
        tensor(3, "b", &[7]),
        tensor(4, "y", &[5]),
        tensor(5, "z", &[7]),
    ];
    let operations = vec![op(Mode::Add, &[1, 2], 4), op(Mode::Add, &[1, 3], 5)];
    let graph = OperationGraph::new(tensors, operations).unwrap();
    let knobs = [("grid", 0), ("items", 1), ("threads", 128), ("vector", 1)];
    let config = EngineConfig::new("pointwise", &knobs);
    refused(
        ErrorKind::NotSupported,
        "tensors do not broadcast to one shape: 5 and 7 in one dimension",
        harness::kiln().plan_with(&graph, &config),
    );
}

#[test]
fn missing_nvrtc_names_the_places() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        nvrtc: Some(folder.path().join("none")),
        no_disk_cache: true,
        device: Some("sim".parse().unwrap()),
        ..Config::default()
    };
    let kiln = Kiln::open(config).unwrap();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[100], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Exp), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let place = folder.path().join("none");
    refused(
        ErrorKind::NoCompiler,
        &format!(
            "NVRTC not found: install it (`make setup`, or `pip install nvidia-cuda-nvrtc`) or set \
             KILN_NVRTC to its folder; searched:\n  {} (configured)",
            place.display()
        ),
        kiln.plan(&graph.build().unwrap()),
    );
}

#[test]
fn each_kind_has_a_status_of_the_c_interface() {
    let kinds = [
        (ErrorKind::BadParam, "BAD_PARAM"),
        (ErrorKind::NotSupported, "NOT_SUPPORTED"),
        (ErrorKind::Compile, "INTERNAL_ERROR"),
        (ErrorKind::NoCompiler, "RUNTIME_PREREQUISITE_MISSING"),
        (ErrorKind::ArchMismatch, "ARCH_MISMATCH"),
        (ErrorKind::OutOfMemory, "ALLOC_FAILED"),
        (ErrorKind::Driver, "EXECUTION_FAILED"),
        (ErrorKind::DeviceLost, "EXECUTION_FAILED"),
        (ErrorKind::Io, "EXECUTION_FAILED"),
        (ErrorKind::Internal, "INTERNAL_ERROR"),
    ];
    for (kind, status) in kinds {
        assert_eq!(kind.status(), format!("MCDNN_STATUS_{status}"));
    }
}

#[test]
fn memory_that_is_not_there_is_told_apart() {
    for device in ["sim", "null"] {
        let device = Some(device.parse().unwrap());
        let kiln = Kiln::open(Config { device, no_disk_cache: true, ..Config::default() }).unwrap();
        let error = kiln.device().alloc(1 << 63).expect_err("no device is as large");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
        // Nothing is lost.
        kiln.device().alloc(16).expect("there is enough for that");
    }
}

#[test]
fn a_file_that_is_not_written_is_the_systems_fault() {
    let path = std::path::Path::new("/nowhere/at/all.safetensors");
    let x = tensor(1, "x", &[2]);
    let values = [(1, vec![1.0, 2.0])].into_iter().collect();
    refused(
        ErrorKind::Io,
        "failed to write tensors to `/nowhere/at/all.safetensors`: No such file or directory (os \
         error 2)",
        kiln::plan::write_values(path, [&x].into_iter(), &values),
    );
}

#[test]
fn settings_that_make_no_sense() {
    refused(
        ErrorKind::BadParam,
        "unknown device `gpu`: expected auto, sim[:TARGET], cuda[:N] or null[:TARGET]",
        "gpu".parse::<kiln::device::DeviceChoice>(),
    );
    let open = |config: Config| Kiln::open(Config { no_disk_cache: true, ..config });
    let folder = tempfile::tempdir().unwrap();
    refused(
        ErrorKind::Compile,
        &format!("no *.tera file in template folder `{}`", folder.path().display()),
        open(Config {
            templates: Some(folder.path().to_owned()),
            device: Some("sim".parse().unwrap()),
            ..Config::default()
        }),
    );
    std::fs::write(folder.path().join("a.cu.tera"), "{% if %}").unwrap();
    let error = open(Config {
        templates: Some(folder.path().to_owned()),
        device: Some("sim".parse().unwrap()),
        ..Config::default()
    });
    let text = error.expect_err("the template is malformed").to_string();
    assert!(text.starts_with("failed to parse templates: "), "{text}");
    assert!(text.contains("a.cu:1"), "{text}");
}

#[test]
fn a_template_that_does_not_compile_shows_source_options_and_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pointwise/sm75_pointwise.cu.tera");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "extern \"C\" __global__ void {{ entry }}() { oops; }\n").unwrap();
    let kiln = Kiln::open(Config {
        templates: Some(folder.path().to_owned()),
        no_disk_cache: true,
        device: Some("sim".parse().unwrap()),
        ..Config::default()
    })
    .unwrap();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[100], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Exp), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let error = kiln.plan(&graph.build().unwrap()).expect_err("it does not compile");
    assert_eq!(error.kind(), ErrorKind::Compile);
    let name = "/kiln/sm75_pointwise_f32_flat.cu";
    let line = format!("{name}(1): error: identifier \"oops\" is undefined");
    assert_eq!(error.to_string(), format!("failed to compile `{name}`: {line}"));
    let failure = error.compile_failure().expect("NVRTC was asked");
    assert_eq!((failure.name.as_str(), failure.reason.as_str()), (name, "NVRTC_ERROR_COMPILATION"));
    assert!(failure.source.contains("() { oops; }"), "{}", failure.source);
    assert!(failure.options.contains(&"--gpu-architecture=sm_90a".to_owned()), "{failure:?}");
    assert!(failure.log.contains(&line) && failure.log.contains("1 error detected"), "{failure:?}");
}
