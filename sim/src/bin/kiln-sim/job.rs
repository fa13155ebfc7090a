//! Job files: a kernel, its launch configuration and arguments.

use crate::tensor::{Addresses, TensorMapOf};
use half::{bf16, f16};
use kiln_sim::{Device, Kernel};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Result with a message.
pub type Result<T> = std::result::Result<T, String>;

/// A job.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The kernel's (mangled) name; optional if the module has one kernel.
    pub kernel: Option<String>,
    #[serde(default = "one")]
    pub grid: [u32; 3],
    #[serde(default = "one")]
    pub block: [u32; 3],
    /// Dynamic shared memory per block in bytes.
    #[serde(default)]
    pub shared_bytes: u32,
    #[serde(default)]
    pub cooperative: bool,
    /// Whether it may begin before the launch before it has ended.
    #[serde(default)]
    pub programmatic: bool,
    /// Cluster size in blocks; zeros use the kernel's own.
    #[serde(default)]
    pub cluster: [u32; 3],
    /// Registers per thread, for the estimate.
    #[serde(default = "registers")]
    pub registers: u32,
    /// Minimum memory traffic in bytes, for the counters.
    pub bytes_min: Option<u64>,
    #[serde(default)]
    pub arguments: Vec<Argument>,
    /// Buffers that are not arguments themselves.
    #[serde(default)]
    pub buffers: Vec<Buffer>,
}

fn one() -> [u32; 3] {
    [1; 3]
}

fn registers() -> u32 {
    32
}

/// A kernel argument.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Argument {
    Buffer(Buffer),
    Scalar(Scalar),
    TensorMap(TensorMapOf),
    Addresses(Addresses),
}

/// A buffer in global memory, passed by address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Buffer {
    pub dtype: Dtype,
    pub count: u64,
    /// Initial contents; without one, the buffer is uninitialised.
    pub fill: Option<Fill>,
    /// Number of elements to print after the launch.
    #[serde(default)]
    pub print: u64,
    /// File to write the contents to after the launch.
    pub save: Option<PathBuf>,
}

/// A scalar argument.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scalar {
    pub dtype: Dtype,
    pub value: f64,
}

/// Initial contents of a buffer.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Fill {
    /// A constant.
    Value(f64),
    Named(Named),
    /// Contents of a file.
    File {
        file: PathBuf,
    },
}

/// A named pattern.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Named {
    /// 0, 1, 2, and so on.
    Index,
    /// Reproducible random numbers: between 0 and 1 for floats, below 256 for integers.
    Random,
}

/// Element type.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

impl Dtype {
    pub fn bytes(self) -> usize {
        match self {
            Dtype::U8 | Dtype::I8 => 1,
            Dtype::U16 | Dtype::I16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::U32 | Dtype::I32 | Dtype::F32 => 4,
            Dtype::U64 | Dtype::I64 | Dtype::F64 => 8,
        }
    }

    fn float(self) -> bool {
        matches!(self, Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::F64)
    }

    /// Encodes a value; integers wrap.
    fn encode(self, value: f64) -> Vec<u8> {
        match self {
            Dtype::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Dtype::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Dtype::F32 => (value as f32).to_le_bytes().to_vec(),
            Dtype::F64 => value.to_le_bytes().to_vec(),
            _ => (value as i128).to_le_bytes()[..self.bytes()].to_vec(),
        }
    }

    /// Formats an element.
    fn decode(self, bytes: &[u8]) -> String {
        let mut all = [0; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        let word = u64::from_le_bytes(all);
        match self {
            Dtype::I8 => (word as i8).to_string(),
            Dtype::I16 => (word as i16).to_string(),
            Dtype::I32 => (word as i32).to_string(),
            Dtype::I64 => (word as i64).to_string(),
            Dtype::F16 => f16::from_bits(word as u16).to_string(),
            Dtype::Bf16 => bf16::from_bits(word as u16).to_string(),
            Dtype::F32 => f32::from_bits(word as u32).to_string(),
            Dtype::F64 => f64::from_bits(word).to_string(),
            _ => word.to_string(),
        }
    }
}

/// A buffer on the device.
pub struct Placed<'a> {
    /// Position among the arguments, then the other buffers.
    pub index: usize,
    /// What the output calls it.
    pub name: String,
    pub buffer: &'a Buffer,
    address: u64,
}

impl Placed<'_> {
    fn read(&self, device: &Device, count: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count as usize * self.buffer.dtype.bytes()];
        device.read(self.address, &mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }

    /// The elements to print.
    pub fn shown(&self, device: &Device) -> Result<Vec<String>> {
        let bytes = self.read(device, self.buffer.print.min(self.buffer.count))?;
        let elements = bytes.chunks(self.buffer.dtype.bytes());
        Ok(elements.map(|bytes| self.buffer.dtype.decode(bytes)).collect())
    }

    /// Writes the requested file.
    pub fn save(&self, device: &Device) -> Result<()> {
        let Some(path) = &self.buffer.save else { return Ok(()) };
        let bytes = self.read(device, self.buffer.count)?;
        std::fs::write(path, bytes)
            .map_err(|e| format!("failed to write `{}`: {e}", path.display()))
    }
}

impl Job {
    pub fn load(path: &Path) -> Result<Job> {
        let text = read_text(path)?;
        serde_json::from_str(&text).map_err(|e| format!("failed to read `{}`: {e}", path.display()))
    }

    /// Allocates and fills the buffers; returns them with the parameter block.
    pub fn place(&self, device: &Device, kernel: &Kernel) -> Result<(Vec<Placed<'_>>, Vec<u8>)> {
        let (have, want) = (self.arguments.len(), kernel.params().len());
        if have != want {
            return Err(format!("`{}` takes {want} arguments, the job has {have}", kernel.name()));
        }
        let mut placed = Vec::new();
        let mut others = Vec::new();
        for (index, buffer) in self.buffers.iter().enumerate() {
            let address = buffer.place(device)?;
            others.push((address, buffer));
            let name = format!("buffer {index}");
            placed.push(Placed { index: have + index, name, buffer, address });
        }
        let mut block = vec![0; kernel.param_bytes()];
        let both = self.arguments.iter().zip(kernel.params());
        for (index, (argument, param)) in both.enumerate() {
            let of = |error: String| format!("argument {index}: {error}");
            let bytes = match argument {
                Argument::Scalar(scalar) => scalar.dtype.encode(scalar.value),
                Argument::Buffer(buffer) => {
                    let address = buffer.place(device)?;
                    let name = format!("argument {index}");
                    placed.push(Placed { index, name, buffer, address });
                    address.to_le_bytes().to_vec()
                }
                Argument::TensorMap(map) => map.encode(&others).map_err(of)?,
                Argument::Addresses(list) => {
                    list.place(device, &others).map_err(of)?.to_le_bytes().to_vec()
                }
            };
            if bytes.len() != param.bytes {
                let (have, want) = (bytes.len(), param.bytes);
                return Err(format!("argument {index} has {have} bytes, `{}` {want}", param.name));
            }
            block[param.offset..param.offset + param.bytes].copy_from_slice(&bytes);
        }
        placed.sort_by_key(|placed| placed.index);
        Ok((placed, block))
    }
}

impl Buffer {
    fn place(&self, device: &Device) -> Result<u64> {
        let bytes = self.count.saturating_mul(self.dtype.bytes() as u64);
        let address = device.alloc(bytes).map_err(|error| error.to_string())?;
        let Some(fill) = &self.fill else { return Ok(address) };
        let data = match fill {
            Fill::Value(value) => self.dtype.encode(*value).repeat(self.count as usize),
            Fill::Named(named) => {
                let each = (0..self.count).map(|at| self.dtype.encode(self.element(named, at)));
                each.flatten().collect()
            }
            Fill::File { file } => {
                let read = std::fs::read(file);
                let data = read.map_err(|e| format!("failed to read `{}`: {e}", file.display()))?;
                if data.len() as u64 > bytes {
                    let have = data.len();
                    return Err(format!("`{}` has {have} bytes of {bytes}", file.display()));
                }
                data
            }
        };
        device.write(address, &data).map_err(|error| error.to_string())?;
        Ok(address)
    }

    fn element(&self, named: &Named, at: u64) -> f64 {
        match named {
            Named::Index => at as f64,
            Named::Random => {
                let bits = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let bits = (bits ^ bits >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40;
                match self.dtype.float() {
                    true => bits as f64 / f64::from(1 << 24),
                    false => (bits & 0xff) as f64,
                }
            }
        }
    }
}

/// Reads a text file.
pub fn read_text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| format!("failed to read `{}`: {e}", path.display()))
}
