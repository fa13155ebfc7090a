//! Operation graphs: canonical form, text and JSON.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::Operation;
use kiln::plan::Problem;
use kiln::{DType, OperationGraph, TensorDesc};
use proptest::prelude::*;

fn operation(mode: Mode, inputs: &[i64], output: i64) -> Operation {
    Operation::pointwise(Pointwise::new(mode), inputs, output)
}

fn tensor(uid: i64, name: &str) -> TensorDesc {
    TensorDesc::packed(uid, name, &[4, 8], DType::F32)
}

fn hidden(uid: i64) -> TensorDesc {
    TensorDesc { is_virtual: true, ..tensor(uid, "") }
}

#[test]
fn uids_and_insertion_order_do_not_change_the_form() {
    let first = OperationGraph::new(
        vec![tensor(1, "a"), tensor(2, "b"), hidden(3), hidden(4), tensor(5, "y")],
        vec![
            operation(Mode::Exp, &[1], 3),
            operation(Mode::TanhFwd, &[2], 4),
            operation(Mode::Sub, &[3, 4], 5),
        ],
    )
    .unwrap();
    let second = OperationGraph::new(
        vec![tensor(-7, "y"), hidden(90), tensor(11, "b"), hidden(2), tensor(40, "a")],
        vec![
            operation(Mode::Sub, &[90, 2], -7),
            operation(Mode::TanhFwd, &[11], 2),
            operation(Mode::Exp, &[40], 90),
        ],
    )
    .unwrap();
    assert_eq!(first.form_digest(), second.form_digest());
    assert_eq!(first.canonical().tensors, second.canonical().tensors);
    assert_eq!(first.canonical().operations, second.canonical().operations);
    assert_ne!(first.digest(), second.digest(), "a plan binds uids");
    assert_ne!(first, second);
    let uids = first.canonical().uids.iter().zip(second.canonical().uids);
    for (a, b) in uids {
        assert_eq!(first.tensor(*a).unwrap().name, second.tensor(*b).unwrap().name);
    }
}

#[test]
fn meaning_changes_the_form() {
    let graph = |mode: Mode, inputs: &[i64]| {
        let tensors = vec![tensor(1, "a"), tensor(2, "b"), tensor(3, "y")];
        OperationGraph::new(tensors, vec![operation(mode, inputs, 3)]).unwrap()
    };
    let base = graph(Mode::Sub, &[1, 2]);
    assert_ne!(base.form_digest(), graph(Mode::Sub, &[2, 1]).form_digest());
    assert_ne!(base.form_digest(), graph(Mode::Add, &[1, 2]).form_digest());
    assert_eq!(base.form_digest(), graph(Mode::Sub, &[1, 2]).form_digest());
}

#[test]
fn ignored_parameters_and_paths_of_names_do_not() {
    let graph = |name: &str, op: Pointwise| {
        let tensors = vec![tensor(1, name), tensor(2, "y")];
        let exp = Operation::pointwise(op, &[1], 2);
        OperationGraph::new(tensors, vec![exp]).unwrap()
    };
    let base = graph("layers.0.x", Pointwise::new(Mode::Exp));
    let other = graph("layers.1.x", Pointwise::new(Mode::Exp).shape(3.0));
    assert_eq!(base.form_digest(), other.form_digest());
}

/// A chain of binary operations over three inputs, as (mode, operand, operand) steps.
fn steps_graph(
    steps: &[(usize, usize, usize)],
    uid: impl Fn(i64) -> i64,
    rotate: usize,
) -> OperationGraph {
    let modes = [Mode::Add, Mode::Sub, Mode::Mul, Mode::Div, Mode::Max, Mode::Pow];
    let mut tensors = vec![tensor(uid(0), "a"), tensor(uid(1), "b"), tensor(uid(2), "c")];
    let mut operations = Vec::new();
    for (at, (mode, first, second)) in steps.iter().enumerate() {
        let result = 3 + at as i64;
        let operand = |pick: &usize| uid((pick % (3 + at)) as i64);
        let inputs = [operand(first), operand(second)];
        operations.push(operation(modes[mode % modes.len()], &inputs, uid(result)));
        // Alternating outputs and inner results; what is not read below becomes an output.
        tensors.push(TensorDesc { is_virtual: true, ..tensor(uid(result), "") });
    }
    let read: Vec<i64> = operations.iter().flat_map(|op| op.inputs.clone()).collect();
    tensors.retain(|tensor| tensor.is_virtual || read.contains(&tensor.uid));
    for (at, tensor) in tensors.iter_mut().enumerate() {
        if tensor.is_virtual && !read.contains(&tensor.uid) {
            (tensor.is_virtual, tensor.name) = (false, format!("y{at}"));
        }
    }
    let count = tensors.len();
    tensors.rotate_left(rotate % count);
    operations.rotate_left(rotate % steps.len());
    OperationGraph::new(tensors, operations).expect("connected through its inputs")
}

proptest! {
    #[test]
    fn any_order_and_numbering_has_the_same_form(
        mut steps in prop::collection::vec((0..6usize, 0..99usize, 0..99usize), 1..12),
        rotate in 0..50usize,
        factor in 1..1000i64,
    ) {
        // The first step reads a and b, the last c: every input is used and all is connected.
        (steps[0].1, steps[0].2) = (0, 1);
        let last = steps.len() - 1;
        if last > 0 {
            (steps[last].1, steps[last].2) = (2 + last, 2);
            for step in &mut steps[1..last] {
                step.1 = 0;
            }
        }
        let plain = steps_graph(&steps, |uid| uid, 0);
        let moved = steps_graph(&steps, |uid| (uid * 7919 + 13) % 10007 * factor, rotate);
        prop_assert_eq!(plain.form_digest(), moved.form_digest());
    }

    #[test]
    fn mangled_problems_are_refused_or_planned_never_a_panic(
        example in 0..3usize,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        number in prop::sample::select(vec!["0", "-1", "9223372036854775807", "4611686018427387"]),
    ) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/problems/");
        let name = ["bias_gelu_residual", "swish_backward", "causal_mask"][example];
        let text = std::fs::read_to_string(format!("{folder}{name}.json")).unwrap();
        let mut bytes = text.replacen("768", number, 2).replacen("1024", number, 1).into_bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = if byte.is_ascii() { byte } else { bytes[at] };
        }
        let Ok(graph) = OperationGraph::from_json(&String::from_utf8_lossy(&bytes)) else {
            return Ok(());
        };
        let target = kiln::target::Target::named("h200").unwrap();
        if let Ok(config) = kiln::engine::choose(graph.canonical(), &target, &Default::default()) {
            let supported = kiln::engine::supported(&config.engine, graph.canonical(), &target);
            let lowering = supported.unwrap().lower(&config).unwrap();
            let kernel = &lowering.kernels[0];
            kiln::codegen::Templates::embedded().render(&kernel.spec).unwrap();
        }
    }
}

#[test]
fn json_round_trips_with_every_parameter() {
    let mut graph = OperationGraph::builder();
    let x = graph.tensor(TensorDesc {
        strides: vec![16, 2],
        alignment: 4,
        ..TensorDesc::packed(1, "x", &[4, 8], DType::F16)
    });
    let scale = graph.scalar("scale", 2, DType::F64);
    let op = Pointwise::new(Mode::ReluFwd).relu(-0.1, 6.5, 0.01).alphas(0.1, 1.0);
    let clipped = graph.pointwise(op, &[x]).unwrap();
    let scaled = graph.pointwise(Pointwise::new(Mode::Mul).alphas(1.0, -3.0), &[clipped, scale]);
    let index = graph.pointwise(Pointwise::new(Mode::GenIndex).axis(1), &[x]).unwrap();
    let y = graph.pointwise(Pointwise::new(Mode::Add), &[scaled.unwrap(), index]).unwrap();
    graph.output(y, "y", DType::Bf16);
    let graph = graph.build().unwrap();
    let text = graph.to_json();
    let back = OperationGraph::from_json(&text).unwrap();
    assert_eq!(back, graph);
    assert_eq!(back.to_json(), text);
    assert_eq!(
        graph.to_string(),
        "input  x: f16[4, 8] strides [16, 2] align 4\n\
         input  scale: f64[1, 1] by value\n\
         \u{20}      #3: f32[4, 8] = relu_fwd{alpha1=0.1, lower_clip=-0.1, upper_clip=6.5, \
         slope=0.01}(x)\n\
         \u{20}      #5: f32[4, 8] = gen_index{axis=1}(x)\n\
         \u{20}      #4: f32[4, 8] = mul{alpha2=-3}(#3, scale)\n\
         output y: bf16[4, 8] = add(#4, #5)\n"
    );
}

#[test]
fn infinite_clips_survive_json_and_null_is_no_default() {
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4], DType::F32);
    let clip = Pointwise::new(Mode::ReluFwd).relu(f64::NEG_INFINITY, 6.0, 0.0);
    let y = graph.pointwise(clip, &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let text = graph.to_json();
    assert!(text.contains("\"relu_lower_clip\": \"-inf\""), "{text}");
    assert_eq!(OperationGraph::from_json(&text).unwrap(), graph);
    let error =
        OperationGraph::from_json(&text.replace("\"-inf\"", "null")).unwrap_err().to_string();
    assert!(error.contains("expected a number, \"inf\" or \"-inf\""), "{error}");
    let error = OperationGraph::from_json(&text.replace("\"x\"", "\"#2\"")).unwrap_err();
    assert_eq!(error.to_string(), "tensor `#2`: a name must not begin with `#`, which marks uids");
}

#[test]
fn the_example_problems_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/problems");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let problem = Problem::from_json(&text);
        assert!(problem.is_ok(), "{}: {problem:?}", path.display());
        count += 1;
    }
    assert!(count >= 3, "{count} examples");
}
