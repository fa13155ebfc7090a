//! Classic attention layers against `tests/data/mha`: what an oracle that knows nothing of Kiln
//! says.

use std::collections::{BTreeMap, HashMap};

use kiln::attention::{
    AttentionDescriptor, AttentionExtent, AttentionLayer, AttentionRole, AttentionSettings,
    AttentionSizes, AttentionWeightKind, QueryMap, SequenceAxis, SequenceDataDescriptor,
    SequenceDataSettings, SequenceExtents,
};
use kiln::expr::Real;
use kiln::{DType, TensorDesc, reference};
use serde::Deserialize;

/// How far two computations in f64 may be apart: vectors of at most 9 elements below 1 in
/// magnitude, three products deep, so that all values are below 300. Both round some hundred times,
/// each by 1.1e-16 relative.
pub const TOLERANCE: f64 = 1e-11;

/// A layer, a call, and what the oracle says of it.
#[derive(Deserialize)]
pub struct Case {
    pub name: String,
    pub order: [String; 3],
    pub query_map: String,
    pub beams: i32,
    pub heads: i32,
    pub sizes: [i32; 3],
    pub projections: [i32; 4],
    pub biases: bool,
    pub scaler: f64,
    pub low: Vec<i32>,
    pub high: Vec<i32>,
    pub q_lengths: Vec<i32>,
    pub kv_lengths: Vec<i32>,
    pub residuals: bool,
    pub step: i32,
    pub weights: BTreeMap<String, Slice>,
    output: Vec<Option<f64>>,
}

/// Where weights stand, in elements.
#[derive(Deserialize)]
pub struct Slice {
    pub offset: i64,
    pub dims: [i64; 3],
    pub strides: [i64; 3],
}

/// The descriptors of q, k, v and o.
pub type Described = [SequenceDataDescriptor; 4];

/// Steps of queries and of keys, and beams, in all cases.
pub const QUERIES: i32 = 3;
pub const KEYS: i32 = 4;
const BATCH: i32 = 2;

impl Case {
    /// The same call of a layer with heads of 32 elements, of which the oracle knows nothing.
    pub fn wide(self) -> Case {
        Case { heads: 4, sizes: [128, 96, 64], projections: [32, 32, 48, 128], ..self }
    }

    pub fn descriptor(&self, dtype: DType) -> AttentionDescriptor {
        let [q_size, k_size, v_size] = self.sizes;
        let [q_proj_size, k_proj_size, v_proj_size, o_proj_size] = self.projections;
        let settings = AttentionSettings {
            query_map: match self.query_map.as_str() {
                "one_to_one" => QueryMap::OneToOne,
                _ => QueryMap::AllToOne,
            },
            proj_biases: self.biases,
            sm_scaler: Real::new(self.scaler),
            data_type: dtype,
            compute_prec: if dtype == DType::F64 { dtype } else { DType::F32 },
            q_size,
            k_size,
            v_size,
            q_proj_size,
            k_proj_size,
            v_proj_size,
            o_proj_size,
            kv_max_seq_length: KEYS,
            max_beam_size: self.beams,
            ..AttentionSettings::new(AttentionSizes {
                heads: self.heads,
                size: q_size,
                batch: BATCH,
                steps: QUERIES,
            })
        };
        AttentionDescriptor::set(settings).expect("the settings are valid")
    }

    pub fn described(&self, descriptor: &AttentionDescriptor) -> Described {
        let settings = descriptor.get();
        let kv_beams = match settings.query_map {
            QueryMap::AllToOne => 1,
            QueryMap::OneToOne => self.beams,
        };
        let axis = |name: &String| {
            let found = SequenceAxis::ALL.into_iter().find(|axis| axis.name() == name);
            found.expect("the axis is known")
        };
        let data = |vector: i32, beams: i32, time: i32, lengths: &Vec<i32>| {
            let mut axes: Vec<SequenceAxis> = self.order.iter().map(axis).collect();
            axes.push(SequenceAxis::Vector);
            let settings = SequenceDataSettings {
                data_type: settings.data_type,
                axes,
                seq_lengths: lengths.clone(),
                ..SequenceDataSettings::new(SequenceExtents {
                    batch: BATCH,
                    beam: beams,
                    time,
                    vector,
                })
            };
            SequenceDataDescriptor::set(settings).expect("the settings are valid")
        };
        [
            data(settings.q_size, self.beams, QUERIES, &self.q_lengths),
            data(settings.k_size, kv_beams, KEYS, &self.kv_lengths),
            data(settings.v_size, kv_beams, KEYS, &self.kv_lengths),
            data(descriptor.output_size() as i32, self.beams, QUERIES, &self.q_lengths),
        ]
    }

    pub fn extent(&self, descriptor: &AttentionDescriptor) -> AttentionExtent {
        let [q, k, v, o] = self.described(descriptor);
        let extent = descriptor.extent(&q, &k, &v, &o).expect("the descriptors fit");
        AttentionExtent { residuals: self.residuals, one_step: self.step >= 0, ..extent }
    }

    /// The caller's tensors, rounded to their types: the output unset, intermediates none.
    pub fn memory(&self, layer: &AttentionLayer) -> HashMap<AttentionRole, Vec<f64>> {
        let values = |role: AttentionRole| {
            let (dtype, count) = layer.tensor(role).expect("it is small");
            let noise = |seed: i64| {
                let value = move |at: i64| ((at + seed) * 7919 % 251) as f64 / 125.0 - 1.0;
                (0..count).map(|at| dtype.round(value(at))).collect()
            };
            let integers = |of: &[i32]| of.iter().map(|value| f64::from(*value)).collect();
            let of_steps = |of: &[i32]| match usize::try_from(self.step) {
                Ok(step) => integers(&of[step..=step]),
                Err(_) => integers(of),
            };
            match role {
                AttentionRole::Queries => noise(0),
                AttentionRole::Keys => noise(37),
                AttentionRole::Values => noise(74),
                AttentionRole::Weights => noise(111),
                AttentionRole::Residuals => noise(148),
                AttentionRole::OutputGradient => noise(185),
                AttentionRole::QueryLengths => integers(&self.q_lengths),
                AttentionRole::KeyLengths => integers(&self.kv_lengths),
                AttentionRole::Steps => vec![f64::from(self.step.max(0)); count as usize],
                AttentionRole::LowWindow => of_steps(&self.low),
                AttentionRole::HighWindow => of_steps(&self.high),
                _ => vec![f64::NAN; count as usize],
            }
        };
        AttentionRole::ALL.into_iter().map(|role| (role, values(role))).collect()
    }

    /// Panics where an output is further from the oracle's than the tolerance, or written where it
    /// must not be.
    pub fn check(&self, output: &[f64], tolerance: f64, what: &str) {
        assert_eq!(output.len(), self.output.len(), "{}: {what}", self.name);
        for (at, (actual, wanted)) in output.iter().zip(&self.output).enumerate() {
            match wanted {
                Some(wanted) => assert!(
                    (actual - wanted).abs() <= tolerance,
                    "{}: {what}: element {at} is {actual}, expected {wanted}",
                    self.name
                ),
                None => assert!(actual.is_nan(), "{}: {what}: wrote element {at}", self.name),
            }
        }
    }
}

pub fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("../data/mha/cases.json")).expect("the file is well-formed")
}

/// Positions of a graph's tensor in what it is part of.
pub fn positions(
    layer: &AttentionLayer,
    tensor: &TensorDesc,
    place: &kiln::attention::AttentionPlace,
    step: i32,
) -> Vec<usize> {
    let of_step = matches!(
        place.role,
        AttentionRole::Queries | AttentionRole::Residuals | AttentionRole::Output
    );
    let first = match of_step {
        true => i64::from(step.max(0)) * layer.step_stride(place.role),
        false => 0,
    };
    let first = (place.offset + first) as usize;
    tensor.offsets().map(|at| first + at).collect()
}

/// Runs a layer's graphs by the reference.
pub fn evaluate(layer: &AttentionLayer, memory: &mut HashMap<AttentionRole, Vec<f64>>, step: i32) {
    for stage in &layer.stages {
        let tensor = |uid| stage.graph.tensor(uid).expect("a place is of the graph");
        let mut inputs = HashMap::new();
        for place in &stage.places {
            let at = positions(layer, tensor(place.uid), place, step);
            let values: Vec<f64> = at.iter().map(|at| memory[&place.role][*at]).collect();
            inputs.insert(place.uid, values);
        }
        inputs.retain(|uid, _| stage.graph.inputs().any(|tensor| tensor.uid == *uid));
        let results = reference::evaluate(&stage.graph, &inputs).expect("values fit the graph");
        for place in stage.places.iter().filter(|place| results.contains_key(&place.uid)) {
            let at = positions(layer, tensor(place.uid), place, step);
            let whole = memory.get_mut(&place.role).expect("every role has memory");
            for (at, value) in at.into_iter().zip(&results[&place.uid].values) {
                whole[at] = *value;
            }
        }
    }
}

#[test]
fn the_reference_agrees_with_the_oracle() {
    for case in cases() {
        let descriptor = case.descriptor(DType::F64);
        let layer = descriptor.layer(case.extent(&descriptor)).expect("it is valid");
        let mut memory = case.memory(&layer);
        evaluate(&layer, &mut memory, case.step);
        case.check(&memory[&AttentionRole::Output], TOLERANCE, "reference");
    }
}

#[test]
fn the_weight_buffer_is_the_oracles() {
    for case in cases() {
        let descriptor = case.descriptor(DType::F64);
        let weights = kiln::attention::AttentionWeights::new(&descriptor).expect("it is small");
        for kind in AttentionWeightKind::ALL {
            let slice = weights.get(kind, weights.bytes()).expect("the buffer is large enough");
            let wanted = case.weights.get(kind.name());
            assert_eq!(
                slice.map(|slice| (slice.offset, slice.dims, slice.strides)),
                wanted.map(|slice| (slice.offset, slice.dims, slice.strides)),
                "{}: {}",
                case.name,
                kind.name()
            );
        }
    }
}
