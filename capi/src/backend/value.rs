//! Values of attributes, and the arrays of a program that they come from and go to.

use std::sync::Arc;

use crate::backend::node::{Backend, Node};
use crate::backend::values::{
    AttributeType, BehaviorNote, BnFinalizeStatsMode, ConvolutionMode, GenStatsMode, HeurMode,
    KnobType, LayoutType, NormFwdPhase, NormMode, NumericalNote, PaddingMode, PointwiseMode,
    ReduceTensorOp, ResampleMode, RngDistribution, SignalMode, TensorReordering,
};
use crate::declare::Enumeration;
use crate::object::Ref;
use crate::pointer::{Data, DataMut};
use crate::status::{Outcome, bad};
use crate::values::{DataType, NanPropagation};

/// `mcdnnFraction_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    /// Above the line.
    pub numerator: i64,
    /// Below it.
    pub denominator: i64,
}

/// Its C declaration.
pub const FRACTION_DECLARATION: &str = "\
typedef struct mcdnnFractionStruct {
    int64_t numerator;
    int64_t denominator;
} mcdnnFraction_t;";

/// The elements of an attribute.
#[derive(Debug, Clone)]
pub enum Value {
    /// Integers, truth values, numbers of enumerations, characters, addresses and handles.
    Integers(Vec<i64>),
    /// Floats and doubles.
    Floats(Vec<f64>),
    /// Fractions.
    Fractions(Vec<Fraction>),
    /// Other descriptors.
    Nodes(Vec<Arc<Node>>),
}

impl Value {
    /// The number of elements.
    pub fn count(&self) -> usize {
        match self {
            Value::Integers(all) => all.len(),
            Value::Floats(all) => all.len(),
            Value::Fractions(all) => all.len(),
            Value::Nodes(all) => all.len(),
        }
    }
}

/// The enumeration whose numbers elements of a type are.
fn enumeration(of: AttributeType) -> Option<Enumeration> {
    Some(match of {
        AttributeType::DATA_TYPE => DataType::TABLE,
        AttributeType::CONVOLUTION_MODE => ConvolutionMode::TABLE,
        AttributeType::HEUR_MODE => HeurMode::TABLE,
        AttributeType::KNOB_TYPE => KnobType::TABLE,
        AttributeType::NAN_PROPOGATION => NanPropagation::TABLE,
        AttributeType::NUMERICAL_NOTE => NumericalNote::TABLE,
        AttributeType::LAYOUT_TYPE => LayoutType::TABLE,
        AttributeType::POINTWISE_MODE => PointwiseMode::TABLE,
        AttributeType::GENSTATS_MODE => GenStatsMode::TABLE,
        AttributeType::BN_FINALIZE_STATS_MODE => BnFinalizeStatsMode::TABLE,
        AttributeType::REDUCTION_OPERATOR_TYPE => ReduceTensorOp::TABLE,
        AttributeType::BEHAVIOR_NOTE => BehaviorNote::TABLE,
        AttributeType::TENSOR_REORDERING_MODE => TensorReordering::TABLE,
        AttributeType::RESAMPLE_MODE => ResampleMode::TABLE,
        AttributeType::PADDING_MODE => PaddingMode::TABLE,
        AttributeType::SIGNAL_MODE => SignalMode::TABLE,
        AttributeType::NORM_MODE => NormMode::TABLE,
        AttributeType::NORM_FWD_PHASE => NormFwdPhase::TABLE,
        AttributeType::RNG_DISTRIBUTION => RngDistribution::TABLE,
        _ => return None,
    })
}

/// Reads so many elements of a type.
pub fn read(of: AttributeType, count: usize, from: Data) -> Outcome<Value> {
    const NAME: &str = "arrayOfElements";
    let integers = |all: Vec<i64>| Ok(Value::Integers(all));
    match of {
        AttributeType::INT64 | AttributeType::VOID_PTR | AttributeType::HANDLE => {
            integers(from.host::<i64>().all(count, NAME)?)
        }
        AttributeType::BOOLEAN => {
            let all = from.host::<u8>().all(count, NAME)?;
            integers(all.into_iter().map(|byte| i64::from(byte != 0)).collect())
        }
        AttributeType::CHAR => {
            integers(from.host::<u8>().all(count, NAME)?.into_iter().map(i64::from).collect())
        }
        AttributeType::FLOAT => {
            let all = from.host::<f32>().all(count, NAME)?;
            Ok(Value::Floats(all.into_iter().map(f64::from).collect()))
        }
        AttributeType::DOUBLE => Ok(Value::Floats(from.host::<f64>().all(count, NAME)?)),
        AttributeType::FRACTION => Ok(Value::Fractions(from.host::<Fraction>().all(count, NAME)?)),
        AttributeType::BACKEND_DESCRIPTOR => {
            let all = from.host::<Ref<Backend>>().all(count, NAME)?;
            let nodes = all.into_iter().map(|one| Ok(one.get("a descriptor")?.node()));
            Ok(Value::Nodes(nodes.collect::<Outcome<_>>()?))
        }
        of => {
            let all = from.host::<i32>().all(count, NAME)?;
            if let Some(table) = enumeration(of)
                && let Some(number) = all.iter().find(|number| table.value(**number).is_none())
            {
                return bad(format!("{number} is no {}", table.name));
            }
            integers(all.into_iter().map(i64::from).collect())
        }
    }
}

/// Writes at most so many elements as a type. Descriptors are written to those of the program.
pub fn write(value: &Value, of: AttributeType, most: usize, to: DataMut) -> Outcome {
    match (value, of) {
        (Value::Integers(all), AttributeType::INT64 | AttributeType::VOID_PTR)
        | (Value::Integers(all), AttributeType::HANDLE) => {
            to.host().put(all.iter().copied().take(most));
        }
        (Value::Integers(all), AttributeType::BOOLEAN | AttributeType::CHAR) => {
            to.host().put(all.iter().map(|value| *value as u8).take(most));
        }
        (Value::Integers(all), _) => {
            to.host().put(all.iter().map(|value| *value as i32).take(most));
        }
        (Value::Floats(all), AttributeType::FLOAT) => {
            to.host().put(all.iter().map(|value| *value as f32).take(most));
        }
        (Value::Floats(all), _) => to.host().put(all.iter().copied().take(most)),
        (Value::Fractions(all), AttributeType::FRACTION) => {
            to.host().put(all.iter().copied().take(most));
        }
        (Value::Fractions(all), _) => {
            to.host().put(all.iter().map(|value| value.numerator).take(most));
        }
        (Value::Nodes(all), _) => {
            let places = to.host::<Ref<Backend>>().array();
            let places = places.all(all.len().min(most), "arrayOfElements")?;
            for (place, node) in places.into_iter().zip(all) {
                place.get("a descriptor")?.node().become_like(node)?;
            }
        }
    }
    Ok(())
}
