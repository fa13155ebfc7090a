//! Every pointwise mode, storage type, layout and edge shape against the reference.

use kiln::expr::{Math, Mode, Pointwise};
use kiln::{DType, OperationGraph, TensorDesc};

use crate::harness::{self, Values};

/// How the operands of a case lie in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Layout {
    Contiguous,
    BroadcastRow,
    BroadcastColumn,
    Scalar,
    OddStrides,
    Misaligned,
}

pub const LAYOUTS: [Layout; 6] = [
    Layout::Contiguous,
    Layout::BroadcastRow,
    Layout::BroadcastColumn,
    Layout::Scalar,
    Layout::OddStrides,
    Layout::Misaligned,
];

const ROWS: i64 = 3;

/// Column counts around the widest vector of a type (16 bytes), and one that takes several blocks.
fn columns(dtype: DType) -> [i64; 6] {
    let vector = 16 / dtype.bytes() as i64;
    [0, 1, vector - 1, vector, vector + 1, 1031]
}

/// A group of modes that share operands, so that one kernel tests them all.
pub struct Group {
    pub name: &'static str,
    /// The range of `x`; the other operand is in [-2, 2].
    x: (f64, f64),
    ops: Vec<Pointwise>,
}

pub fn groups() -> Vec<Group> {
    use Mode::*;
    let new = Pointwise::new;
    let all = |modes: &[Mode]| modes.iter().map(|mode| new(*mode)).collect::<Vec<_>>();
    let mut arithmetic = all(&[Add, AddSquare, Div, Max, Min, Mod, Mul, Sub]);
    arithmetic.extend([new(Add).alphas(0.3, -1.7), new(Sub).alphas(1.0, 2.5)]);
    let activations =
        [ReluFwd, TanhFwd, SigmoidFwd, EluFwd, GeluFwd, SoftplusFwd, SwishFwd, GeluApproxTanhFwd];
    let mut forward = all(&activations);
    forward.push(new(ReluFwd).relu(-0.5, 1.5, 0.1));
    forward.push(new(SwishFwd).shape(1.7));
    let gradients =
        [ReluBwd, TanhBwd, SigmoidBwd, EluBwd, GeluBwd, SoftplusBwd, SwishBwd, GeluApproxTanhBwd];
    let mut backward = all(&gradients);
    backward.push(new(ReluBwd).relu(-0.5, 1.5, 0.1));
    let compare = [CmpEq, CmpNeq, CmpGt, CmpGe, CmpLt, CmpLe, LogicalAnd, LogicalOr, LogicalNot];
    vec![
        Group { name: "arithmetic", x: (-4.0, 4.0), ops: arithmetic },
        Group { name: "rounding", x: (-4.0, 4.0), ops: all(&[Abs, Ceil, Floor, Neg, Identity]) },
        Group { name: "functions", x: (-4.0, 4.0), ops: all(&[Exp, Erf, Sin, Cos, Tan]) },
        Group { name: "positive", x: (0.1, 6.0), ops: all(&[Log, Sqrt, Rsqrt, Pow]) },
        Group { name: "forward", x: (-4.0, 4.0), ops: forward },
        Group { name: "backward", x: (-4.0, 4.0), ops: backward },
        Group { name: "compare", x: (-2.0, 2.0), ops: all(&compare) },
        Group {
            name: "select",
            x: (-2.0, 2.0),
            ops: vec![new(GenIndex).axis(1), new(BinarySelect)],
        },
    ]
}

#[test]
fn the_groups_hold_every_mode() {
    let groups = groups();
    let tested =
        |mode: &Mode| groups.iter().flat_map(|group| &group.ops).any(|op| op.mode == *mode);
    let missing: Vec<_> = Mode::ALL.into_iter().filter(|mode| !tested(mode)).collect();
    assert_eq!(missing, []);
}

fn place(tensor: TensorDesc, layout: Layout) -> TensorDesc {
    let columns = tensor.dims[1];
    match layout {
        // Neither stride is a power of two or a multiple of a vector.
        Layout::OddStrides => {
            TensorDesc { strides: vec![3 * columns.max(1) + 7, 3], alignment: 8, ..tensor }
        }
        Layout::Misaligned => TensorDesc { alignment: tensor.dtype.bytes(), ..tensor },
        _ => tensor,
    }
}

pub fn case(group: &Group, dtype: DType, layout: Layout, columns: i64) -> (OperationGraph, Values) {
    let mut graph = OperationGraph::builder();
    let b_dims = match layout {
        Layout::BroadcastRow => [1, columns],
        Layout::BroadcastColumn => [ROWS, 1],
        Layout::Scalar => [1, 1],
        _ => [ROWS, columns],
    };
    let x = place(TensorDesc::packed(1, "x", &[ROWS, columns], dtype), layout);
    let b = place(TensorDesc::packed(2, "b", &b_dims, dtype), layout);
    let (low, high) = group.x;
    let middle = (low + high) / 2.0;
    let x_values = harness::fill(&x, 3, (high - low) / 2.0);
    let x_values = x_values.into_iter().map(|value| dtype.round(value + middle)).collect();
    let values = Values::from([(1, x_values), (2, harness::fill(&b, 11, 2.0))]);
    let (x, b) = (graph.tensor(x), graph.tensor(b));
    for (index, op) in group.ops.iter().enumerate() {
        let op = if dtype == DType::F64 { op.math(Math::F64) } else { *op };
        let uid = 100 + index as i64;
        let name = format!("y{index}");
        let output = TensorDesc::packed(uid, name, &[ROWS, columns], dtype);
        let output = graph.tensor(place(output, layout));
        let operands = match op.mode {
            Mode::BinarySelect => {
                let mask = graph.pointwise(Pointwise::new(Mode::CmpGt), &[x, b]);
                let other = graph.pointwise(Pointwise::new(Mode::Mul), &[x, b]);
                vec![x, other.expect("valid"), mask.expect("valid")]
            }
            mode if mode.arity() == 1 => vec![x],
            _ => vec![x, b],
        };
        graph.pointwise_into(op, &operands, output);
    }
    // An operand no operation reads would be an error: every group reads both.
    if group.ops.iter().all(|op| op.mode.arity() == 1) {
        let sum = graph.tensor(place(TensorDesc::packed(99, "z", &[ROWS, columns], dtype), layout));
        let math = if dtype == DType::F64 { Math::F64 } else { Math::F32 };
        graph.pointwise_into(Pointwise::new(Mode::Sub).math(math), &[x, b], sum);
    }
    (graph.build().expect("the case is valid"), values)
}

/// Every group in every layout and at every edge. A sample: each group meets each layout and each
/// edge, each layout each edge, and dialects take turns; `KILN_TEST_ALL=1` (`make cases`) runs all.
fn check_dtype(dtype: DType) {
    let all = harness::all_are_wanted();
    for (dialect, kiln) in harness::dialects().into_iter().enumerate() {
        for (row, group) in groups().into_iter().enumerate() {
            for (place, layout) in LAYOUTS.into_iter().enumerate() {
                for (edge, columns) in columns(dtype).into_iter().enumerate() {
                    if !all && (row + place + edge + 2 * dialect) % 4 != 0 {
                        continue;
                    }
                    let (graph, values) = case(&group, dtype, layout, columns);
                    let arch = kiln.device().target().arch;
                    let what = format!("{arch} {} {dtype} {layout:?} {columns}", group.name);
                    harness::check(kiln, &graph, None, &values, &what);
                }
            }
        }
    }
}

#[test]
fn every_mode_f32() {
    check_dtype(DType::F32);
}

#[test]
fn every_mode_f16() {
    check_dtype(DType::F16);
}

#[test]
fn every_mode_bf16() {
    check_dtype(DType::Bf16);
}

#[test]
fn every_mode_f64() {
    check_dtype(DType::F64);
}
