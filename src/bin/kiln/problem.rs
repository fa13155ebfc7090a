//! Problem files and tensor files: reading, writing, and comparing with the reference.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kiln::plan::{Trial, Values};
use kiln::{DType, Error, ErrorKind, OperationGraph, TensorDesc, reference};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

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
pub fn check(graph: &OperationGraph, inputs: &Values, ran: &Trial) -> kiln::Result<Vec<Check>> {
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
