//! What the watch must know of an instruction beyond what executes it: its class, how it orders
//! memory, and whether it only moves a value. Everything comes from the instruction's name.

use crate::ast::Instruction;
use crate::counters::{InstructionClass, product};
use kiln_machine::Operands;

/// How an access or fence orders others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// An access without an order: a weak one.
    #[default]
    Weak,
    Block,
    /// The device or more. Clusters count as the device, which hides races between clusters.
    Device,
}

/// The order an instruction asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Order {
    pub scope: Scope,
    pub acquires: bool,
    pub releases: bool,
    /// Whether it gives its thread nothing to read: `red`.
    pub silent: bool,
}

/// What an instruction does with a value that was never written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Moves {
    /// Uses it.
    #[default]
    No,
    /// Copies it.
    Copy,
    /// Copies the first or the second operand, by the third.
    Select,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traits {
    /// Numbers the instructions of a kernel, inlined ones once for each inlining.
    pub instruction: u32,
    pub class: InstructionClass,
    /// Of a matrix product: its operands, and how many a warp multiplies.
    pub product: Option<(Operands, u64)>,
    pub order: Order,
    pub moves: Moves,
    /// Whether it is a fence between threads and asynchronous copies.
    pub proxy_fence: bool,
}

impl Traits {
    pub fn of(instruction: &Instruction, number: u32) -> Traits {
        let (opcode, modifiers) = (instruction.opcode.as_str(), &instruction.modifiers[..]);
        let has = |name: &str| modifiers.iter().any(|modifier| modifier == name);
        Traits {
            instruction: number,
            class: InstructionClass::of(opcode, modifiers),
            product: product(opcode, modifiers),
            order: order(opcode, modifiers),
            proxy_fence: opcode == "fence" && ["proxy", "async"].iter().all(|name| has(name)),
            moves: match opcode {
                "mov" | "cvta" | "ld" => Moves::Copy,
                "selp" => Moves::Select,
                _ => Moves::No,
            },
        }
    }
}

fn order(opcode: &str, modifiers: &[String]) -> Order {
    let has = |name: &str| modifiers.iter().any(|modifier| modifier == name);
    let fence = matches!(opcode, "fence" | "membar");
    let atomic = matches!(opcode, "atom" | "red");
    let both = has("acq_rel") || fence && !has("acquire") && !has("release");
    let strong = ["relaxed", "volatile", "acquire", "release", "mmio"];
    if fence && has("proxy") || !fence && !atomic && !both && !strong.into_iter().any(has) {
        return Order::default();
    }
    // A barrier's warp takes part in every order that its own scope allows.
    let scope = if has("cta") { Scope::Block } else { Scope::Device };
    Order {
        scope,
        acquires: both || has("acquire"),
        releases: both || has("release"),
        silent: opcode == "red",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(opcode: &str, modifiers: &str) -> Order {
        let modifiers: Vec<String> = modifiers.split_terminator('.').map(str::to_string).collect();
        order(opcode, &modifiers)
    }

    #[test]
    fn orders_of_names() {
        let order = |scope, acquires, releases| Order { scope, acquires, releases, silent: false };
        assert_eq!(of("ld", "global.u32"), Order::default());
        assert_eq!(of("ld", "volatile.global.u32"), order(Scope::Device, false, false));
        assert_eq!(of("ld", "acquire.cta.u32"), order(Scope::Block, true, false));
        assert_eq!(of("st", "release.gpu.u32"), order(Scope::Device, false, true));
        assert_eq!(of("atom", "global.add.u32"), order(Scope::Device, false, false));
        assert_eq!(of("atom", "acq_rel.gpu.add.u32"), order(Scope::Device, true, true));
        assert_eq!(of("membar", "gl"), order(Scope::Device, true, true));
        assert_eq!(of("membar", "cta"), order(Scope::Block, true, true));
        assert_eq!(of("fence", "proxy.alias"), Order::default());
    }
}
