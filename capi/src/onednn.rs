//! oneDNN's RNN primitives and reorders, as `kiln/dnnl_rnn.hpp` calls them.
//!
//! A primitive is described argument by argument, finalized, which checks it and resolves formats,
//! and then built, which compiles, and executed. Arguments have the numbers of oneDNN's
//! `DNNL_ARG_*`.

use std::sync::{Arc, Mutex, PoisonError};

use kiln::expr::Real;
use kiln::layers::OneDnnPrimitive;
use kiln::onednn::{
    Activation, Arg, Cell, DataQuantization, FormatTag, MemoryDesc, Primitive as Resolved,
    PropKind, RnnDesc, RnnDirection, Tensor, WeightsScales,
};
use kiln::plan::{DeviceMemory, Memory};
use kiln::tensor::DIMS_MAX;

use crate::declare::{enumeration, functions};
use crate::handle::{Gpu, Handle};
use crate::kept::UNKNOWN;
use crate::object::{Ref, object};
use crate::pointer::{DataMut, InArray, Out, OutArray};
use crate::status::{Outcome, Status, bad, fail};
use crate::values::DataType;

enumeration! {
    /// What a primitive is for.
    mcdnnKilnPropKind_t Prop "MCDNN_KILN_PROP_" {
        FORWARD_INFERENCE = 0, FORWARD_TRAINING = 1, BACKWARD = 2,
    }
}

enumeration! {
    /// The cell function of a primitive, of plain networks with their activation.
    mcdnnKilnRNNCell_t RnnCell "MCDNN_KILN_CELL_" {
        RELU = 0, TANH = 1, LOGISTIC = 2, LSTM = 3, GRU = 4, LBR_GRU = 5, AUGRU = 6, LBR_AUGRU = 7,
    }
}

enumeration! {
    /// The order of steps.
    mcdnnKilnRNNDirection_t Way "MCDNN_KILN_RNN_" {
        LEFT2RIGHT = 0, RIGHT2LEFT = 1, BIDIRECTIONAL_CONCAT = 2, BIDIRECTIONAL_SUM = 3,
    }
}

/// The flag by which gradients of weights replace those in memory.
const OVERWRITE: u32 = 1;

/// `mcdnnKilnPrimitive_t`.
#[derive(Default)]
pub struct Primitive(Mutex<State>);
object!(Primitive: "mcdnnKilnPrimitive_t", "primitive", 15);

/// What has become of a primitive.
#[derive(Default)]
struct State {
    described: Described,
    resolved: Option<Resolved>,
    built: Option<(Arc<Gpu>, OneDnnPrimitive)>,
}

/// What was said of a primitive.
struct Described {
    /// Whether it is an RNN primitive, not a reorder.
    is_rnn: bool,
    /// A reorder has its two memories here alone.
    desc: RnnDesc,
}

impl Default for Described {
    fn default() -> Described {
        let prop_kind = PropKind::ForwardInference;
        let desc = RnnDesc::new(Cell::Lstm, prop_kind, RnnDirection::LeftToRight);
        Described { is_rnn: false, desc }
    }
}

impl Described {
    fn resolved(&self) -> Outcome<Resolved> {
        if self.is_rnn {
            return Ok(Resolved::rnn(&self.desc)?);
        }
        let of = |arg: Arg, name: &str| match self.desc.descs.get(&arg) {
            Some(desc) => Ok(desc),
            None => bad(format!("a reorder without {name}")),
        };
        let [from, to] = [of(Arg::FROM, "DNNL_ARG_FROM")?, of(Arg::TO, "DNNL_ARG_TO")?];
        Ok(Resolved::reorder(from, to, &self.desc.attr)?)
    }
}

impl Primitive {
    /// Uses the state of the primitive.
    fn with<T>(&self, of: impl FnOnce(&mut State) -> Outcome<T>) -> Outcome<T> {
        of(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes what is said of a primitive that is not finalized.
    fn describe(&self, change: impl FnOnce(&mut Described) -> Outcome) -> Outcome {
        self.with(|state| match state.resolved {
            Some(_) => bad("the primitive is finalized"),
            None => change(&mut state.described),
        })
    }
}

impl State {
    fn finalized(&self) -> Outcome<&Resolved> {
        match &self.resolved {
            Some(resolved) => Ok(resolved),
            None => fail(Status::NOT_INITIALIZED, "the primitive is not finalized"),
        }
    }

    /// The primitive on a device, planned now unless it was.
    fn built(&mut self, gpu: &Arc<Gpu>) -> Outcome<&mut OneDnnPrimitive> {
        let resolved = self.finalized()?;
        if self.built.as_ref().is_none_or(|(own, _)| !Arc::ptr_eq(own, gpu)) {
            let planned = gpu.kiln.onednn_primitive(resolved)?;
            self.built = Some((gpu.clone(), planned));
        }
        let (_, planned) = self.built.as_mut().expect("it is built");
        Ok(planned)
    }
}

/// The argument of a number.
fn argument(number: i32) -> Outcome<Arg> {
    match Arg::of_number(number) {
        Some(arg) => Ok(arg),
        None => bad(format!("argument {number} is none of an RNN primitive's")),
    }
}

functions! { FUNCTIONS:
    /// Makes a primitive: a reorder of DNNL_ARG_FROM to DNNL_ARG_TO until it is set to be an RNN
    /// primitive.
    fn mcdnnKilnCreatePrimitive(primitive: Out<Ref<Primitive>>) {
        let place = primitive.required("primitive")?;
        place.put(Ref::new(Primitive::default())?);
        Ok(())
    }

    /// Destroys a primitive; NULL is none.
    fn mcdnnKilnDestroyPrimitive(primitive: Ref<Primitive>) {
        primitive.destroy("primitive")
    }

    /// Makes of a primitive one of a recurrent network, with flags:
    /// MCDNN_KILN_DIFF_WEIGHTS_OVERWRITE.
    fn mcdnnKilnSetRNNPrimitive(
        primitive: Ref<Primitive>,
        propKind: Prop,
        cell: RnnCell,
        direction: Way,
        flags: u32,
    ) {
        let primitive = primitive.get("primitive")?;
        let prop_kind = match propKind.known("propKind")? {
            Prop::FORWARD_INFERENCE => PropKind::ForwardInference,
            Prop::FORWARD_TRAINING => PropKind::ForwardTraining,
            _ => PropKind::Backward,
        };
        let cell = match cell.known("cell")? {
            RnnCell::RELU => Cell::VanillaRnn(Activation::Relu),
            RnnCell::TANH => Cell::VanillaRnn(Activation::Tanh),
            RnnCell::LOGISTIC => Cell::VanillaRnn(Activation::Logistic),
            RnnCell::LSTM => Cell::Lstm,
            RnnCell::GRU => Cell::Gru,
            RnnCell::LBR_GRU => Cell::LbrGru,
            RnnCell::AUGRU => Cell::Augru,
            _ => Cell::LbrAugru,
        };
        let direction = match direction.known("direction")? {
            Way::LEFT2RIGHT => RnnDirection::LeftToRight,
            Way::RIGHT2LEFT => RnnDirection::RightToLeft,
            Way::BIDIRECTIONAL_CONCAT => RnnDirection::BidirectionalConcat,
            _ => RnnDirection::BidirectionalSum,
        };
        if flags > OVERWRITE {
            return bad(format!("flags are {flags:#x}"));
        }
        primitive.describe(|own| {
            own.is_rnn = true;
            own.desc = RnnDesc {
                cell,
                prop_kind,
                direction,
                diff_weights_overwrite: flags == OVERWRITE,
                ..own.desc.clone()
            };
            Ok(())
        })
    }

    /// Describes the memory of an argument: its type, dimensions, and strides in elements. Without
    /// strides, its format is the one that the primitive prefers.
    fn mcdnnKilnSetPrimitiveMemory(
        primitive: Ref<Primitive>,
        argument: i32,
        dataType: DataType,
        nbDims: i32,
        dims: InArray<i64>,
        strides: InArray<i64>,
    ) {
        let primitive = primitive.get("primitive")?;
        let arg = self::argument(argument)?;
        let dtype = dataType.known("dataType")?.dtype_or_integer("dataType")?;
        let count = match usize::try_from(nbDims) {
            Ok(count) if (1..=DIMS_MAX).contains(&count) => count,
            _ => return bad(format!("nbDims is {nbDims}, expected 1 to {DIMS_MAX}")),
        };
        let dims = dims.all(count, "dims")?;
        let desc = match strides.is_null() {
            true => MemoryDesc::new(&dims, dtype, FormatTag::Any)?,
            false => MemoryDesc::strided(&dims, dtype, &strides.all(count, "strides")?)?,
        };
        primitive.describe(|own| {
            own.desc.descs.insert(arg, desc);
            Ok(())
        })
    }

    /// Sets how 8-bit data is quantized: value times scale, plus shift.
    fn mcdnnKilnSetPrimitiveDataQuantization(primitive: Ref<Primitive>, scale: f32, shift: f32) {
        let [scale, shift] = [scale, shift].map(|number| Real::new(number.into()));
        primitive.get("primitive")?.describe(|own| {
            own.desc.attr.data = Some(DataQuantization { scale, shift });
            Ok(())
        })
    }

    /// Sets how 8-bit weights are quantized: value times a scale, one for all with the mask 0, or
    /// one for each output channel. The argument is DNNL_ARG_WEIGHTS_LAYER, whose scales are those
    /// of DNNL_ARG_WEIGHTS_ITER as well, or DNNL_ARG_WEIGHTS_PROJECTION.
    fn mcdnnKilnSetPrimitiveWeightsQuantization(
        primitive: Ref<Primitive>,
        argument: i32,
        mask: i32,
        numScales: i32,
        scales: InArray<f32>,
    ) {
        let primitive = primitive.get("primitive")?;
        let count = usize::try_from(numScales).or_else(|_| bad(format!("{numScales} scales")))?;
        let scales = scales.all(count, "scales")?;
        let scales = scales.into_iter().map(|scale| Real::new(scale.into())).collect();
        primitive.describe(|own| {
            let scales = Some(WeightsScales { mask, scales });
            match self::argument(argument)? {
                Arg::Of(Tensor::WeightsLayer) => own.desc.attr.weights = scales,
                Arg::Of(Tensor::WeightsProjection) => {
                    own.desc.attr.projection = scales;
                }
                other => return bad(format!("scales of {}", other.name())),
            }
            Ok(())
        })
    }

    /// Checks what a primitive was described to be, and chooses formats. Nothing is compiled.
    fn mcdnnKilnFinalizePrimitive(primitive: Ref<Primitive>) {
        primitive.get("primitive")?.with(|state| {
            if state.resolved.is_some() {
                return bad("the primitive is finalized");
            }
            state.resolved = Some(state.described.resolved()?);
            Ok(())
        })
    }

    /// The memory that a finalized primitive wants of an argument, of the workspace of training
    /// too: as many dimensions as there is room for. One that it does not have has 0 dimensions.
    /// Places of what is not wanted are NULL.
    fn mcdnnKilnGetPrimitiveMemory(
        primitive: Ref<Primitive>,
        argument: i32,
        nbDimsRequested: i32,
        dataType: Out<DataType>,
        nbDims: Out<i32>,
        dims: OutArray<i64>,
        strides: OutArray<i64>,
    ) {
        let primitive = primitive.get("primitive")?;
        let arg = self::argument(argument)?;
        let asked = usize::try_from(nbDimsRequested)
            .or_else(|_| bad(format!("nbDimsRequested is {nbDimsRequested}")))?;
        primitive.with(|state| {
            let Some(desc) = state.finalized()?.desc(arg) else {
                nbDims.put(0);
                return Ok(());
            };
            nbDims.put(desc.dims().len() as i32);
            dataType.put(DataType::of(desc.dtype()));
            dims.put(desc.dims().iter().copied().take(asked));
            let own = desc.strides().expect("formats are resolved");
            strides.put(own.iter().copied().take(asked));
            Ok(())
        })
    }

    /// Compiles the kernels of a finalized primitive for the device of a handle, or finds them in a
    /// cache, and allocates its own memory.
    fn mcdnnKilnBuildPrimitive(handle: Ref<Handle>, primitive: Ref<Primitive>) {
        let handle = handle.get("handle")?;
        primitive.get("primitive")?.with(|state| state.built(handle.gpu()).map(drop))
    }

    /// Queues a primitive on the handle's stream, with the addresses of so many arguments in device
    /// memory; one that is not built for the device is built now. A primitive has memory of its
    /// own: its executions are queued on one stream, or do not run at the same time.
    fn mcdnnKilnExecutePrimitive(
        handle: Ref<Handle>,
        primitive: Ref<Primitive>,
        numArguments: i32,
        arguments: InArray<i32>,
        addresses: InArray<DataMut>,
    ) {
        let handle = handle.get("handle")?;
        let primitive = primitive.get("primitive")?;
        let count = usize::try_from(numArguments)
            .or_else(|_| bad(format!("numArguments is {numArguments}")))?;
        let numbers = arguments.all(count, "arguments")?;
        let addresses = addresses.all(count, "addresses")?;
        let given = numbers.into_iter().zip(addresses).map(|(number, address)| {
            let arg = argument(number)?;
            let address = address.required(&arg.name())?;
            let memory = DeviceMemory { address, bytes: UNKNOWN };
            // SAFETY: the program gives memory of the device, and keeps it until what is queued
            // has been done.
            Ok((arg, unsafe { Memory::foreign(memory) }))
        });
        let given: Vec<(Arg, Memory<'_>)> = given.collect::<Outcome<_>>()?;
        let stream = handle.stream();
        primitive.with(|state| Ok(state.built(handle.gpu())?.execute(&stream, &given)?))
    }
}
