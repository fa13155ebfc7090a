//! Dropout descriptors. Layers refer to them: what one says counts when a layer is used.

use kiln::dropout::DropoutDescriptor;
use kiln::expr::Real;

use crate::declare::functions;
use crate::handle::Handle;
use crate::object::{Ref, Settable, object};
use crate::pointer::{DataMut, Out};
use crate::status::{Outcome, Status, bad, fail};
use crate::tensor::Tensor;

/// `mcdnnDropoutDescriptor_t`.
#[derive(Debug, Default)]
pub struct Dropout(Settable<State>);
object!(Dropout: "mcdnnDropoutDescriptor_t", "dropout descriptor", 5);

/// What a dropout descriptor says.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct State {
    probability: f32,
    states: u64,
    seed: u64,
}

/// Bytes that programs reserve for the state of random numbers: a seed and a position for each of
/// as many layers as networks have.
const STATES_BYTES: usize = 4096;

/// Integers up to here are exact as f64, which the library's values are.
const SEED_BITS: u32 = 53;

impl Ref<Dropout> {
    /// The number of what it says; 0 of none.
    pub fn version(self) -> u64 {
        match self.optional("dropoutDesc") {
            Ok(Some(dropout)) => dropout.0.version(),
            _ => 0,
        }
    }

    /// The dropout that a layer applies in training; NULL, one that was never set and one that was
    /// destroyed apply none.
    pub fn descriptor(self) -> Outcome<DropoutDescriptor> {
        let Ok(Some(dropout)) = self.optional("dropoutDesc") else {
            return Ok(DropoutDescriptor::NONE);
        };
        let State { probability, seed, .. } = *dropout.0.read();
        let folded = (seed ^ seed >> SEED_BITS) & ((1 << SEED_BITS) - 1);
        Ok(DropoutDescriptor::set(Real::new(f64::from(probability)), folded as i64)?)
    }
}

/// What a call sets.
fn set(
    dropout: Ref<Dropout>,
    handle: Ref<Handle>,
    probability: f32,
    (states, bytes): (DataMut, usize),
    seed: u64,
) -> Outcome {
    let dropout = dropout.get("dropoutDesc")?;
    handle.get("handle")?;
    if !(0.0..1.0).contains(&probability) {
        return bad(format!("dropout is {probability}, expected 0 to less than 1"));
    }
    if states.address() != 0 && bytes < STATES_BYTES {
        let text = format!("stateSizeInBytes is {bytes}, expected at least {STATES_BYTES}");
        return fail(Status::INVALID_VALUE, text);
    }
    dropout.0.set(State { probability, states: states.address(), seed });
    Ok(())
}

functions! { FUNCTIONS:
    /// Makes a dropout descriptor.
    fn mcdnnCreateDropoutDescriptor(dropoutDesc: Out<Ref<Dropout>>) {
        let place = dropoutDesc.required("dropoutDesc")?;
        place.put(Ref::new(Dropout::default())?);
        Ok(())
    }

    /// Destroys a dropout descriptor; NULL is none.
    fn mcdnnDestroyDropoutDescriptor(dropoutDesc: Ref<Dropout>) {
        dropoutDesc.destroy("dropoutDesc")
    }

    /// Bytes of device memory for the states of random numbers.
    fn mcdnnDropoutGetStatesSize(handle: Ref<Handle>, sizeInBytes: Out<usize>) {
        handle.get("handle")?;
        sizeInBytes.required("sizeInBytes")?.put(STATES_BYTES);
        Ok(())
    }

    /// Bytes of a mask of a tensor's elements.
    fn mcdnnDropoutGetReserveSpaceSize(xdesc: Ref<Tensor>, sizeInBytes: Out<usize>) {
        let layout = xdesc.get("xdesc")?.layout();
        let elements: usize = layout.dims.iter().map(|dim| *dim as usize).product();
        let bits = if layout.dims.is_empty() { 0 } else { elements };
        sizeInBytes.required("sizeInBytes")?.put(bits.div_ceil(32) * 4);
        Ok(())
    }

    /// Sets the probability of dropping an element, and the seed of the random numbers. States may
    /// be NULL: layers keep their own.
    fn mcdnnSetDropoutDescriptor(
        dropoutDesc: Ref<Dropout>,
        handle: Ref<Handle>,
        dropout: f32,
        states: DataMut,
        stateSizeInBytes: usize,
        seed: u64,
    ) {
        set(dropoutDesc, handle, dropout, (states, stateSizeInBytes), seed)
    }

    /// As mcdnnSetDropoutDescriptor, without a change to the states.
    fn mcdnnRestoreDropoutDescriptor(
        dropoutDesc: Ref<Dropout>,
        handle: Ref<Handle>,
        dropout: f32,
        states: DataMut,
        stateSizeInBytes: usize,
        seed: u64,
    ) {
        set(dropoutDesc, handle, dropout, (states, stateSizeInBytes), seed)
    }

    /// What a dropout descriptor says.
    fn mcdnnGetDropoutDescriptor(
        dropoutDesc: Ref<Dropout>,
        handle: Ref<Handle>,
        dropout: Out<f32>,
        states: Out<DataMut>,
        seed: Out<u64>,
    ) {
        let own = *dropoutDesc.get("dropoutDesc")?.0.read();
        handle.get("handle")?;
        dropout.put(own.probability);
        states.put(DataMut::of(own.states));
        seed.put(own.seed);
        Ok(())
    }
}
