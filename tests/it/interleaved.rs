//! Results between the elements of other tensors in one buffer: halves of a row, every second
//! element, parts of a concatenation, in place or not.

use kiln::expr::{Mode, Pointwise};
use kiln::graph::{Matmul, Reduction, ReductionOp};
use kiln::plan::VariantPack;
use kiln::{DType, ErrorKind, OperationGraph, TensorDesc};

use crate::harness;

/// Rotary embeddings: both halves of `y` from those of `x`, which lie at these strides.
fn rope(dims: [i64; 2], strides: [i64; 2]) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut tensor = |uid: i64, name: &str, strides: [i64; 2]| {
        let desc = TensorDesc::packed(uid, name, &dims, DType::F32);
        graph.tensor(TensorDesc { strides: strides.to_vec(), alignment: 4, ..desc })
    };
    let packed = [dims[1], 1];
    let [cos, sin] = [tensor(1, "cos", packed), tensor(2, "sin", packed)];
    let [x1, x2] = [tensor(3, "x1", strides), tensor(4, "x2", strides)];
    let [y1, y2] = [tensor(5, "y1", strides), tensor(6, "y2", strides)];
    let mut product = |a, b| graph.pointwise(Pointwise::new(Mode::Mul), &[a, b]).unwrap();
    let [a, b, c, d] = [product(x1, cos), product(x2, sin), product(x2, cos), product(x1, sin)];
    graph.pointwise_into(Pointwise::new(Mode::Sub), &[a, b], y1);
    graph.pointwise_into(Pointwise::new(Mode::Add), &[c, d], y2);
    graph.build().unwrap()
}

#[test]
fn rope_writes_both_halves_of_a_buffer() {
    let (rows, half) = (6, 16);
    // Halves of a row, and every second element.
    for (strides, second) in [([2 * half, 1], half), ([2 * half, 2], 1)] {
        let graph = rope([rows, half], strides);
        for in_place in [false, true] {
            for kiln in harness::dialects() {
                let plan = kiln.plan(&graph).unwrap();
                let count = (rows * half) as usize;
                let values = |seed: usize| -> Vec<f32> {
                    (0..count).map(|at| ((at * 37 + seed) % 101) as f32 / 50.0 - 1.0).collect()
                };
                let (cos, sin, x1, x2) = (values(1), values(2), values(3), values(4));
                let place = |at: usize, from: i64| {
                    let (row, column) = (at as i64 / half, at as i64 % half);
                    (from + row * strides[0] + column * strides[1]) as usize
                };
                let mut x = vec![0f32; 2 * count];
                for at in 0..count {
                    (x[place(at, 0)], x[place(at, second)]) = (x1[at], x2[at]);
                }
                let bytes =
                    |of: &[f32]| of.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
                let upload = |of: &[f32]| kiln.device().upload(&bytes(of)).unwrap();
                let (cos_at, sin_at, x_at) = (upload(&cos), upload(&sin), upload(&x));
                let y_at = if in_place { None } else { Some(upload(&vec![f32::NAN; 2 * count])) };
                let y_at = y_at.as_ref().unwrap_or(&x_at);
                let mut pack = VariantPack::new().with(1, &cos_at).with(2, &sin_at);
                for (uid, buffer, from) in
                    [(3, &x_at, 0), (4, &x_at, second), (5, y_at, 0), (6, y_at, second)]
                {
                    let bytes = graph.tensor(uid).unwrap().span_bytes().unwrap();
                    harness::place(&mut pack, uid, buffer.address() + 4 * from as u64, bytes);
                }
                plan.execute(&kiln.stream(), &pack).unwrap();
                kiln.stream().synchronize().unwrap();
                let y = y_at.to_vec().unwrap();
                let read =
                    |at: usize| f32::from_le_bytes(y[4 * at..4 * at + 4].try_into().unwrap());
                for at in 0..count {
                    let expected =
                        [x1[at] * cos[at] - x2[at] * sin[at], x2[at] * cos[at] + x1[at] * sin[at]];
                    let actual = [read(place(at, 0)), read(place(at, second))];
                    let close = |(a, b): (f32, f32)| (a - b).abs() < 1e-6;
                    assert!(std::iter::zip(actual, expected).all(close), "{actual:?} {expected:?}");
                }
            }
        }
    }
}

/// Two products and a sum of rows beside each other in one matrix: a concatenation.
#[test]
fn a_concatenation_by_strides() {
    let mut graph = OperationGraph::builder();
    let a = graph.input("a", &[5, 8], DType::F32);
    let columns = [4, 6, 1];
    let mut uids = Vec::new();
    for (at, n) in columns.into_iter().enumerate() {
        let y = match n {
            1 => graph.reduction(Reduction::new(ReductionOp::Add), a, &[5, 1]).unwrap(),
            n => {
                let b = graph.input(&format!("b{at}"), &[8, n], DType::F32);
                graph.matmul(Matmul::default(), a, b).unwrap()
            }
        };
        let y = {
            let uid = 1000 * (1 + at as i64);
            let desc = TensorDesc::packed(uid, format!("y{at}"), &[5, n], DType::F32);
            graph.tensor(TensorDesc { strides: vec![11, 1], alignment: 4, ..desc });
            graph.pointwise_into(Pointwise::new(Mode::Identity), &[y], uid);
            uid
        };
        uids.push(y);
    }
    let graph = graph.build().unwrap();
    let kiln = harness::kiln();
    let plan = kiln.plan(&graph).unwrap();
    let inputs = graph.inputs().map(|of| (of.uid, harness::fill(of, 9, 1.0))).collect();
    let mut bound = harness::bind(kiln, &graph, &inputs).unwrap();
    let y = kiln.device().upload(&[0xff; 4 * 55]).unwrap();
    let mut place = |from: [u64; 3]| {
        for (uid, from) in uids.iter().zip(from) {
            let bytes = graph.tensor(*uid).unwrap().span_bytes().unwrap();
            harness::place(&mut bound.pack, *uid, y.address() + 4 * from, bytes);
        }
        let workspace = kiln.device().alloc(plan.workspace_bytes().max(256)).unwrap();
        plan.execute(&kiln.stream(), &bound.pack.clone().with_workspace(&workspace))
    };
    let error = place([0, 3, 10]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadParam);
    assert!(error.to_string().contains("overlaps"), "{error}");
    place([0, 4, 10]).unwrap();
    kiln.stream().synchronize().unwrap();
    let bytes = y.to_vec().unwrap();
    let expected = kiln::reference::evaluate(&graph, &inputs).unwrap();
    for (uid, from) in uids.iter().zip([0, 4, 10]) {
        let tensor = graph.tensor(*uid).unwrap();
        let at = |offset: usize| 4 * (from + offset);
        let values: Vec<f64> =
            tensor.offsets().map(|offset| DType::F32.read(&bytes[at(offset)..])).collect();
        let worst = expected[uid].worst(&values);
        assert!(worst.is_none_or(|worst| worst.ratio <= 1.0), "{tensor}: {values:?}");
    }
}
