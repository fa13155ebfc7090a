//! Which line an instruction comes from: DWARF line tables, of the CUDA source and of the PTX.

use gimli::{DebugLine, LittleEndian};
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationTarget};
use std::collections::BTreeMap;

/// The tables of PTX lines and of CUDA lines.
pub(crate) const SECTIONS: [&str; 2] = [".nv_debug_line_sass", ".debug_line"];

/// Lines by section of code and address from which on they hold.
#[derive(Debug, Default)]
pub(crate) struct Lines(BTreeMap<(usize, u32), u32>);

impl Lines {
    /// Reads a table; `None` if the file lacks it or it is damaged.
    pub fn read(file: &ElfFile64<'_, Endianness>, section: &str) -> Option<Lines> {
        let table = file.section_by_name(section)?;
        let mut data = table.data().ok()?.to_vec();
        // Where a sequence starts is a symbol's address: the section that it is in takes the upper
        // half, its offset the lower one.
        for (at, relocation) in table.relocations() {
            let RelocationTarget::Symbol(index) = relocation.target() else { continue };
            let symbol = file.symbol_by_index(index).ok()?;
            let place = (symbol.section_index()?.0 as u64) << 32 | (symbol.address() & 0xffff_ffff);
            let value = place.wrapping_add_signed(relocation.addend());
            data.get_mut(at as usize..)?.get_mut(..8)?.copy_from_slice(&value.to_le_bytes());
        }
        let lines = DebugLine::new(&data, LittleEndian);
        let (mut found, mut at) = (BTreeMap::new(), 0);
        while at < data.len() {
            let program = lines.program(gimli::DebugLineOffset(at), 8, None, None).ok()?;
            at += program.header().unit_length() + 4;
            let mut rows = program.rows();
            while let Some((_, row)) = rows.next_row().ok()? {
                if let (Some(line), false) = (row.line(), row.end_sequence()) {
                    let place = ((row.address() >> 32) as usize, row.address() as u32);
                    found.insert(place, line.get() as u32);
                }
            }
        }
        Some(Lines(found))
    }

    /// The line at an address of a section.
    pub fn at(&self, section: usize, address: u32) -> Option<u32> {
        self.0.range((section, 0)..=(section, address)).next_back().map(|(_, &line)| line)
    }
}

/// The PTX that a file holds, line by line.
pub(crate) fn ptx(file: &ElfFile64<'_, Endianness>) -> Vec<String> {
    let section = file.section_by_name(".nv_debug_ptx_txt");
    let Some(Ok(data)) = section.map(|section| section.data()) else { return Vec::new() };
    // Lines end with a zero.
    let text = String::from_utf8_lossy(data);
    text.split(['\0', '\n']).map(str::to_string).collect()
}
