//! Filter descriptors: type, format and dimensions. Recurrent networks of the old interface
//! describe weights by them.

use crate::declare::functions;
use crate::object::{Ref, Settable, object};
use crate::pointer::{InArray, Out, OutArray};
use crate::status::bad;
use crate::tensor::{DIM_MAX, check_count, check_dims};
use crate::values::{DataType, TensorFormat};

/// `mcdnnFilterDescriptor_t`.
#[derive(Debug, Default)]
pub struct Filter(pub Settable<Extents>);
object!(Filter: "mcdnnFilterDescriptor_t", "filter descriptor", 4);

/// What a filter descriptor says; of no dimensions until it is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extents {
    /// The type of elements.
    pub data_type: DataType,
    /// The order in memory.
    pub format: TensorFormat,
    /// Extents.
    pub dims: Vec<i32>,
}

impl Default for Extents {
    fn default() -> Extents {
        let (data_type, format) = (DataType::FLOAT, TensorFormat::NCHW);
        Extents { data_type, format, dims: Vec::new() }
    }
}

impl Extents {
    /// Bytes of all elements.
    pub fn bytes(&self) -> usize {
        let elements = self.dims.iter().map(|dim| *dim as usize).product::<usize>();
        if self.dims.is_empty() { 0 } else { elements * self.data_type.bytes() }
    }

    fn checked(self) -> crate::status::Outcome<Extents> {
        self.data_type.known("dataType")?;
        self.format.known("format")?;
        check_dims(&self.dims)?;
        Ok(self)
    }
}

functions! { FUNCTIONS:
    /// Makes a filter descriptor.
    fn mcdnnCreateFilterDescriptor(filterDesc: Out<Ref<Filter>>) {
        let place = filterDesc.required("filterDesc")?;
        place.put(Ref::new(Filter::default())?);
        Ok(())
    }

    /// Destroys a filter descriptor; NULL is none.
    fn mcdnnDestroyFilterDescriptor(filterDesc: Ref<Filter>) {
        filterDesc.destroy("filterDesc")
    }

    /// Sets type, format and 3 to 8 dimensions.
    fn mcdnnSetFilterNdDescriptor(
        filterDesc: Ref<Filter>,
        dataType: DataType,
        format: TensorFormat,
        nbDims: i32,
        filterDimA: InArray<i32>,
    ) {
        let filter = filterDesc.get("filterDesc")?;
        let dims = filterDimA.all(check_count(nbDims)?, "filterDimA")?;
        filter.0.set(Extents { data_type: dataType, format, dims }.checked()?);
        Ok(())
    }

    /// What a filter descriptor says: as many dimensions as are asked for, 8 at most, those that
    /// are not there as 0.
    fn mcdnnGetFilterNdDescriptor(
        filterDesc: Ref<Filter>,
        nbDimsRequested: i32,
        dataType: Out<DataType>,
        format: Out<TensorFormat>,
        nbDims: Out<i32>,
        filterDimA: OutArray<i32>,
    ) {
        let own = filterDesc.get("filterDesc")?.0.read().clone();
        let asked = usize::try_from(nbDimsRequested);
        let asked = asked.or_else(|_| bad(format!("nbDimsRequested is {nbDimsRequested}")))?;
        let asked = asked.min(DIM_MAX);
        let dims = filterDimA.required(asked, "filterDimA")?;
        dataType.put(own.data_type);
        format.put(own.format);
        nbDims.put(own.dims.len() as i32);
        dims.put((0..asked).map(|at| own.dims.get(at).copied().unwrap_or(0)));
        Ok(())
    }

    /// As mcdnnSetFilterNdDescriptor, of 4 dimensions.
    fn mcdnnSetFilter4dDescriptor(
        filterDesc: Ref<Filter>,
        dataType: DataType,
        format: TensorFormat,
        k: i32,
        c: i32,
        h: i32,
        w: i32,
    ) {
        let filter = filterDesc.get("filterDesc")?;
        filter.0.set(Extents { data_type: dataType, format, dims: vec![k, c, h, w] }.checked()?);
        Ok(())
    }

    /// What a filter descriptor of 4 dimensions says.
    fn mcdnnGetFilter4dDescriptor(
        filterDesc: Ref<Filter>,
        dataType: Out<DataType>,
        format: Out<TensorFormat>,
        k: Out<i32>,
        c: Out<i32>,
        h: Out<i32>,
        w: Out<i32>,
    ) {
        let own = filterDesc.get("filterDesc")?.0.read().clone();
        if own.dims.len() != 4 {
            return bad(format!("filterDesc has {} dimensions, expected 4", own.dims.len()));
        }
        dataType.put(own.data_type);
        format.put(own.format);
        [k, c, h, w].into_iter().zip(own.dims).for_each(|(place, dim)| place.put(dim));
        Ok(())
    }

    /// Bytes of a filter.
    fn mcdnnGetFilterSizeInBytes(filterDesc: Ref<Filter>, size: Out<usize>) {
        let bytes = filterDesc.get("filterDesc")?.0.read().bytes();
        size.required("size")?.put(bytes);
        Ok(())
    }
}
