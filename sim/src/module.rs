//! Loaded PTX modules and their kernels.

use crate::accuracy::Accuracy;
use crate::ast::{Ast, Space, Variable};
use crate::decode::decode;
use crate::error::Result;
use crate::parse::parse;
use crate::program::Program;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// A parsed, verified and decoded PTX module; clones share it.
#[derive(Debug, Clone)]
pub struct Module {
    pub(crate) inner: Arc<Loaded>,
}

/// An entry of a module; clones share it.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub(crate) module: Arc<Loaded>,
    index: usize,
}

/// A kernel parameter.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Param {
    /// Name in the PTX.
    pub name: String,
    /// Offset in the parameter block in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub bytes: usize,
    /// Alignment in bytes.
    pub align: usize,
}

/// State shared by a module's clones and kernels.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Unique id within the process.
    pub id: u64,
    pub text: String,
    /// Where each line of the text begins, from the first time that a line is asked for.
    lines: OnceLock<Vec<usize>>,
    pub ast: Ast,
    pub entries: Vec<Entry>,
}

/// A decoded entry.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub params: Vec<Param>,
    pub param_bytes: usize,
    pub threads_max: Option<u32>,
    pub blocks_min: Option<u32>,
    pub registers_max: Option<u32>,
    pub threads_required: Option<[u32; 3]>,
    pub cluster: Option<[u32; 3]>,
    pub cluster_blocks_max: Option<u32>,
    pub program: Program,
}

impl Loaded {
    /// A line of the text, from 1, trimmed.
    pub fn line(&self, line: u32) -> &str {
        let starts = self.lines.get_or_init(|| {
            let ends = self.text.match_indices('\n').map(|(at, _)| at + 1);
            std::iter::once(0).chain(ends).collect()
        });
        let at = line.saturating_sub(1) as usize;
        let Some(&start) = starts.get(at) else { return "" };
        let end = starts.get(at + 1).copied().unwrap_or(self.text.len());
        self.text[start..end].trim()
    }
}

/// Lays out parameters as in the `.param` space.
fn lay_out(variables: &[Variable]) -> (Vec<Param>, usize) {
    let mut at = 0_usize;
    let mut params = Vec::new();
    for variable in variables {
        let (bytes, align) = (variable.bytes as usize, variable.align as usize);
        let offset = at.next_multiple_of(align);
        at = offset + bytes;
        params.push(Param { name: variable.name.clone(), offset, bytes, align });
    }
    (params, at)
}

impl Module {
    /// Parses, verifies and decodes PTX text. A trailing NUL, as NVRTC emits, is ignored.
    ///
    /// # Errors
    ///
    /// [`Parse`](crate::ErrorKind::Parse) if the text is not valid PTX, and
    /// [`Unsupported`](crate::ErrorKind::Unsupported), with the line, for an opcode, modifier or
    /// directive that the machine does not implement.
    pub fn load(ptx: &str) -> Result<Module> {
        Module::load_with(ptx, Accuracy::Nearest)
    }

    /// [`Module::load`], for approximate results of this accuracy.
    ///
    /// # Errors
    /// As [`Module::load`].
    pub fn load_with(ptx: &str, accuracy: Accuracy) -> Result<Module> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let text = ptx.trim_end_matches('\0');
        let ast = parse(text)?;
        let mut entries = Vec::new();
        for function in ast.functions.iter().filter(|f| f.entry && f.defined) {
            let program = decode(&ast, function, accuracy)?;
            let formals = &function.variables[..function.params];
            let (params, param_bytes) = lay_out(formals);
            let name = function.name.clone();
            entries.push(Entry {
                name,
                params,
                param_bytes,
                threads_max: function.threads_max,
                blocks_min: function.blocks_min,
                registers_max: function.registers_max,
                threads_required: function.threads_required,
                cluster: function.cluster,
                cluster_blocks_max: function.cluster_blocks_max,
                program,
            });
        }
        let id = NEXT_ID.fetch_add(1, Relaxed);
        let (text, lines) = (text.to_string(), OnceLock::new());
        Ok(Module { inner: Arc::new(Loaded { id, text, lines, ast, entries }) })
    }

    /// Looks up a kernel by its (mangled) name.
    pub fn kernel(&self, name: &str) -> Option<Kernel> {
        let index = self.inner.entries.iter().position(|entry| entry.name == name)?;
        Some(Kernel { module: self.inner.clone(), index })
    }

    /// Names of the kernels, in textual order.
    pub fn kernels(&self) -> impl Iterator<Item = &str> {
        self.inner.entries.iter().map(|entry| entry.name.as_str())
    }

    /// Whether a variable is managed, so that the host uses it at its address on the device.
    pub fn is_managed(&self, name: &str) -> bool {
        let mut all = self.inner.ast.variables.iter();
        all.any(|variable| variable.managed && variable.name == name)
    }

    /// The `.target` directive: `sm_90a`.
    pub fn target(&self) -> &str {
        &self.inner.ast.target
    }
}

impl Kernel {
    pub(crate) fn entry(&self) -> &Entry {
        &self.module.entries[self.index]
    }

    /// The (mangled) name.
    pub fn name(&self) -> &str {
        &self.entry().name
    }

    /// The `.target` of its module: `sm_90a`.
    pub fn target(&self) -> &str {
        &self.module.ast.target
    }

    /// Size of the parameter block in bytes.
    pub fn param_bytes(&self) -> usize {
        self.entry().param_bytes
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.entry().params
    }

    /// Static shared memory per block in bytes.
    pub fn shared_bytes(&self) -> u32 {
        self.entry().program.shared_bytes
    }

    /// Host memory for the registers of a resident warp, in bytes.
    pub fn warp_bytes(&self) -> usize {
        self.entry().program.registers.bytes()
    }

    /// Local memory per thread in bytes.
    pub fn local_bytes(&self) -> u32 {
        self.entry().program.local_bytes
    }

    /// Constant memory of its module in bytes.
    pub fn const_bytes(&self) -> u32 {
        let all = self.module.ast.variables.iter();
        all.filter(|variable| variable.space == Space::Const).map(|variable| variable.bytes).sum()
    }

    /// Whether it reads memory at system scope (`ld.acquire.sys`), so that it may wait for what
    /// another launch, another device or the host writes.
    pub fn reads_at_system_scope(&self) -> bool {
        self.entry().program.reads_at_system_scope()
    }

    /// Whether it waits for the launches before it in the stream (`griddepcontrol.wait`), so that
    /// it may begin before they have ended.
    pub fn waits_for_grids(&self) -> bool {
        self.entry().program.waits_for_grids()
    }

    /// Maximum number of threads per block, from `.maxntid`.
    pub fn block_threads_max(&self) -> Option<u32> {
        self.entry().threads_max
    }

    /// Required block size, from `.reqntid`.
    pub fn block(&self) -> Option<[u32; 3]> {
        self.entry().threads_required
    }

    /// Cluster size along x, y and z, from `.reqnctapercluster`.
    pub fn cluster(&self) -> Option<[u32; 3]> {
        self.entry().cluster
    }

    /// Maximum number of blocks per cluster, from `.maxclusterrank`.
    pub fn cluster_blocks_max(&self) -> Option<u32> {
        self.entry().cluster_blocks_max
    }
}
