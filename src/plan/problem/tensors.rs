//! Values of tensors in safetensors files: by name, packed in row-major order regardless of
//! strides.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use tracing::warn;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::frontend::Values;
use crate::tensor::TensorDesc;

/// Magnitude up to which `f64` represents all integers exactly.
const INTEGERS_MAX: u64 = 1 << 53;

/// The first i64 that `f64` may not represent exactly, and its index.
fn first_beyond(bytes: &[u8]) -> Option<(usize, i64)> {
    let integers = bytes.chunks_exact(8).map(|of| of.try_into().map_or(0, i64::from_le_bytes));
    integers.enumerate().find(|(_, value)| value.unsigned_abs() > INTEGERS_MAX)
}

fn dtype_of(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|known| safetensors_dtype(*known) == dtype)
}

fn safetensors_dtype(dtype: DType) -> Dtype {
    match dtype {
        DType::F64 => Dtype::F64,
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::Bf16 => Dtype::BF16,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::I8 => Dtype::I8,
        DType::U8 => Dtype::U8,
        DType::Bool => Dtype::BOOL,
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    fs::read(path).map_err(|error| {
        Error::bad_param(format!("failed to read tensors from `{shown}`: {error}"))
    })
}

fn malformed(path: &Path) -> impl FnOnce(SafeTensorError) -> Error {
    move |error| {
        let shown = path.display();
        Error::bad_param(format!("malformed safetensors file `{shown}`: {error}"))
    }
}

/// Reads the values of tensors, matched by name, from a safetensors file. Other tensors in the file
/// are a warning.
///
/// # Errors
/// `BadParam` when the file cannot be read or is malformed, or when a tensor is missing, has
/// another type or shape, an integer beyond 2^53, or different values for elements that share
/// memory.
pub fn read_values<'a>(
    path: &Path,
    tensors: impl Iterator<Item = &'a TensorDesc>,
) -> Result<Values> {
    read_values_beside(path, tensors, &[])
}

/// As [`read_values`]; tensors with the names of `others` may be in the file as well.
pub(in crate::plan) fn read_values_beside<'a>(
    path: &Path,
    tensors: impl Iterator<Item = &'a TensorDesc>,
    others: &[TensorDesc],
) -> Result<Values> {
    let shown = path.display();
    let bytes = read(path)?;
    let file = SafeTensors::deserialize(&bytes).map_err(malformed(path))?;
    let mut unknown: BTreeSet<&str> = file.names().into_iter().collect();
    others.iter().for_each(|other| {
        unknown.remove(other.name.as_str());
    });
    let mut values = Values::new();
    for tensor in tensors {
        let name = &tensor.name;
        unknown.remove(name.as_str());
        let view = file
            .tensor(name)
            .map_err(|_| Error::bad_param(format!("`{shown}` holds no tensor `{name}`")))?;
        let shape: Vec<i64> = view.shape().iter().map(|dim| *dim as i64).collect();
        let (found, wanted) = (view.dtype(), tensor.dtype);
        if dtype_of(found) != Some(wanted) || shape != tensor.dims {
            let dims = &tensor.dims;
            return Err(Error::bad_param(format!(
                "`{shown}`: tensor `{name}` is {found:?}{shape:?}, \
                 the problem says {wanted}{dims:?}"
            )));
        }
        let elements = view.data().chunks_exact(wanted.bytes());
        let given: Vec<f64> = elements.map(|element| wanted.read(element)).collect();
        let beyond = (wanted == DType::I64).then(|| first_beyond(view.data())).flatten();
        if let Some((at, value)) = beyond {
            return Err(Error::bad_param(format!(
                "`{shown}`: tensor `{name}`: element {at} is {value}, beyond 2^53, up to which all \
                 integers are exact"
            )));
        }
        let mut stored = given.clone();
        tensor.stored(&mut stored);
        let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
        if let Some(at) = given.iter().zip(&stored).position(differs) {
            let (first, other) = (given[at], stored[at]);
            return Err(Error::bad_param(format!(
                "`{shown}`: tensor `{name}`: element {at} is {first}, another at its address is \
                 {other}: the strides {:?} share memory",
                tensor.strides
            )));
        }
        values.insert(tensor.uid, given);
    }
    for name in unknown {
        warn!("`{shown}`: the problem has no tensor {name:?}");
    }
    Ok(values)
}

/// Reads the `u8` tensors of a safetensors file.
///
/// # Errors
/// `BadParam` when the file cannot be read or is malformed.
pub(in crate::plan) fn read_u8(path: &Path) -> Result<HashMap<String, Vec<u8>>> {
    let bytes = read(path)?;
    let file = SafeTensors::deserialize(&bytes).map_err(malformed(path))?;
    let tensors = file.iter().filter(|(_, view)| view.dtype() == Dtype::U8);
    Ok(tensors.map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect())
}

/// Reads the metadata of a safetensors file.
///
/// # Errors
/// `BadParam` when the file cannot be read or is malformed.
pub(in crate::plan) fn read_metadata(path: &Path) -> Result<HashMap<String, String>> {
    let (_, metadata) = SafeTensors::read_metadata(&read(path)?).map_err(malformed(path))?;
    Ok(metadata.metadata().clone().unwrap_or_default())
}

/// Writes the values of tensors to a safetensors file.
///
/// # Errors
/// `Io` when the file cannot be written.
///
/// # Panics
/// When `values` lacks a tensor.
pub fn write_values<'a>(
    path: &Path,
    tensors: impl Iterator<Item = &'a TensorDesc>,
    values: &Values,
) -> Result<()> {
    let packed = |tensor: &'a TensorDesc| {
        let size = tensor.dtype.bytes();
        let mut bytes = vec![0; values[&tensor.uid].len() * size];
        for (value, element) in values[&tensor.uid].iter().zip(bytes.chunks_exact_mut(size)) {
            tensor.dtype.write(*value, element);
        }
        (tensor, bytes)
    };
    let bytes = packed_bytes(&tensors.map(packed).collect::<Vec<_>>(), None)?;
    fs::write(path, bytes).map_err(|error| {
        let shown = path.display();
        Error::io(format!("failed to write tensors to `{shown}`: {error}"))
    })
}

/// Serialises packed tensors and metadata as a safetensors file.
pub(in crate::plan) fn packed_bytes(
    tensors: &[(&TensorDesc, impl AsRef<[u8]>)],
    metadata: Option<HashMap<String, String>>,
) -> Result<Vec<u8>> {
    let failed =
        |error: SafeTensorError| Error::internal(format!("failed to serialise tensors: {error}"));
    let views = tensors
        .iter()
        .map(|(tensor, bytes)| {
            let shape = tensor.dims.iter().map(|dim| *dim as usize).collect();
            let view = TensorView::new(safetensors_dtype(tensor.dtype), shape, bytes.as_ref());
            Ok((tensor.name.as_str(), view.map_err(failed)?))
        })
        .collect::<Result<Vec<_>>>()?;
    safetensors::serialize(views, metadata).map_err(failed)
}
