//! Modules, buffers and launches for the tests.

use kiln_sim::{
    Device, DeviceConfig, Interleave, Kernel, L2Promotion, Launch, Module, OutOfBoundsFill, Report,
    Swizzle, TensorMap, TensorType, Tiled,
};
use std::path::Path;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");

/// The text of a file below `tests`.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(Path::new(TESTS).join(path))
        .unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The targets that CUDA files are translated for, those of the older compiler first.
const TARGETS: [&str; 4] = ["sm_80", "sm_90a", "sm_120", "sm_120a"];

/// The PTX of a CUDA file by its targets: each compiler of NVRTC that has its instructions.
pub fn translations(stem: &str) -> Vec<(&'static str, String)> {
    let path = |target: &str| format!("cuda/{stem}.{target}.ptx");
    let exists = |target: &&str| Path::new(TESTS).join(path(target)).exists();
    let found: Vec<_> =
        TARGETS.into_iter().filter(exists).map(|target| (target, text(&path(target)))).collect();
    assert!(!found.is_empty(), "{stem}");
    found
}

/// The kernels of a CUDA file, as both compilers translate them.
pub fn dialects(stem: &str) -> Vec<Module> {
    let load = |(target, text): (&str, String)| {
        Module::load(&text).unwrap_or_else(|error| panic!("{stem}.{target}: {error}"))
    };
    translations(stem).into_iter().map(load).collect()
}

pub fn device() -> Device {
    Device::new(DeviceConfig::default())
}

/// A device whose warps run in the order of a seed.
pub fn seeded(seed: u64) -> Device {
    Device::new(DeviceConfig { seed, ..DeviceConfig::default() })
}

/// A plain value with a fixed byte form.
pub trait Plain: Copy + Default + PartialEq + std::fmt::Debug {
    const BYTES: usize;
    fn bytes(self) -> Vec<u8>;
    fn parse(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($ty:ty),*) => {$(
        impl Plain for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn parse(bytes: &[u8]) -> $ty {
                <$ty>::from_le_bytes(bytes.try_into().unwrap())
            }
        }
    )*};
}

plain!(u8, u16, u32, u64, i32, i64, f32, f64);

pub fn upload<T: Plain>(device: &Device, values: &[T]) -> u64 {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
    let address = device.alloc(bytes.len() as u64).unwrap();
    device.write(address, &bytes).unwrap();
    address
}

pub fn download<T: Plain>(device: &Device, address: u64, count: usize) -> Vec<T> {
    let mut bytes = vec![0; count * T::BYTES];
    device.read(address, &mut bytes).unwrap();
    bytes.chunks(T::BYTES).map(T::parse).collect()
}

/// A parameter block for a kernel: one value for each parameter, by its size.
pub fn params(kernel: &Kernel, values: &[u64]) -> Vec<u8> {
    let mut block = vec![0; kernel.param_bytes()];
    assert_eq!(kernel.params().len(), values.len());
    for (param, value) in kernel.params().iter().zip(values) {
        block[param.offset..param.offset + param.bytes]
            .copy_from_slice(&value.to_le_bytes()[..param.bytes]);
    }
    block
}

/// A parameter block from the bytes of each parameter.
pub fn packed(kernel: &Kernel, values: &[Vec<u8>]) -> Vec<u8> {
    let mut block = vec![0; kernel.param_bytes()];
    assert_eq!(kernel.params().len(), values.len());
    for (param, value) in kernel.params().iter().zip(values) {
        block[param.offset..][..param.bytes].copy_from_slice(value);
    }
    block
}

/// A matrix of f16 that goes in boxes of 64 by 64, swizzled by 128 bytes.
pub fn f16_boxes(address: u64, rows: usize, columns: usize) -> Vec<u8> {
    f16_boxes_of(address, [rows, columns], 64)
}

/// The same in boxes of so many rows.
pub fn f16_boxes_of(address: u64, [rows, columns]: [usize; 2], box_rows: u32) -> Vec<u8> {
    let tiled = Tiled {
        data_type: TensorType::F16,
        address,
        dims: &[columns as u64, rows as u64],
        strides: &[columns as u64 * 2],
        box_dims: &[64, box_rows],
        element_strides: &[1, 1],
        interleave: Interleave::None,
        swizzle: Swizzle::B128,
        l2_promotion: L2Promotion::None,
        fill: OutOfBoundsFill::Zero,
    };
    TensorMap::encode_tiled(&tiled).unwrap().bytes().to_vec()
}

pub fn line(blocks: u32, threads: u32) -> Launch {
    Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], ..Launch::default() }
}

pub fn launch(device: &Device, kernel: &Kernel, shape: Launch, values: &[u64]) -> Report {
    device.launch(kernel, &shape, &params(kernel, values)).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with a file below `tests`; with `BLESS` set, writes it anew.
#[track_caller]
pub fn golden(path: &str, have: &str) {
    let full = Path::new(TESTS).join(path);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&full, have).unwrap();
    }
    let want = std::fs::read_to_string(&full).unwrap_or_default();
    for (at, (have, want)) in have.lines().zip(want.lines()).enumerate() {
        assert_eq!(have, want, "{path}:{}", at + 1);
    }
    assert_eq!(have.lines().count(), want.lines().count(), "{path}");
}
