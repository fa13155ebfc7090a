//! Modules, buffers and launches for the tests.

use kiln_sim::{Device, DeviceConfig, Kernel, Launch, Module, Report};

/// The text of a file below `tests`.
pub fn text(path: &str) -> String {
    let full = format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&full).unwrap_or_else(|error| panic!("{full}: {error}"))
}

/// The kernels of a CUDA file, as both compilers of NVRTC translate them.
pub fn dialects(stem: &str) -> [Module; 2] {
    ["sm_80", "sm_120"].map(|target| {
        let path = format!("cuda/{stem}.{target}.ptx");
        Module::load(&text(&path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    })
}

pub fn device() -> Device {
    Device::new(DeviceConfig::default())
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

pub fn line(blocks: u32, threads: u32) -> Launch {
    Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], ..Launch::default() }
}

pub fn launch(device: &Device, kernel: &Kernel, shape: Launch, values: &[u64]) -> Report {
    device.launch(kernel, &shape, &params(kernel, values)).unwrap_or_else(|error| panic!("{error}"))
}

/// Compares with a file below `tests`; with `BLESS` set, writes it anew.
#[track_caller]
pub fn golden(path: &str, have: &str) {
    let full = format!("{}/tests/{path}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&full, have).unwrap();
    }
    let want = std::fs::read_to_string(&full).unwrap_or_default();
    for (at, (have, want)) in have.lines().zip(want.lines()).enumerate() {
        assert_eq!(have, want, "{path}:{}", at + 1);
    }
    assert_eq!(have.lines().count(), want.lines().count(), "{path}");
}
