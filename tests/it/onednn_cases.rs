//! Cases that oneDNN's own library has computed (`tests/data/onednn/vectors.py`).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use kiln::expr::Real;
use kiln::onednn::{
    Activation, Arg, Cell, DataQuantization, FormatTag, Home, MemoryDesc, Primitive, PrimitiveAttr,
    PropKind, RnnDesc, RnnDirection, Tensor, WeightsScales,
};
use kiln::reference::{self, Expected};
use kiln::rnn::HostTensor;
use kiln::{DType, OperationGraph, TensorDesc, plan};
use serde::Deserialize;

/// A case of f32, or of 8-bit integers, which has a data scale.
#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub cell: String,
    pub direction: String,
    pub layers: i64,
    pub input: i64,
    pub hidden: i64,
    pub state: i64,
    pub steps: i64,
    pub batch: i64,
    pub data_scale: Option<f64>,
    #[serde(default)]
    pub data_shift: f64,
}

fn all() -> Vec<Case> {
    serde_json::from_str(include_str!("../data/onednn/rnn.json")).expect("well-formed")
}

/// Values of arguments, in row-major order whatever their formats.
pub type Arguments = BTreeMap<Arg, Vec<f64>>;

/// The cases of f32.
pub fn cases() -> Vec<Case> {
    all().into_iter().filter(|case| case.data_scale.is_none()).collect()
}

/// The cases of 8-bit integers.
pub fn integer_cases() -> Vec<Case> {
    all().into_iter().filter(|case| case.data_scale.is_some()).collect()
}

impl Case {
    pub fn directions(&self) -> i64 {
        if self.direction.starts_with("bidirectional") { 2 } else { 1 }
    }

    pub fn width(&self) -> i64 {
        if self.direction == "bidirectional_concat" { 2 * self.state } else { self.state }
    }

    /// A tensor of the container, of f32, if it is there.
    pub fn tensor(&self, name: &str, dims: &[i64]) -> Option<HostTensor> {
        self.tensor_of(name, dims, DType::F32)
    }

    /// A tensor of the container of a type, if it is there.
    pub fn tensor_of(&self, name: &str, dims: &[i64], dtype: DType) -> Option<HostTensor> {
        self.tensor_in("rnn.safetensors", name, dims, dtype)
    }

    /// A tensor of a container, if it is there.
    pub fn tensor_in(
        &self,
        file: &str,
        name: &str,
        dims: &[i64],
        dtype: DType,
    ) -> Option<HostTensor> {
        // Tests of the C interface, in a folder of the checkout, read the cases as well.
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let path = folders.find_map(|folder| {
            let path = folder.join("tests/data/onednn").join(file);
            path.exists().then_some(path)
        });
        let path = path.expect("the checkout has the tensors");
        let tensor = TensorDesc::packed(1, format!("{}/{name}", self.name), dims, dtype);
        let values = plan::read_values(&path, std::iter::once(&tensor)).ok()?.remove(&1)?;
        Some(HostTensor::new(dims, values))
    }

    pub fn function(&self) -> Cell {
        match self.cell.as_str() {
            "relu" => Cell::VanillaRnn(Activation::Relu),
            "tanh" => Cell::VanillaRnn(Activation::Tanh),
            "sigmoid" => Cell::VanillaRnn(Activation::Logistic),
            "gru" => Cell::Gru,
            "lbr_gru" => Cell::LbrGru,
            "augru" => Cell::Augru,
            "lbr_augru" => Cell::LbrAugru,
            _ => Cell::Lstm,
        }
    }

    pub fn way(&self) -> RnnDirection {
        match self.direction.as_str() {
            "left2right" => RnnDirection::LeftToRight,
            "right2left" => RnnDirection::RightToLeft,
            "bidirectional_concat" => RnnDirection::BidirectionalConcat,
            _ => RnnDirection::BidirectionalSum,
        }
    }

    /// The dimensions of a tensor, if the case has it.
    pub fn dims(&self, tensor: Tensor) -> Option<Vec<i64>> {
        let Case { layers, input, hidden, state, steps, batch, .. } = *self;
        let function = self.function();
        let of_stack = |dims: &[i64]| [&[layers, self.directions()], dims].concat();
        let dims = match tensor {
            Tensor::SrcLayer => vec![steps, batch, input],
            Tensor::DstLayer => vec![steps, batch, self.width()],
            Tensor::AugruAttention => vec![steps, batch, 1],
            Tensor::SrcIter | Tensor::DstIter => of_stack(&[batch, state]),
            Tensor::SrcIterC | Tensor::DstIterC => of_stack(&[batch, hidden]),
            Tensor::WeightsLayer => of_stack(&[input, function.gates(), hidden]),
            Tensor::WeightsIter => of_stack(&[state, function.gates(), hidden]),
            Tensor::WeightsPeephole => of_stack(&[3, hidden]),
            Tensor::WeightsProjection => of_stack(&[hidden, state]),
            Tensor::Bias => of_stack(&[function.biases(), hidden]),
        };
        let has = match tensor {
            Tensor::WeightsPeephole => self.cell.contains("peephole"),
            Tensor::WeightsProjection => self.cell.contains("projection"),
            other => function.has(other),
        };
        has.then_some(dims)
    }

    /// oneDNN's values of an argument.
    pub fn of_arg(&self, arg: Arg) -> Option<Vec<f64>> {
        let (Arg::Of(tensor) | Arg::Diff(tensor)) = arg else { return None };
        let name = arg.name().replace("augru_attention", "attention");
        Some(self.tensor_of(&name, &self.dims(tensor)?, self.dtype(tensor))?.values)
    }

    /// The type of integers.
    pub fn integers(&self) -> DType {
        if self.name.starts_with("int8_i8") { DType::I8 } else { DType::U8 }
    }

    /// The type of a tensor in the container, where weights are f32.
    fn dtype(&self, tensor: Tensor) -> DType {
        match tensor {
            _ if self.data_scale.is_none() => DType::F32,
            Tensor::DstLayer if self.name.contains("_f32_") => DType::F32,
            Tensor::SrcLayer | Tensor::SrcIter | Tensor::DstLayer | Tensor::DstIter => {
                self.integers()
            }
            _ => DType::F32,
        }
    }

    /// How integers are quantised.
    pub fn attr(&self) -> PrimitiveAttr {
        let Some(scale) = self.data_scale else { return PrimitiveAttr::default() };
        let data = DataQuantization { scale: scale.into(), shift: self.data_shift.into() };
        let (mask, count) =
            if self.name.contains("channels") { (24, 4 * self.hidden) } else { (0, 1) };
        let scales = self.tensor("weights_scales", &[count]).expect("the case has them").values;
        let scales = scales.into_iter().map(Real::new).collect();
        let weights = WeightsScales { mask, scales };
        PrimitiveAttr { data: Some(data), weights: Some(weights), projection: None }
    }

    pub fn desc(&self, prop_kind: PropKind, format: Format<'_>) -> RnnDesc {
        let mut desc = RnnDesc::new(self.function(), prop_kind, self.way());
        for tensor in Tensor::ALL {
            let Some(dims) = self.dims(tensor) else { continue };
            desc = desc.with(tensor, format(Arg::Of(tensor), &dims));
            if prop_kind == PropKind::Backward {
                desc = desc.with_diff(tensor, format(Arg::Diff(tensor), &dims));
            }
        }
        RnnDesc { diff_weights_overwrite: true, attr: self.attr(), ..desc }
    }

    pub fn primitive(&self, prop_kind: PropKind, format: Format<'_>) -> Primitive {
        let made = Primitive::rnn(&self.desc(prop_kind, format));
        made.unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// What oneDNN's primitives mean in f32, with the errors that an implementation may have: by
    /// the reference from oneDNN's inputs, results of the forward pass and gradients.
    pub fn expected(&self) -> BTreeMap<Arg, Expected> {
        let passes = [PropKind::ForwardTraining, PropKind::Backward]
            .map(|prop_kind| self.primitive(prop_kind, &plain(DType::F32)));
        let [forward, backward] = passes.each_ref().map(|pass| match pass.steps() {
            [only] => only,
            steps => panic!("{}: {} steps", self.name, steps.len()),
        });
        let graph = joined(&forward.graph, &backward.graph);
        // The argument of a tensor, and which of its elements the tensor has.
        let elements = |tensor: &TensorDesc| -> Option<(Arg, Vec<usize>)> {
            let mut homes = forward.homes.iter().chain(&backward.homes);
            let (_, home) = *homes.find(|(known, _)| *known == tensor.uid)?;
            let Home::Argument(arg, start) = home else { panic!("the tensor is reordered") };
            let desc = passes.iter().find_map(|pass| pass.desc(arg)).expect("it is an argument");
            let offsets = tensor_of(desc);
            let order: HashMap<usize, usize> =
                offsets.offsets().enumerate().map(|(at, offset)| (offset, at)).collect();
            let first = start as usize / tensor.dtype.bytes();
            let own = (arg != Arg::Workspace)
                .then(|| tensor.offsets().map(|at| order[&(first + at)]).collect());
            Some((arg, own?))
        };
        let input = |tensor: &TensorDesc| {
            let (arg, elements) = elements(tensor).expect("inputs are arguments");
            let whole = self.of_arg(arg).expect("oneDNN has it");
            (tensor.uid, elements.iter().map(|at| whole[*at]).collect())
        };
        let values: HashMap<i64, Vec<f64>> = graph.inputs().map(input).collect();
        let results = reference::evaluate(&graph, &values).expect("inputs fit");
        let mut all: BTreeMap<Arg, Expected> = BTreeMap::new();
        for tensor in graph.outputs() {
            let Some((arg, elements)) = elements(tensor) else { continue };
            let (Arg::Of(of) | Arg::Diff(of)) = arg else { continue };
            let count = self.dims(of).expect("the case has it").iter().product::<i64>() as usize;
            let whole = all
                .entry(arg)
                .or_insert_with(|| Expected { values: vec![0.0; count], bounds: vec![0.0; count] });
            let own = &results[&tensor.uid];
            for (from, at) in elements.into_iter().enumerate() {
                whole.values[at] = own.values[from];
                whole.bounds[at] = own.bounds[from];
            }
        }
        all
    }
}

/// Packed, of the types that a case of 8-bit integers has, with weights of 8 bits.
pub fn plain_integers(case: &Case) -> impl Fn(Arg, &[i64]) -> MemoryDesc {
    move |arg, dims| MemoryDesc::new(dims, integer_type(case, arg), FormatTag::Any).expect("valid")
}

/// The type of an argument of an 8-bit LSTM.
pub fn integer_type(case: &Case, arg: Arg) -> DType {
    match arg {
        Arg::Of(Tensor::WeightsLayer | Tensor::WeightsIter) => DType::I8,
        Arg::Of(tensor) => case.dtype(tensor),
        other => panic!("{} of an 8-bit LSTM", other.name()),
    }
}

/// The order in memory and the type of a tensor.
pub type Format<'a> = &'a dyn Fn(Arg, &[i64]) -> MemoryDesc;

/// Packed, of this type but for what is f32 in every row of the document's table.
pub fn plain(data: DType) -> impl Fn(Arg, &[i64]) -> MemoryDesc {
    move |arg, dims| MemoryDesc::new(dims, type_of(arg, data), FormatTag::Any).expect("valid")
}

/// The document's types: bias of f32 beside bf16, of f16 beside f16; cell states and gradients
/// always of f32.
pub fn type_of(arg: Arg, data: DType) -> DType {
    match arg {
        Arg::Diff(_) | Arg::Of(Tensor::SrcIterC | Tensor::DstIterC) => DType::F32,
        Arg::Of(Tensor::Bias | Tensor::WeightsPeephole) if data == DType::Bf16 => DType::F32,
        _ => data,
    }
}

/// A tensor with the place of a descriptor's elements.
pub fn tensor_of(desc: &MemoryDesc) -> TensorDesc {
    let packed = TensorDesc::packed(1, "argument", desc.dims(), desc.dtype());
    TensorDesc { strides: desc.strides().expect("resolved").to_vec(), ..packed }
}

/// The forward and the backward pass as one graph, whose bounds are those of both.
pub fn joined(forward: &OperationGraph, backward: &OperationGraph) -> OperationGraph {
    let known = |tensor: &&TensorDesc| forward.tensor(tensor.uid).is_err();
    let tensors = forward.tensors().iter().chain(backward.tensors().iter().filter(known));
    let operations = forward.operations().iter().chain(backward.operations());
    OperationGraph::new(tensors.cloned().collect(), operations.cloned().collect()).expect("valid")
}
