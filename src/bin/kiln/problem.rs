//! Problem files and tensor files: reading, writing, and running one on the other.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use kiln::device::Buffer;
use kiln::{DType, ErrorKind, ExecutionPlan, Kiln, OperationGraph, TensorDesc, VariantPack};
use kiln::{Error, reference};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

/// Values of tensors by uid, in row-major order.
pub type Values = HashMap<i64, Vec<f64>>;

/// Reads a problem file.
pub fn read_graph(path: &Path) -> kiln::Result<OperationGraph> {
    let text = fs::read_to_string(path).map_err(|error| {
        let shown = path.display();
        Error::with(ErrorKind::BadParam, format!("failed to read problem `{shown}`: {error}"))
    })?;
    OperationGraph::from_json(&text)
}

fn dtype_of(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F64 => DType::F64,
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I32 => DType::I32,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

fn safetensors_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::I32 => Dtype::I32,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

/// Reads the values of a graph's inputs from a safetensors file; tensors are matched by name.
pub fn read_inputs(path: &Path, graph: &OperationGraph) -> kiln::Result<Values> {
    let shown = path.display();
    let bad = |text: String| Error::with(ErrorKind::BadParam, text);
    let bytes = fs::read(path)
        .map_err(|error| bad(format!("failed to read tensors from `{shown}`: {error}")))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| bad(format!("malformed safetensors file `{shown}`: {error}")))?;
    let mut values = Values::new();
    for tensor in graph.inputs() {
        let name = &tensor.name;
        let view =
            file.tensor(name).map_err(|_| bad(format!("`{shown}` holds no tensor `{name}`")))?;
        let shape: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
        let (found, wanted) = (view.dtype(), tensor.dtype);
        if dtype_of(found) != Some(wanted) || shape != tensor.dims {
            let dims = &tensor.dims;
            return Err(bad(format!(
                "`{shown}`: tensor `{name}` is {found:?}{shape:?}, \
                 the problem says {wanted}{dims:?}"
            )));
        }
        let elements = view.data().chunks_exact(wanted.bytes());
        values.insert(tensor.uid, elements.map(|element| wanted.read(element)).collect());
    }
    Ok(values)
}

/// Writes the values of a graph's outputs to a safetensors file.
pub fn write_outputs(path: &Path, graph: &OperationGraph, values: &Values) -> kiln::Result<()> {
    let shown = path.display();
    let mut tensors = Vec::new();
    for tensor in graph.outputs() {
        let size = tensor.dtype.bytes();
        let mut bytes = vec![0; values[&tensor.uid].len() * size];
        for (value, element) in values[&tensor.uid].iter().zip(bytes.chunks_exact_mut(size)) {
            tensor.dtype.write(*value, element);
        }
        let shape: Vec<usize> = tensor.dims.iter().map(|dim| *dim as usize).collect();
        tensors.push((tensor.name.clone(), safetensors_dtype(tensor.dtype), shape, bytes));
    }
    let failed = |error: String| {
        Error::with(ErrorKind::Driver, format!("failed to write tensors to `{shown}`: {error}"))
    };
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, bytes)| {
            let view = TensorView::new(*dtype, shape.clone(), bytes);
            view.map(|view| (name.as_str(), view)).map_err(|error| failed(error.to_string()))
        })
        .collect::<kiln::Result<Vec<_>>>()?;
    safetensors::serialize_to_file(views, None, path).map_err(|error| failed(error.to_string()))
}

/// Reproducible values in [-2, 2] for every input.
pub fn random_inputs(graph: &OperationGraph, seed: u64) -> Values {
    // xorshift64*: any fixed generator will do, and this one needs no crate.
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f64 / (1u64 << 22) as f64 - 2.0
    };
    let mut values = |tensor: &TensorDesc| {
        let count = tensor.elements().unwrap_or(0);
        (0..count).map(|_| tensor.dtype.round(next())).collect()
    };
    graph.inputs().map(|tensor| (tensor.uid, values(tensor))).collect()
}

/// What an execution gave.
pub struct Ran {
    /// Values of the outputs.
    pub outputs: Values,
    /// Time on the device, or in the simulator.
    pub elapsed: Duration,
}

/// Uploads inputs, executes once, downloads outputs.
pub fn execute(kiln: &Kiln, plan: &ExecutionPlan, inputs: &Values) -> kiln::Result<Ran> {
    let graph = plan.graph();
    let mut pack = VariantPack::new();
    let mut buffers: HashMap<i64, Buffer> = HashMap::new();
    for tensor in graph.inputs().chain(graph.outputs()) {
        if tensor.by_value {
            pack.set_value(tensor.uid, inputs[&tensor.uid][0]);
            continue;
        }
        let mut bytes = vec![0; tensor.span_bytes()? as usize];
        for (value, offset) in inputs.get(&tensor.uid).into_iter().flatten().zip(tensor.offsets()) {
            tensor.dtype.write(*value, &mut bytes[offset * tensor.dtype.bytes()..]);
        }
        let buffer = kiln.device().upload(&bytes)?;
        pack = pack.with(tensor.uid, &buffer);
        buffers.insert(tensor.uid, buffer);
    }
    let workspace = kiln.device().alloc(plan.workspace_bytes())?;
    let pack = pack.with_workspace(&workspace);
    let stream = kiln.stream();
    let start = stream.record()?;
    plan.execute(&stream, &pack)?;
    let end = stream.record()?;
    let elapsed = Duration::from_secs_f64(end.elapsed_ms(&start)? / 1e3);
    let read = |tensor: &TensorDesc| {
        let bytes = buffers[&tensor.uid].to_vec()?;
        let size = tensor.dtype.bytes();
        let element = |offset: usize| tensor.dtype.read(&bytes[offset * size..]);
        Ok((tensor.uid, tensor.offsets().map(element).collect()))
    };
    let outputs = graph.outputs().map(read).collect::<kiln::Result<_>>()?;
    Ok(Ran { outputs, elapsed })
}

/// The comparison of one output with the reference.
pub struct Check {
    pub name: String,
    pub elements: usize,
    /// The worst error as a multiple of the derived bound; 0 when every element is exact.
    pub ratio: f64,
    /// What the worst element looks like.
    pub worst: Option<reference::Deviation>,
}

impl Check {
    pub fn passed(&self) -> bool {
        self.ratio <= 1.0
    }
}

/// Compares outputs with the reference.
pub fn check(graph: &OperationGraph, inputs: &Values, ran: &Ran) -> kiln::Result<Vec<Check>> {
    let expected = reference::evaluate(graph, inputs)?;
    let compare = |tensor: &TensorDesc| {
        let actual = &ran.outputs[&tensor.uid];
        let worst = expected[&tensor.uid].worst(actual);
        Check {
            name: tensor.name.clone(),
            elements: actual.len(),
            ratio: worst.map_or(0.0, |worst| worst.ratio),
            worst,
        }
    };
    Ok(graph.outputs().map(compare).collect())
}

/// A duration with three significant digits or so.
pub fn shown(time: Duration) -> String {
    match time.as_secs_f64() * 1e6 {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e6 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}
