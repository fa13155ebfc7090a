//! The value of padding: an element of a type, as a program stores it.

use kiln::dtype::DType;

use crate::pointer::DataMut;
use crate::values::DataType;

/// An element: its bytes, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fill {
    data_type: DataType,
    bytes: [u8; 8],
}

impl Fill {
    /// 0.
    pub fn zero(data_type: DataType) -> Fill {
        Fill { data_type, bytes: [0; 8] }
    }

    /// The element at an address of the host, if there is one.
    pub fn read(from: DataMut, data_type: DataType) -> Option<Fill> {
        let count = data_type.bytes().min(8);
        let read = from.host::<u8>().array().all(count, "paddingFill").ok()?;
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(&read);
        Some(Fill { data_type, bytes })
    }

    /// Writes the element to an address of the host, if there is one.
    pub fn write(self, to: DataMut) {
        to.host::<u8>().put(self.bytes.into_iter().take(self.data_type.bytes()));
    }

    /// Its value.
    pub fn value(self) -> f64 {
        let [a, b, c, d, ..] = self.bytes;
        match self.data_type {
            DataType::DOUBLE => f64::from_ne_bytes(self.bytes),
            DataType::HALF => DType::F16.read(&[a, b]),
            DataType::BFLOAT16 => DType::Bf16.read(&[a, b]),
            DataType::INT8 => DType::I8.read(&[a]),
            DataType::UINT8 => DType::U8.read(&[a]),
            _ => f32::from_ne_bytes([a, b, c, d]).into(),
        }
    }
}
