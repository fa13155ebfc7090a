//! Kernels of a cubin: an ELF file with a section of code each.

use crate::error::Error;
use crate::instruction::{BYTES, Instruction};
use crate::lines::{self, Lines};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, Object, ObjectSymbol, elf};

/// A compiled module.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cubin {
    /// Compute capability without its point, such as 90.
    pub architecture: u32,
    /// Kernels and functions that are not inlined, in the file's order; none in a module of
    /// variables.
    pub codes: Vec<Code>,
}

/// The machine code of a kernel or function.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Code {
    /// Its name.
    pub name: String,
    /// Compute capability without its point, such as 90.
    pub architecture: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Shared memory of a block that the code declares, in bytes.
    pub shared_bytes: u32,
    /// Local memory of a thread, in bytes.
    pub local_bytes: u32,
    /// Instructions, in order of address.
    pub instructions: Vec<Instruction>,
    /// Lines of the PTX that it was assembled from, if the file holds them.
    pub ptx: Vec<String>,
}

/// `ELFOSABI` of cubins since CUDA 13, whose flags have the architecture in another byte.
const OSABI_RECENT: u8 = 0x41;

/// `.nv.info` attributes of a symbol: `EIATTR_REGCOUNT` and `EIATTR_FRAME_SIZE`.
const REGISTERS: u8 = 0x2f;
const FRAME: u8 = 0x11;
/// An attribute's format: a 16-bit size followed by as many bytes.
const SIZED: u8 = 0x04;

/// Symbols and values of an attribute.
fn attribute_values(mut data: &[u8], attribute: u8) -> impl Iterator<Item = (u32, u32)> {
    let mut found = Vec::new();
    while let [format, kind, low, high, rest @ ..] = data {
        let size = match *format {
            SIZED => usize::from(u16::from_le_bytes([*low, *high])),
            _ => 0,
        };
        let Some((value, rest)) = rest.split_at_checked(size) else { break };
        if let (true, Some((words, _))) = (*kind == attribute, value.split_first_chunk::<8>()) {
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| words[at + i]));
            found.push((word(0), word(4)));
        }
        data = rest;
    }
    found.into_iter()
}

impl Cubin {
    /// Reads a cubin.
    ///
    /// # Errors
    /// When the bytes are not an ELF file of a GPU, or damaged.
    pub fn parse(bytes: &[u8]) -> Result<Cubin, Error> {
        let damaged = |error: object::Error| Error::new(format!("damaged ELF file: {error}"));
        let file = ElfFile64::<Endianness>::parse(bytes).map_err(damaged)?;
        let endian = file.endian();
        let header = file.elf_header();
        if header.e_machine(endian) != elf::EM_CUDA {
            return Err(Error::new("an ELF file, but not one of a GPU"));
        }
        let flags = header.e_flags(endian);
        let recent = header.e_ident().os_abi == OSABI_RECENT;
        let architecture = if recent { flags >> 8 } else { flags } & 0xff;
        let sections = header.sections(endian, bytes).map_err(damaged)?;
        let mut codes = Vec::new();
        let attributes = sections.section_by_name(endian, b".nv.info");
        let attributes = attributes.and_then(|(_, section)| section.data(endian, bytes).ok());
        let symbol = |name: &str| {
            let mut symbols = file.symbols();
            symbols.find(|symbol| symbol.name() == Ok(name)).map(|symbol| symbol.index().0 as u32)
        };
        let [ptx_lines, source_lines] =
            lines::SECTIONS.map(|section| Lines::read(&file, section).unwrap_or_default());
        let ptx = lines::ptx(&file);
        for (index, section) in sections.enumerate() {
            let name = sections.section_name(endian, section).map_err(damaged)?;
            let name = String::from_utf8_lossy(name);
            let Some(name) = name.strip_prefix(".text.") else { continue };
            let data = section.data(endian, bytes).map_err(damaged)?;
            let words = data.as_chunks::<{ BYTES as usize }>().0;
            let mut instructions: Vec<Instruction> = (0_u32..)
                .zip(words)
                .map(|(at, word)| {
                    Instruction::new(at * BYTES, u128::from_le_bytes(*word), architecture)
                })
                .collect();
            for instruction in &mut instructions {
                instruction.ptx_line = ptx_lines.at(index.0, instruction.address);
                instruction.source_line = source_lines.at(index.0, instruction.address);
            }
            let shared = sections
                .section_by_name(endian, format!(".nv.shared.{name}").as_bytes())
                .map_or(0, |(_, section)| section.sh_size(endian) as u32);
            let of_code = symbol(name);
            let attribute = |kind: u8| {
                let values = attribute_values(attributes.unwrap_or_default(), kind);
                values.filter(|&(symbol, _)| Some(symbol) == of_code).map(|(_, value)| value).max()
            };
            codes.push(Code {
                name: name.to_string(),
                architecture,
                // Older files have them in the section's info word.
                registers: attribute(REGISTERS).unwrap_or(section.sh_info(endian) >> 24),
                shared_bytes: shared,
                local_bytes: attribute(FRAME).unwrap_or(0),
                instructions,
                ptx: ptx.clone(),
            });
        }
        Ok(Cubin { architecture, codes })
    }
}

impl Code {
    /// The text of the PTX line that an instruction comes from.
    pub fn ptx_of(&self, instruction: &Instruction) -> Option<&str> {
        let line = instruction.ptx_line?.checked_sub(1)?;
        self.ptx.get(line as usize).map(|text| text.trim())
    }
}
