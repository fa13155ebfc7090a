//! A warp's registers: rows of 32 lanes, so that an operation is a loop over a row.

/// Lanes per warp.
pub(crate) const LANES: usize = 32;

/// A register of all lanes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Row<T>(pub [T; LANES]);

/// Location of an operand. The high bit marks a constant for 32- and 64-bit values, and negation
/// for predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The always-true predicate.
    pub const TRUE: Slot = Slot(0);
    const FLAG: u16 = 0x8000;
    /// Maximum number of slots of each class.
    pub const COUNT_MAX: usize = Slot::FLAG as usize;

    pub fn new(index: usize, flag: bool) -> Slot {
        debug_assert!(index < Slot::COUNT_MAX);
        Slot(index as u16 | if flag { Slot::FLAG } else { 0 })
    }

    #[inline(always)]
    pub fn index(self) -> usize {
        usize::from(self.0 & !Slot::FLAG)
    }

    #[inline(always)]
    pub fn flag(self) -> bool {
        self.0 & Slot::FLAG != 0
    }
}

/// Literal operands of a kernel, each broadcast to a row.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    pub words: Vec<Row<u32>>,
    pub wides: Vec<Row<u64>>,
}

/// Number of registers of each class after register allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RegisterCount {
    pub words: usize,
    pub wides: usize,
    pub predicates: usize,
}

impl RegisterCount {
    /// Host memory for the registers of a warp.
    pub fn bytes(self) -> usize {
        self.words * size_of::<Row<u32>>()
            + self.wides * size_of::<Row<u64>>()
            + self.predicates * size_of::<u32>()
    }
}

/// Registers of a warp.
#[derive(Debug)]
pub(crate) struct Registers {
    pub words: Vec<Row<u32>>,
    pub wides: Vec<Row<u64>>,
    /// Bit `i` is the value of lane `i`. Predicate 0 is always true.
    pub predicates: Vec<u32>,
}

impl Registers {
    pub fn new(count: RegisterCount) -> Registers {
        let mut predicates = vec![0; count.predicates.max(1)];
        predicates[0] = u32::MAX;
        Registers {
            words: vec![Row([0; LANES]); count.words],
            wides: vec![Row([0; LANES]); count.wides],
            predicates,
        }
    }

    #[inline(always)]
    pub fn word<'a>(&'a self, constants: &'a Constants, slot: Slot) -> &'a [u32; LANES] {
        let rows = if slot.flag() { &constants.words } else { &self.words };
        &rows[slot.index()].0
    }

    #[inline(always)]
    pub fn wide<'a>(&'a self, constants: &'a Constants, slot: Slot) -> &'a [u64; LANES] {
        let rows = if slot.flag() { &constants.wides } else { &self.wides };
        &rows[slot.index()].0
    }

    #[inline(always)]
    pub fn predicate(&self, slot: Slot) -> u32 {
        let flip = if slot.flag() { u32::MAX } else { 0 };
        self.predicates[slot.index()] ^ flip
    }

    #[inline(always)]
    pub fn set_predicate(&mut self, slot: Slot, value: u32, mask: u32) {
        let bits = &mut self.predicates[slot.index()];
        *bits = (*bits & !mask) | (value & mask);
    }

    #[inline(always)]
    pub fn set_word(&mut self, slot: Slot, value: &[u32; LANES], mask: u32) {
        blend(&mut self.words[slot.index()].0, value, mask);
    }

    #[inline(always)]
    pub fn set_wide(&mut self, slot: Slot, value: &[u64; LANES], mask: u32) {
        blend(&mut self.wides[slot.index()].0, value, mask);
    }
}

/// Copies the lanes in `mask`.
#[inline(always)]
fn blend<T: Copy>(row: &mut [T; LANES], value: &[T; LANES], mask: u32) {
    if mask == u32::MAX {
        *row = *value;
        return;
    }
    for lane in 0..LANES {
        row[lane] = if mask >> lane & 1 != 0 { value[lane] } else { row[lane] };
    }
}
