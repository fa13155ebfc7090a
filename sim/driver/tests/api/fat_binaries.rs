//! Fat binaries: PTX among other things, plain and compressed, in memory and in files.

use std::ffi::CString;
use std::ptr;

use crate::code::*;
use crate::driver::{Driver, call};

const PTX: u16 = 1;
const MACHINE_CODE: u16 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;

/// PTX for a target whose kernel writes a word.
fn text(target: &str, word: u32) -> String {
    format!(
        ".version 8.0\n.target {target}\n.address_size 64\n.visible .entry say(.param .u64 at) {{\n\
         .reg .b64 %rd<2>; ld.param.u64 %rd1, [at]; st.global.u32 [%rd1], {word}; ret;\n}}\n"
    )
}

/// An entry as nvcc writes it, with the header that its PTX has.
fn entry(kind: u16, architecture: u32, flags: u64, stored: &[u8], plain_bytes: usize) -> Vec<u8> {
    let mut entry = vec![0_u8; 80];
    let padded = stored.len().next_multiple_of(8);
    let compressed = if flags & (LZ4 | ZSTD) == 0 { 0 } else { stored.len() as u32 };
    entry[..2].copy_from_slice(&kind.to_le_bytes());
    entry[4..8].copy_from_slice(&80_u32.to_le_bytes());
    entry[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
    entry[16..20].copy_from_slice(&compressed.to_le_bytes());
    entry[28..32].copy_from_slice(&architecture.to_le_bytes());
    entry[40..48].copy_from_slice(&flags.to_le_bytes());
    entry[56..64].copy_from_slice(&(plain_bytes as u64).to_le_bytes());
    entry.extend(stored);
    entry.resize(80 + padded, 0);
    entry
}

fn plain(target: &str, word: u32) -> Vec<u8> {
    let digits: String = target.chars().filter(char::is_ascii_digit).collect();
    entry(PTX, digits.parse().unwrap(), 0x11, text(target, word).as_bytes(), 0)
}

fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.concat();
    let mut all = 0xba55_ed50_u32.to_le_bytes().to_vec();
    all.extend([1, 0, 16, 0]);
    all.extend((entries.len() as u64).to_le_bytes());
    all.extend(entries);
    all
}

/// What the kernel of an image writes, or why the image was refused.
fn says(driver: &Driver, image: *const u8) -> Result<u32, i32> {
    let (mut module, mut function) = (0_u64, 0_u64);
    match call!(driver, cuModuleLoadData(&mut module, image)) {
        SUCCESS => {}
        code => return Err(code),
    }
    let name = c"say".as_ptr();
    assert_eq!(call!(driver, cuModuleGetFunction(&mut function, module, name)), SUCCESS);
    let at = driver.alloc(4);
    assert_eq!(driver.launch(function, 1, 0, &[at]), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
    Ok(driver.words(at, 1)[0])
}

#[test]
fn the_best_ptx_is_taken() {
    let driver = Driver::open();
    // The GPU is sm_90.
    for (entries, said) in [
        (vec![plain("sm_75", 1)], 1),
        (vec![plain("sm_75", 1), plain("sm_80", 2), plain("sm_100", 3)], 2),
        (vec![plain("sm_90", 4), plain("sm_80", 2)], 4),
        (vec![entry(MACHINE_CODE, 90, 0x11, b"\x7fELF", 0), plain("sm_75", 1)], 1),
        (vec![plain("sm_90a", 5), plain("sm_80", 2)], 5),
        // Features of one architecture are those of no other, not even a later one.
        (vec![plain("sm_87a", 6), plain("sm_80", 2)], 2),
    ] {
        assert_eq!(says(&driver, container(&entries).as_ptr()), Ok(said));
    }
}

#[test]
fn compressed_ptx_is_taken() {
    let driver = Driver::open();
    let text = text("sm_80", 7);
    let lz4 = lz4_flex::block::compress(text.as_bytes());
    let zstd = ruzstd::encoding::compress_to_vec(
        text.as_bytes(),
        ruzstd::encoding::CompressionLevel::Fastest,
    );
    for (flags, stored) in [(LZ4, &lz4), (ZSTD, &zstd)] {
        let whole = container(&[entry(PTX, 80, 0x11 | flags, stored, text.len())]);
        assert_eq!(says(&driver, whole.as_ptr()), Ok(7));
        // What is damaged is refused; a byte of text may be another one and still be text.
        let half = &stored[..stored.len() / 2];
        let cut = container(&[entry(PTX, 80, 0x11 | flags, half, text.len())]);
        assert_eq!(says(&driver, cut.as_ptr()), Err(NO_BINARY_FOR_GPU));
    }
    let both = container(&[entry(PTX, 80, LZ4 | ZSTD, &lz4, text.len())]);
    assert_eq!(says(&driver, both.as_ptr()), Err(NO_BINARY_FOR_GPU));
}

#[test]
fn images_lie_in_wrappers_files_and_libraries() {
    let driver = Driver::open();
    let data = container(&[plain("sm_80", 8)]);
    let wrapper = [0x0000_0001_4662_43b1, data.as_ptr().expose_provenance() as u64, 0];
    assert_eq!(says(&driver, wrapper.as_ptr().cast()), Ok(8));
    let (mut module, mut library) = (0_u64, 0_u64);
    assert_eq!(call!(driver, cuModuleLoadFatBinary(&mut module, wrapper.as_ptr())), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
    let none: *const u8 = ptr::null();
    let image = data.as_ptr();
    assert_eq!(
        call!(driver, cuLibraryLoadData(&mut library, image, none, none, 0_u32, none, none, 0_u32)),
        SUCCESS
    );
    assert_eq!(call!(driver, cuLibraryUnload(library)), SUCCESS);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image.fatbin");
    let name = CString::new(path.to_str().unwrap()).unwrap();
    std::fs::write(&path, &data).unwrap();
    assert_eq!(call!(driver, cuModuleLoad(&mut module, name.as_ptr())), SUCCESS);
    assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS);
    // A file ends where it ends, whatever it says.
    for end in (0..data.len()).step_by(7) {
        std::fs::write(&path, &data[..end]).unwrap();
        assert_ne!(call!(driver, cuModuleLoad(&mut module, name.as_ptr())), SUCCESS, "{end}");
    }
    // Headers of any numbers are refused, or taken for what they do not say.
    for (at, byte) in (0..96).flat_map(|at| [0x80, 0xff].map(|byte| (at, byte))) {
        let mut damaged = data.clone();
        damaged[at] = byte;
        std::fs::write(&path, &damaged).unwrap();
        if call!(driver, cuModuleLoad(&mut module, name.as_ptr())) == SUCCESS {
            assert_eq!(call!(driver, cuModuleUnload(module)), SUCCESS, "{at}: {byte}");
        }
    }
}

#[test]
fn what_has_no_ptx_for_the_gpu_is_refused() {
    let driver = Driver::open();
    for entries in [
        vec![],
        vec![entry(MACHINE_CODE, 90, 0x11, b"\x7fELF", 0)],
        vec![plain("sm_100", 1)],
        vec![plain("sm_87a", 1)],
        vec![entry(PTX, 80, 0x11, b"no target", 0)],
    ] {
        assert_eq!(says(&driver, container(&entries).as_ptr()), Err(NO_BINARY_FOR_GPU));
    }
    let nowhere = [0x0000_0001_4662_43b1_u64, 0, 0];
    assert_eq!(says(&driver, nowhere.as_ptr().cast()), Err(INVALID_VALUE));
    // A header too short to be one.
    let mut short = container(&[plain("sm_80", 1)]);
    short[20] = 63;
    assert_eq!(says(&driver, short.as_ptr()), Err(NO_BINARY_FOR_GPU));
}

#[test]
fn managed_variables_are_the_hosts_too() {
    let driver = Driver::open();
    let code = CString::new(
        ".version 8.0\n.target sm_80\n.address_size 64\n\
         .visible .global .attribute(.managed) .align 4 .u32 shared[2] = {5, 6};\n\
         .visible .global .align 4 .u32 own;\n",
    )
    .unwrap();
    let (mut library, mut at, mut bytes) = (0_u64, 0_u64, 0_usize);
    let none: *const u8 = ptr::null();
    let image = code.as_ptr();
    assert_eq!(
        call!(driver, cuLibraryLoadData(&mut library, image, none, none, 0_u32, none, none, 0_u32)),
        SUCCESS
    );
    let mut managed = |name: &std::ffi::CStr| {
        let name = name.as_ptr();
        call!(driver, cuLibraryGetManaged(&mut at, &mut bytes, library, name))
    };
    assert_eq!(managed(c"own"), NOT_FOUND);
    assert_eq!(managed(c"none"), NOT_FOUND);
    assert_eq!(managed(c"shared"), SUCCESS);
    assert_eq!(bytes, 8);
    let words = ptr::with_exposed_provenance_mut::<u32>(at as usize);
    assert_eq!(unsafe { [words.read(), words.add(1).read()] }, [5, 6]);
    unsafe { words.add(1).write(9) };
    assert_eq!(driver.words(at, 2), [5, 9]);
    assert_eq!(call!(driver, cuLibraryUnload(library)), SUCCESS);
}
