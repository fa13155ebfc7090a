//! Properties of instructions that the checks and counters need: class, memory order, and whether
//! it merely moves a value. They derive from the instruction's name.

use crate::ast::Instruction;
use crate::counters::{InstructionClass, product};
use kiln_machine::Operands;

/// Scope of a memory operation or fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub(crate) enum Scope {
    /// A weak access, without ordering.
    #[default]
    Weak,
    Block,
    Cluster,
    /// The device or wider.
    Device,
}

/// Memory ordering of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Order {
    pub scope: Scope,
    pub acquires: bool,
    pub releases: bool,
    /// Whether it returns no value: `red`.
    pub silent: bool,
}

/// What a proxy fence covers: stores of threads that another way of access is to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Proxy {
    /// Of shared memory, for TMA copies and MMAs.
    Shared,
    /// Of global memory, for TMA copies.
    Global,
    /// Of tensor maps, for the copies that use them.
    TensorMap,
}

impl Proxy {
    pub const ALL: [Proxy; 3] = [Proxy::Shared, Proxy::Global, Proxy::TensorMap];
}

/// How an instruction propagates an uninitialised value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Moves {
    /// Uses it.
    #[default]
    No,
    /// Copies it.
    Copy,
    /// Copies the first or the second operand, selected by the third.
    Select,
}

/// Properties of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Traits {
    /// Index of the instruction in the kernel; each inlined copy counts.
    pub instruction: u32,
    pub class: InstructionClass,
    /// For an MMA: operand types, and number of multiply-adds per warp.
    pub product: Option<(Operands, u64)>,
    pub order: Order,
    pub moves: Moves,
    /// Whether it is a fence of each proxy.
    pub proxies: [bool; Proxy::ALL.len()],
    /// Whether it reads at system scope.
    pub reads_system: bool,
    /// Whether it loads through the read-only path, `.nc`.
    pub non_coherent: bool,
    /// Whether it makes initialised mbarriers visible to the async proxy.
    pub mbarrier_fence: bool,
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
            reads_system: matches!(opcode, "ld" | "atom") && has("sys"),
            non_coherent: opcode == "ld" && has("nc"),
            mbarrier_fence: opcode == "fence" && (has("mbarrier_init") || has("async")),
            proxies: Proxy::ALL.map(|proxy| opcode == "fence" && fences(proxy, modifiers)),
            moves: match opcode {
                "mov" | "cvta" | "ld" => Moves::Copy,
                "selp" => Moves::Select,
                _ => Moves::No,
            },
        }
    }
}

/// Whether a fence covers what a proxy sees.
fn fences(proxy: Proxy, modifiers: &[String]) -> bool {
    let has = |name: &str| modifiers.iter().any(|modifier| modifier == name);
    let [shared, global] = [has("shared::cta") || has("shared::cluster"), has("global")];
    has("proxy")
        && match proxy {
            Proxy::Shared => has("async") && !global,
            Proxy::Global => has("async") && !shared,
            Proxy::TensorMap => has("tensormap::generic") && has("release"),
        }
}

fn order(opcode: &str, modifiers: &[String]) -> Order {
    let has = |name: &str| modifiers.iter().any(|modifier| modifier == name);
    let fence = matches!(opcode, "fence" | "membar");
    let atomic = matches!(opcode, "atom" | "red");
    let both = has("acq_rel") || fence && !has("acquire") && !has("release");
    let strong = ["relaxed", "volatile", "acquire", "release", "mmio"];
    let proxy = fence && has("proxy") && !has("tensormap::generic");
    if proxy || !fence && !atomic && !both && !strong.into_iter().any(has) {
        return Order::default();
    }
    // A barrier's warp participates in every order within its own scope.
    let scope = match (has("cta"), has("cluster")) {
        (true, _) => Scope::Block,
        (_, true) => Scope::Cluster,
        _ => Scope::Device,
    };
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
        assert_eq!(of("fence", "acq_rel.cluster"), order(Scope::Cluster, true, true));
        assert_eq!(of("st", "release.gpu.u32"), order(Scope::Device, false, true));
        assert_eq!(of("atom", "global.add.u32"), order(Scope::Device, false, false));
        assert_eq!(of("atom", "acq_rel.gpu.add.u32"), order(Scope::Device, true, true));
        assert_eq!(of("membar", "gl"), order(Scope::Device, true, true));
        assert_eq!(of("membar", "cta"), order(Scope::Block, true, true));
        assert_eq!(of("fence", "proxy.alias"), Order::default());
        assert_eq!(of("fence", "proxy.async.global"), Order::default());
        let release = order(Scope::Device, false, true);
        assert_eq!(of("fence", "proxy.tensormap::generic.release.gpu"), release);
    }

    #[test]
    fn proxies_of_fences() {
        let fences = |modifiers: &str| {
            let modifiers: Vec<String> = modifiers.split('.').map(str::to_string).collect();
            Proxy::ALL.map(|proxy| fences(proxy, &modifiers))
        };
        assert_eq!(fences("proxy.async"), [true, true, false]);
        assert_eq!(fences("proxy.async.shared::cta"), [true, false, false]);
        assert_eq!(fences("proxy.async.global"), [false, true, false]);
        assert_eq!(fences("proxy.tensormap::generic.release.gpu"), [false, false, true]);
        assert_eq!(fences("proxy.tensormap::generic.acquire.gpu"), [false; 3]);
        assert_eq!(fences("acq_rel.gpu"), [false; 3]);
    }
}
