//! Resident loops as operations of a graph: their document, what is refused, every setting, target
//! and order of warps against the reference.

use std::sync::Arc;

use kiln::engine::{self, EngineConfig};
use kiln::expr::{Math, Mode, Pointwise, Program};
use kiln::graph::ResidentLoop;
use kiln::graph::{LoopFold, LoopFrame, LoopStage, LoopView, Op, Operation, ReductionOp};
use kiln::target::Target;
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

/// The largest eigenvalue by power iteration, as the example has it.
pub fn iteration() -> OperationGraph {
    let text = include_str!("../../examples/problems/power_iteration.json");
    OperationGraph::from_json(text).unwrap()
}

/// Values with a number of trips.
pub fn values(graph: &OperationGraph, numbers: &[(&str, f64)]) -> Values {
    let spread = |(at, tensor): (usize, &TensorDesc)| {
        let named = numbers.iter().find(|(name, _)| *name == tensor.name);
        let values = match named {
            Some((_, number)) => vec![*number; tensor.elements().unwrap() as usize],
            None => harness::fill(tensor, at as u64 + 1, 1.0),
        };
        (tensor.uid, values)
    };
    graph.inputs().enumerate().map(spread).collect()
}

fn program(
    inputs: &[(&str, DType)],
    lines: &[(Mode, &[&str], &str, DType)],
    outputs: &[&str],
) -> Arc<Program> {
    let mut program = Program::new();
    let mut values = Vec::new();
    for (name, dtype) in inputs {
        values.push((*name, program.input(*name, *dtype)));
    }
    let find = |values: &[(&str, kiln::expr::Value)], name: &str| {
        values.iter().find(|(own, _)| *own == name).expect("named before").1
    };
    for (mode, operands, name, dtype) in lines {
        let operands: Vec<_> = operands.iter().map(|name| find(&values, name)).collect();
        let math = if *dtype == DType::F64 { Math::F64 } else { Math::Default };
        let op = Pointwise { math, ..Pointwise::new(*mode) };
        values.push((*name, program.push(*name, op, &operands, *dtype).unwrap()));
    }
    outputs.iter().for_each(|name| program.output(find(&values, name)));
    Arc::new(program)
}

fn view(value: usize, first: i64, strides: &[i64]) -> LoopView {
    LoopView { value, first, strides: strides.to_vec() }
}

/// Relaxation of a system in f64 until its residual is small or a counter ends it: a condition in
/// the middle of a trip, folds of all kinds and types, views from the end, strided operands, a
/// number that is passed by value, results from both places.
pub fn relaxation(limited: bool) -> OperationGraph {
    use DType::{Bool, F64, I32};
    use ReductionOp::{Add, Max, Min, Mul};
    let (rows, columns) = (37, 40);
    // Values: 0 i, 1 x; 2 one, 3 a, 4 b, 5 small, 6 ones.
    let squares = LoopFold {
        op: Add,
        extents: vec![columns],
        operands: vec![view(3, 0, &[columns, 1]), view(1, columns - 1, &[0, -1])],
        term: program(&[("a", F64), ("x", F64)], &[(Mode::Mul, &["a", "x"], "ax", F64)], &["ax"]),
    };
    let counted = |op, value: usize, first: i64, extents: &[i64], strides: &[i64]| LoopFold {
        op,
        extents: extents.to_vec(),
        operands: vec![view(value, first, strides)],
        term: program(&[("n", I32)], &[(Mode::Identity, &["n"], "own", I32)], &["own"]),
    };
    let extreme = |op, value| LoopFold {
        op,
        extents: vec![rows],
        operands: vec![view(value, 0, &[0, 1])],
        term: program(&[("r", F64)], &[(Mode::Abs, &["r"], "size", F64)], &["size"]),
    };
    let stages = vec![
        // 7: the residual b - a x, of which x is read from its end.
        LoopStage {
            extents: vec![rows],
            folds: vec![squares],
            operands: vec![view(4, 0, &[1])],
            program: program(
                &[("ax", F64), ("b", F64)],
                &[(Mode::Sub, &["b", "ax"], "residual", F64)],
                &["residual"],
            ),
        },
        // 8, 9: the next counter and its end, 13, of integer folds: 1, 6, 1 and 1.
        LoopStage {
            extents: vec![1],
            folds: vec![
                counted(Min, 6, 0, &[2, 3], &[0, 3, 1]),
                counted(Add, 2, 0, &[6], &[0, 0]),
                counted(Mul, 6, 5, &[6], &[0, -1]),
                counted(Max, 6, 0, &[6], &[0, 1]),
            ],
            operands: vec![view(0, 0, &[0])],
            program: program(
                &[("least", I32), ("sum", I32), ("product", I32), ("most", I32), ("i", I32)],
                &[
                    (Mode::Add, &["least", "sum"], "seven", I32),
                    (Mode::Mul, &["most", "product"], "one", I32),
                    (Mode::Sub, &["seven", "one"], "six", I32),
                    (Mode::Add, &["i", "six"], "next_i", I32),
                    (Mode::Add, &["seven", "six"], "end", I32),
                ],
                &["next_i", "end"],
            ),
        },
        // 10, 11: whether the largest residual is not small and the counter below its end, and the
        // smallest residual.
        LoopStage {
            extents: vec![1],
            folds: vec![extreme(Max, 7), extreme(Min, 7)],
            operands: vec![view(5, 0, &[0]), view(0, 0, &[0]), view(9, 0, &[0])],
            program: program(
                &[("most", F64), ("least", F64), ("small", F64), ("i", I32), ("end", I32)],
                &[
                    (Mode::CmpGt, &["most", "small"], "large", Bool),
                    (Mode::CmpLt, &["i", "end"], "below", Bool),
                    (Mode::LogicalAnd, &["large", "below"], "more", Bool),
                    (Mode::Identity, &["least"], "smallest", F64),
                ],
                &["more", "smallest"],
            ),
        },
        // 12: the next x, from its end again.
        LoopStage {
            extents: vec![columns],
            folds: vec![LoopFold {
                op: Add,
                extents: vec![rows],
                operands: vec![view(3, columns - 1, &[-1, columns]), view(7, 0, &[0, 1])],
                term: program(
                    &[("a", F64), ("r", F64)],
                    &[(Mode::Mul, &["a", "r"], "ar", F64)],
                    &["ar"],
                ),
            }],
            operands: vec![view(1, 0, &[1]), view(5, 0, &[0])],
            program: program(
                &[("step", F64), ("x", F64), ("small", F64)],
                &[
                    (Mode::Mul, &["small", "step"], "moved", F64),
                    (Mode::Add, &["x", "moved"], "next_x", F64),
                ],
                &["next_x"],
            ),
        },
    ];
    let op = ResidentLoop {
        stages,
        yields: vec![8, 12, 11, 12, 10],
        frame: LoopFrame {
            states: 2,
            iterated: vec![],
            captured: 5,
            last: vec![true, true],
            stacked: vec![false, false],
            count: limited,
            condition: true,
            trips_max: 7,
        },
    };
    let mut tensors = vec![
        TensorDesc::packed(1, "n", &[1], I32),
        TensorDesc::packed(2, "i", &[1], I32),
        TensorDesc::packed(3, "x", &[2, columns / 2], F64),
        TensorDesc::packed(4, "one", &[1], I32),
        TensorDesc::packed(5, "a", &[rows, columns], F64),
        TensorDesc::packed(6, "b", &[rows], F64),
        TensorDesc::packed(7, "small", &[1], F64),
        TensorDesc::packed(8, "ones", &[6], I32),
        TensorDesc::packed(9, "counted", &[1], I32),
        TensorDesc::packed(10, "solution", &[2, columns / 2], F64),
        TensorDesc::packed(11, "smallest", &[9], F64),
        TensorDesc::packed(12, "all", &[5, 2, columns / 2], F64),
        TensorDesc::packed(13, "trips", &[1], I32),
    ];
    tensors[6].by_value = true;
    // Columns of A, and rows of all, that are apart.
    tensors[4].strides = vec![1, rows + 3];
    tensors[11].strides = vec![2 * columns + 6, columns + 1, 2];
    let first = usize::from(!limited);
    let operation = Operation {
        op: Op::ResidentLoop(op),
        inputs: (first as i64 + 1..9).collect(),
        outputs: (9..14).collect(),
    };
    OperationGraph::new(tensors.split_off(first), vec![operation]).unwrap()
}

/// The numbers of a relaxation that ends by its condition, its count or the most trips; its counter
/// goes by 6 from the first one to 13.
pub fn numbers(first: f64, count: f64, small: f64) -> [(&'static str, f64); 5] {
    [("n", count), ("i", first), ("one", 1.0), ("ones", 1.0), ("small", small)]
}

#[test]
fn every_end_in_both_dialects() {
    for kiln in harness::dialects() {
        let graph = iteration();
        let text = graph.to_json();
        assert_eq!(OperationGraph::from_json(&text).unwrap(), graph, "{text}");
        let plan = kiln.plan(&graph).unwrap();
        assert_eq!(plan.kernels().len(), 1, "one launch");
        for count in [-1.0, 0.0, 1.0, 2.0, 5.0, 6.0, 9.0] {
            let inputs = values(&graph, &[("steps", count)]);
            let actual = harness::run_plan(kiln, &plan, &inputs).unwrap();
            harness::compare(&graph, &inputs, &actual, &format!("{count} trips"));
        }
        for limited in [true, false] {
            let graph = relaxation(limited);
            let text = graph.to_json();
            assert_eq!(OperationGraph::from_json(&text).unwrap(), graph, "{text}");
            let plan = kiln.plan(&graph).unwrap();
            // Never true, ended by the count or the condition, more than the most trips.
            let cases = [(4.0, 9.0, 1e3), (-99.0, 3.0, 1e-3), (4.0, 0.0, 1e-3), (-14.0, 9.0, 1e-3)];
            for (first, count, small) in cases.into_iter().chain([(-99.0, 99.0, 1e-4)]) {
                let inputs = values(&graph, &numbers(first, count, small));
                let actual = harness::run_plan(kiln, &plan, &inputs).unwrap();
                let what = format!("limited {limited}, {count} trips, {small}");
                harness::compare(&graph, &inputs, &actual, &what);
            }
        }
    }
}

/// Blocks that meet by themselves, in a cluster and at a counter.
#[test]
fn every_setting_on_every_target() {
    let cases = [
        (iteration(), vec![("steps", 5.0)]),
        (relaxation(true), numbers(-14.0, 9.0, 1e-3).to_vec()),
    ];
    for name in ["t4", "a100", "h200"] {
        let target = Target::named(name).unwrap();
        let Some(kiln) = harness::simulated(name) else { continue };
        for (graph, numbers) in &cases {
            let supported = engine::supported("resident_loop", graph.canonical(), &target).unwrap();
            let inputs = values(graph, numbers);
            let mut results: Option<Values> = None;
            for config in EngineConfig::all("resident_loop", &supported.knobs()) {
                if config.knob("ctas").unwrap() > 32 || supported.lower(&config).is_err() {
                    continue;
                }
                let actual = harness::run(kiln, graph, Some(&config), &inputs).unwrap();
                harness::compare(graph, &inputs, &actual, &format!("{name}, {config}"));
                // An element is summed by the same lanes, however many blocks there are.
                let first = results.get_or_insert_with(|| actual.clone());
                assert_eq!(*first, actual, "{name}, {config}");
            }
        }
    }
}

#[test]
fn what_is_no_loop_is_refused() {
    type Change = fn(&mut ResidentLoop, &mut Vec<TensorDesc>);
    let cases: [(&str, Change); 15] = [
        ("it yields value 2, its stages compute 3..6", |op, _| op.yields[0] = 2),
        ("the next value of `start` is f32[1], it is f32[48]", |op, _| op.yields[0] = 4),
        ("`norms` is f32[7], expected f32[48]", |op, _| op.yields[1] = 3),
        ("`noise` is [0, 48]: no trip has an element", |_, tensors| {
            tensors[2] = TensorDesc::packed(3, "noise", &[0, 48], DType::F32);
        }),
        ("stage 0: it reads elements 0 to 2256 of value 2: f16[2256]", |op, tensors| {
            tensors[3] = TensorDesc::packed(4, "a", &[47, 48], DType::F16);
            op.stages[0].folds[0].operands[0].strides = vec![48, 0];
        }),
        ("stage 0: it reads elements -1 to 46 of value 0: f32[48]", |op, _| {
            op.stages[0].folds[0].operands[1].first = -1;
        }),
        ("stage 0: it reads value 3, 3 are known", |op, _| op.stages[0].operands[0].value = 3),
        ("stage 0: strides [1, 1] are for extents [48]", |op, _| {
            op.stages[0].operands[0].strides.push(1);
        }),
        ("stage 0: its program takes [F16, F32], it is given [F32, F32]", |_, tensors| {
            tensors[3] = TensorDesc::packed(4, "a", &[48, 48], DType::F32);
        }),
        ("stage 1: its extents are [0]", |op, _| op.stages[1].folds[0].extents = vec![0]),
        ("stage 2: its extents are [65536, 65536]", |op, _| {
            op.stages[2].extents = vec![65536; 2];
        }),
        ("stage 1: it folds by avg", |op, _| op.stages[1].folds[0].op = ReductionOp::Avg),
        ("stage 1: its terms are f16", |op, _| {
            let mut term = Program::new();
            let w = term.input("w", DType::F32);
            let op_ = Pointwise::new(Mode::Abs);
            let size = term.push("size", op_, &[w], DType::F16).unwrap();
            term.output(size);
            op.stages[1].folds[0].term = Arc::new(term);
        }),
        ("inputs, outputs and last values are [3, 1, 1], expected [3, 2, 1]", |op, _| {
            op.yields.pop();
        }),
        ("it has neither a count nor a condition", |op, tensors| {
            op.frame.count = false;
            tensors.remove(0);
        }),
    ];
    for (text, change) in cases {
        let graph = iteration();
        let mut tensors = graph.tensors().to_vec();
        let Op::ResidentLoop(mut op) = graph.operations()[0].op.clone() else { unreachable!() };
        change(&mut op, &mut tensors);
        let uids: Vec<i64> = tensors.iter().map(|tensor| tensor.uid).collect();
        let (inputs, outputs) = uids.split_at(uids.len() - 2);
        let (inputs, outputs) = (inputs.to_vec(), outputs.to_vec());
        let operation = Operation { op: Op::ResidentLoop(op), inputs, outputs };
        let error = OperationGraph::new(tensors, vec![operation]).expect_err(text).to_string();
        assert!(error.ends_with(text), "{error}");
        assert!(error.contains("resident_loop{1 states, count, 3 stages}: "), "{error}");
    }
}

#[test]
fn what_the_engine_does_not_take_says_why() {
    type Change = fn(&mut Vec<TensorDesc>);
    let cases: [(&str, Change); 4] = [
        ("2147483647 elements, terms or bytes exceed 1073741824", |_| {}),
        ("the state `start` is passed by value", |tensors| tensors[1].by_value = true),
        ("the state `start` is not packed", |tensors| tensors[1].strides = vec![2]),
        ("`a` has elements that are 2^31 or more apart", |tensors| {
            tensors[3].strides = vec![1 << 30, 1];
        }),
    ];
    for (text, change) in cases {
        let graph = iteration();
        let mut tensors = graph.tensors().to_vec();
        let mut operations = graph.operations().to_vec();
        if text.contains("by value") {
            // One element, of which a state of one is.
            let Op::ResidentLoop(op) = &mut operations[0].op else { unreachable!() };
            for stage in &mut op.stages {
                stage.extents = vec![1];
                for fold in &mut stage.folds {
                    fold.extents = vec![1];
                }
            }
            for at in [1, 4] {
                let TensorDesc { uid, name, dtype, .. } = tensors[at].clone();
                tensors[at] = TensorDesc::packed(uid, name, &[1], dtype);
            }
        }
        if text.contains("exceed") {
            let Op::ResidentLoop(op) = &mut operations[0].op else { unreachable!() };
            // One term again and again.
            op.stages[1].folds[0].extents = vec![i64::from(i32::MAX)];
            op.stages[1].folds[0].operands[0].strides = vec![0, 0];
        }
        change(&mut tensors);
        let graph = OperationGraph::new(tensors, operations).unwrap();
        let target = Target::named("h200").unwrap();
        let refused = engine::supported("resident_loop", graph.canonical(), &target).err();
        let error = refused.expect(text).to_string();
        assert!(error.ends_with(text), "{error}");
    }
}

/// Shapes on every class of target, all heuristics, several orders of warps.
#[test]
fn every_class_of_target() {
    use kiln::engine::Mode::{A, B, Fallback};
    for (at, target) in ["t4", "a100", "l40s", "h200", "b200", "rtx5090"].iter().enumerate() {
        for (turn, heuristic) in [A, B, Fallback].into_iter().enumerate() {
            let seed = (at + turn) as u64;
            let Some(kiln) = harness::simulated_by(target, seed, heuristic) else { continue };
            let what = format!("{target}, heuristic {heuristic}, seed {seed}");
            let graph = iteration();
            harness::check(kiln, &graph, None, &values(&graph, &[("steps", 6.0)]), &what);
            let graph = relaxation(true);
            harness::check(kiln, &graph, None, &values(&graph, &numbers(-14.0, 9.0, 1e-3)), &what);
        }
    }
}

/// Every step of the ladder's cost is counted: a matrix is read once a trip.
#[test]
fn what_a_trip_reads() {
    let graph = iteration();
    let config =
        EngineConfig::new("resident_loop", &[("cluster", 0), ("ctas", 1), ("threads", 256)]);
    let bytes = |steps: f64| {
        let inputs = values(&graph, &[("steps", steps)]);
        harness::count(&graph, Some(&config), &inputs).total.global.bytes
    };
    let trip = bytes(5.0) - bytes(4.0);
    // Both factors of 48 x 48 terms; the noise and w; w again for its maximum; w, its norm and the
    // next vector; the norm, also where it is stacked, and once less of what is padded.
    let (terms, row) = (48 * 48, 48 * 4);
    let expected = terms * (2 + 4) + 2 * row + row + 3 * row + 4 + 4 - 4;
    assert_eq!(trip, expected);
}
