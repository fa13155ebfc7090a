//! Tensor descriptors: type, dimensions and strides.

use crate::declare::functions;
use crate::object::{Ref, Settable, object};
use crate::pointer::{InArray, Out, OutArray};
use crate::status::{Outcome, bad, refuse};
use crate::values::{DataType, TensorFormat};

/// The most dimensions of a tensor.
pub const DIM_MAX: usize = 8;

/// `mcdnnTensorDescriptor_t`.
#[derive(Debug, Default)]
pub struct Tensor(Settable<Layout>);
object!(Tensor: "mcdnnTensorDescriptor_t", "tensor descriptor", 3);

/// What a tensor descriptor says; of no dimensions until it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The type of elements.
    pub data_type: DataType,
    /// Extents.
    pub dims: Vec<i32>,
    /// Distances in elements.
    pub strides: Vec<i32>,
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { data_type: DataType::FLOAT, dims: Vec::new(), strides: Vec::new() }
    }
}

impl Layout {
    /// A packed tensor, the last dimension contiguous.
    pub fn packed(data_type: DataType, dims: &[i32]) -> Outcome<Layout> {
        let order: Vec<usize> = (0..dims.len()).rev().collect();
        Layout::ordered(data_type, dims, &order)
    }

    /// A packed tensor whose dimensions lie in memory in an order, the contiguous one first.
    fn ordered(data_type: DataType, dims: &[i32], order: &[usize]) -> Outcome<Layout> {
        let mut strides = vec![0; dims.len()];
        let mut stride = 1_i32;
        for (at, dim) in order.iter().enumerate() {
            strides[*dim] = stride;
            let next = stride.checked_mul(dims[*dim]);
            stride = match next {
                Some(next) => next,
                None if at + 1 == order.len() => stride,
                None => return bad(format!("strides of dimensions {dims:?} exceed 2^31 - 1")),
            };
        }
        Ok(Layout { data_type, dims: dims.to_vec(), strides })
    }

    /// Bytes from the first element to the end of the last one.
    pub fn bytes(&self) -> usize {
        if self.dims.is_empty() {
            return 0;
        }
        let steps = self.dims.iter().zip(&self.strides);
        let last: i64 = steps.map(|(dim, stride)| (i64::from(*dim) - 1) * i64::from(*stride)).sum();
        (last + 1) as usize * self.data_type.bytes()
    }

    fn checked(self) -> Outcome<Layout> {
        self.data_type.known("dataType")?;
        if matches!(self.data_type, DataType::INT64 | DataType::BOOLEAN) {
            return bad(format!("dataType is {}", DataType::TABLE.shown(self.data_type.0)));
        }
        check_dims(&self.dims)?;
        let steps = self.dims.iter().zip(&self.strides);
        check_elements(
            steps.map(|(dim, stride)| i128::from(*dim - 1) * i128::from(*stride)).sum(),
        )?;
        match self.strides.iter().position(|stride| *stride <= 0) {
            None => Ok(self),
            Some(at) => bad(format!("the stride of dimension {at} is {}", self.strides[at])),
        }
    }
}

/// Refuses a number of dimensions.
pub fn check_count(count: i32) -> Outcome<usize> {
    match usize::try_from(count) {
        Ok(of) if (3..=DIM_MAX).contains(&of) => Ok(of),
        _ => bad(format!("nbDims is {count}, expected 3 to {DIM_MAX}")),
    }
}

/// Refuses as many elements as have more bytes than a size can tell.
fn check_elements(elements: i128) -> Outcome {
    match elements < 1 << 55 {
        true => Ok(()),
        false => refuse(format!("{elements} elements, expected fewer than 2^55")),
    }
}

/// Refuses extents below 1, and those of more elements than a size can tell.
pub fn check_dims(dims: &[i32]) -> Outcome {
    match dims.iter().position(|dim| *dim <= 0) {
        None => {
            let extents = dims.iter().map(|dim| i128::from(*dim));
            check_elements(extents.fold(1, |all, dim| all.saturating_mul(dim)))
        }
        Some(at) => bad(format!("dimension {at} is {}, expected at least 1", dims[at])),
    }
}

impl Tensor {
    /// The number of what it says.
    pub fn version(&self) -> u64 {
        self.0.version()
    }

    /// What it says.
    pub fn layout(&self) -> Layout {
        self.0.read().clone()
    }

    /// Whether it says that.
    pub fn has_dims(&self, dims: &[i64]) -> bool {
        let own = self.0.read();
        own.dims.iter().map(|dim| i64::from(*dim)).eq(dims.iter().copied())
    }

    /// Makes it say that.
    pub fn set(&self, layout: Layout) {
        self.0.set(layout);
    }
}

/// The order of dimensions in memory, the contiguous one first.
fn order(format: TensorFormat, dims: usize) -> Outcome<Vec<usize>> {
    match format.known("format")? {
        TensorFormat::NHWC => Ok([1].into_iter().chain((2..dims).rev()).chain([0]).collect()),
        TensorFormat::NCHW => Ok((0..dims).rev().collect()),
        other => bad(format!("format is {}", TensorFormat::TABLE.shown(other.0))),
    }
}

functions! { FUNCTIONS:
    /// Makes a tensor descriptor.
    fn mcdnnCreateTensorDescriptor(tensorDesc: Out<Ref<Tensor>>) {
        let place = tensorDesc.required("tensorDesc")?;
        place.put(Ref::new(Tensor::default())?);
        Ok(())
    }

    /// Destroys a tensor descriptor; NULL is none.
    fn mcdnnDestroyTensorDescriptor(tensorDesc: Ref<Tensor>) {
        tensorDesc.destroy("tensorDesc")
    }

    /// Sets type, 3 to 8 dimensions, and strides in elements.
    fn mcdnnSetTensorNdDescriptor(
        tensorDesc: Ref<Tensor>,
        dataType: DataType,
        nbDims: i32,
        dimA: InArray<i32>,
        strideA: InArray<i32>,
    ) {
        let tensor = tensorDesc.get("tensorDesc")?;
        let count = check_count(nbDims)?;
        let (dims, strides) = (dimA.all(count, "dimA")?, strideA.all(count, "strideA")?);
        tensor.set(Layout { data_type: dataType, dims, strides }.checked()?);
        Ok(())
    }

    /// Sets type and dimensions of a packed tensor of a format.
    fn mcdnnSetTensorNdDescriptorEx(
        tensorDesc: Ref<Tensor>,
        format: TensorFormat,
        dataType: DataType,
        nbDims: i32,
        dimA: InArray<i32>,
    ) {
        let tensor = tensorDesc.get("tensorDesc")?;
        let count = check_count(nbDims)?;
        let dims = dimA.all(count, "dimA")?;
        check_dims(&dims)?;
        let layout = Layout::ordered(dataType, &dims, &order(format, count)?)?;
        tensor.set(layout.checked()?);
        Ok(())
    }

    /// What a tensor descriptor says: of the arrays, as many elements as are asked for and there.
    fn mcdnnGetTensorNdDescriptor(
        tensorDesc: Ref<Tensor>,
        nbDimsRequested: i32,
        dataType: Out<DataType>,
        nbDims: Out<i32>,
        dimA: OutArray<i32>,
        strideA: OutArray<i32>,
    ) {
        let layout = tensorDesc.get("tensorDesc")?.layout();
        let asked = usize::try_from(nbDimsRequested);
        let asked = asked.or_else(|_| bad(format!("nbDimsRequested is {nbDimsRequested}")))?;
        let given = asked.min(layout.dims.len());
        let dims = dimA.required(given, "dimA")?;
        let strides = strideA.required(given, "strideA")?;
        dataType.put(layout.data_type);
        nbDims.put(layout.dims.len() as i32);
        dims.put(layout.dims.into_iter().take(given));
        strides.put(layout.strides.into_iter().take(given));
        Ok(())
    }

    /// As mcdnnSetTensorNdDescriptorEx, of 4 dimensions.
    fn mcdnnSetTensor4dDescriptor(
        tensorDesc: Ref<Tensor>,
        format: TensorFormat,
        dataType: DataType,
        n: i32,
        c: i32,
        h: i32,
        w: i32,
    ) {
        let tensor = tensorDesc.get("tensorDesc")?;
        let dims = [n, c, h, w];
        check_dims(&dims)?;
        tensor.set(Layout::ordered(dataType, &dims, &order(format, 4)?)?.checked()?);
        Ok(())
    }

    /// As mcdnnSetTensorNdDescriptor, of 4 dimensions.
    fn mcdnnSetTensor4dDescriptorEx(
        tensorDesc: Ref<Tensor>,
        dataType: DataType,
        n: i32,
        c: i32,
        h: i32,
        w: i32,
        nStride: i32,
        cStride: i32,
        hStride: i32,
        wStride: i32,
    ) {
        let tensor = tensorDesc.get("tensorDesc")?;
        let (dims, strides) = (vec![n, c, h, w], vec![nStride, cStride, hStride, wStride]);
        tensor.set(Layout { data_type: dataType, dims, strides }.checked()?);
        Ok(())
    }

    /// What a tensor descriptor of 4 dimensions says.
    fn mcdnnGetTensor4dDescriptor(
        tensorDesc: Ref<Tensor>,
        dataType: Out<DataType>,
        n: Out<i32>,
        c: Out<i32>,
        h: Out<i32>,
        w: Out<i32>,
        nStride: Out<i32>,
        cStride: Out<i32>,
        hStride: Out<i32>,
        wStride: Out<i32>,
    ) {
        let layout = tensorDesc.get("tensorDesc")?.layout();
        if layout.dims.len() != 4 {
            return bad(format!("tensorDesc has {} dimensions, expected 4", layout.dims.len()));
        }
        dataType.put(layout.data_type);
        [n, c, h, w].into_iter().zip(layout.dims).for_each(|(place, dim)| place.put(dim));
        let places = [nStride, cStride, hStride, wStride].into_iter();
        places.zip(layout.strides).for_each(|(place, stride)| place.put(stride));
        Ok(())
    }

    /// Bytes from the first element of a tensor to the end of its last one.
    fn mcdnnGetTensorSizeInBytes(tensorDesc: Ref<Tensor>, size: Out<usize>) {
        let bytes = tensorDesc.get("tensorDesc")?.layout().bytes();
        size.required("size")?.put(bytes);
        Ok(())
    }
}
