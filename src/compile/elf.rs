//! Resource usage of a kernel, from its cubin and the assembler's log.

use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, elf};

use crate::compile::Resources;
use crate::error::{Error, Result};

/// `.nv.info.<kernel>` attribute format 4: a 16-bit size followed by as many bytes.
const FORMAT_SIZED: u8 = 0x04;
/// `EIATTR_REGCOUNT`: symbol index, registers.
const ATTRIBUTE_REGISTERS: u8 = 0x2f;
/// `EIATTR_FRAME_SIZE`: symbol index, bytes of local memory.
const ATTRIBUTE_FRAME: u8 = 0x11;

/// Returns the resource usage of the kernel `entry`.
///
/// # Errors
/// `Compile` when the image does not contain the kernel, `Internal` when it is not an ELF file.
pub(super) fn resources(cubin: &[u8], entry: &str, log: &str) -> Result<Resources> {
    let unreadable = |error: object::Error| {
        Error::internal("failed to read the cubin as an ELF file").caused_by(error)
    };
    let file = ElfFile64::<Endianness>::parse(cubin).map_err(unreadable)?;
    let endian = file.endian();
    let header = file.elf_header();
    let sections = header.sections(endian, cubin).map_err(unreadable)?;
    let mut found = Resources::default();
    let mut has_text = false;
    for section in sections.iter() {
        let name = sections.section_name(endian, section).map_err(unreadable)?;
        let name = String::from_utf8_lossy(name);
        if name == format!(".text.{entry}") {
            has_text = true;
            // The register count is in the section's info word; newer images repeat it as an
            // attribute, which takes precedence.
            found.registers = found.registers.max(section.sh_info(endian) >> 24);
        } else if name == format!(".nv.shared.{entry}") {
            found.shared_bytes = section.sh_size(endian) as u32;
        } else if name == ".nv.info" && section.sh_type(endian) != elf::SHT_NOBITS {
            // An image has one kernel, hence one symbol.
            let data = section.data(endian, cubin).map_err(unreadable)?;
            if let Some(registers) = attribute_max(data, ATTRIBUTE_REGISTERS) {
                found.registers = registers;
            }
            found.local_bytes = attribute_max(data, ATTRIBUTE_FRAME).unwrap_or(0);
        }
    }
    if !has_text {
        return Err(Error::compile(format!("the cubin contains no kernel `{entry}`")));
    }
    found.spill_bytes = spill_bytes(log);
    Ok(found)
}

/// Maximum value of a (symbol, value) attribute.
fn attribute_max(mut data: &[u8], attribute: u8) -> Option<u32> {
    let mut largest = None;
    while let [format, kind, low, high, rest @ ..] = data {
        let size = match *format {
            FORMAT_SIZED => usize::from(u16::from_le_bytes([*low, *high])),
            _ => 0,
        };
        let Some(payload) = rest.get(..size) else { break };
        if let (true, [_, _, _, _, value @ ..]) = (*kind == attribute, payload)
            && let Ok(value) = <[u8; 4]>::try_from(value)
        {
            largest = largest.max(Some(u32::from_le_bytes(value)));
        }
        data = &rest[size..];
    }
    largest
}

/// Total of "N bytes spill stores" over the functions in the assembler's log.
fn spill_bytes(log: &str) -> u32 {
    let before =
        |text: &str| text.trim_end().rsplit(' ').next().and_then(|n| n.parse::<u32>().ok());
    log.match_indices(" bytes spill stores").filter_map(|(at, _)| before(&log[..at])).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_are_read_from_the_log() {
        let log = "ptxas info : x\n    0 bytes stack frame, 12 bytes spill stores, 8 bytes spill \
                   loads\n    0 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads";
        assert_eq!(spill_bytes(log), 16);
        assert_eq!(spill_bytes(""), 0);
    }

    #[test]
    fn attributes_are_walked_by_their_format() {
        let mut data = vec![0x03, 0x1b, 0xff, 0x00];
        data.extend([0x04, ATTRIBUTE_REGISTERS, 8, 0, 5, 0, 0, 0, 40, 0, 0, 0]);
        data.extend([0x04, ATTRIBUTE_FRAME, 8, 0, 5, 0, 0, 0, 16, 0, 0, 0]);
        assert_eq!(attribute_max(&data, ATTRIBUTE_REGISTERS), Some(40));
        assert_eq!(attribute_max(&data, ATTRIBUTE_FRAME), Some(16));
        assert_eq!(attribute_max(&data[..9], ATTRIBUTE_FRAME), None);
    }

    #[test]
    fn what_is_no_image_is_an_error() {
        let error = resources(b"not an elf file", "k", "").expect_err("invalid").to_string();
        assert_eq!(error, "failed to read the cubin as an ELF file");
    }
}
