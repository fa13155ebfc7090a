//! Replay: launching a dumped kernel, or an edited one, with the dumped launch configuration.

use std::time::Duration;

use crate::compile::{Image, Resources};
use crate::device::{Buffer, Counters, Finding, KernelName};
use crate::error::{Error, Result};
use crate::frontend::Values;
use crate::plan::build::Kiln;
use crate::plan::context::resolved::unsigned;
use crate::plan::dump::format::{DumpArgument, Passed};
use crate::plan::dump::memory::SharedMemory;
use crate::plan::dump::read::{Dump, Edit};
use crate::plan::problem::trial::{Trial, download, upload};
use crate::plan::recipe::MAP_ALIGNMENT;
use crate::tensor::TensorDesc;

/// Byte that output buffers are filled with: NaN in every floating-point type.
const POISON: u8 = 0xff;

/// Number of timed launches on a GPU, after the one whose results are returned.
const TIMED: usize = 21;

/// Result of a relaunch.
#[derive(Debug)]
pub struct Relaunch {
    /// The kernel's resources; `None` if the driver assembled it from PTX.
    pub resources: Option<Resources>,
    /// The outputs that the kernel writes and its time (the median of 21 launches on a GPU), or the
    /// error of the launch.
    pub trial: Result<Trial>,
    /// Bytes of the scratch buffers that the kernel shares with others, by name, after the launch.
    pub scratch: Vec<(String, Vec<u8>)>,
    /// Counters, if the device counts.
    pub counters: Option<Counters>,
    /// Findings of the sanitizer, if it is on.
    pub findings: Vec<Finding>,
}

impl Kiln {
    /// Launches a dumped kernel without compiling it.
    ///
    /// # Errors
    /// As [`Kiln::replay`]. The compiler is needed only if the PTX in the folder was edited.
    pub fn replay_dumped(&self, dump: &Dump, inputs: &Values) -> Result<Relaunch> {
        match dump.edit().is_some_and(|edit| edit.is_ptx) {
            true => self.relaunch(dump, &self.recompile(dump, &dump.source.text)?, inputs),
            false => self.relaunch(dump, &dump.image, inputs),
        }
    }

    /// Compiles a dumped kernel, or an edit of it, with the dump's options, and launches it with
    /// the dump's launch configuration on these inputs. What launches before it left in memory is
    /// restored from the dump.
    ///
    /// # Errors
    /// `BadParam` when the dump's architecture is not the GPU's, an input is missing, an option or
    /// source line could read a file, or only [signed](crate::Config::trust_all) code may run, and
    /// for a kernel that continues what others began, without its captured tensors or on other
    /// inputs; `NoCompiler` when there is no NVRTC, `Compile` when the kernel does not compile;
    /// `OutOfMemory` when device memory is exhausted. A failed launch is part of the result, not an
    /// error.
    pub fn replay(&self, dump: &Dump, edit: Option<&Edit>, inputs: &Values) -> Result<Relaunch> {
        let image = match edit {
            Some(Edit { is_ptx: true, text, .. }) => Image {
                cubin: Vec::new(),
                ptx: text.clone(),
                log: String::new(),
                resources: Resources::default(),
            },
            Some(edit) => self.recompile(dump, &edit.text)?,
            None => self.recompile(dump, &dump.source.text)?,
        };
        self.relaunch(dump, &image, inputs)
    }

    fn recompile(&self, dump: &Dump, text: &str) -> Result<Image> {
        let mut source = dump.source.clone();
        text.clone_into(&mut source.text);
        self.compiler()?.compile_foreign(&source, dump.options.clone())
    }

    fn relaunch(&self, dump: &Dump, image: &Image, inputs: &Values) -> Result<Relaunch> {
        if self.inner.signed_only {
            return Err(unsigned("dumps are not signed"));
        }
        check_memory(dump, inputs)?;
        let target = self.device().target();
        if self.device().kind() == "cuda" && target.arch != dump.arch() {
            let (arch, own) = (dump.arch(), target.arch);
            return Err(Error::bad_param(format!(
                "the dump's kernel is for {arch}, the GPU is {own}; the simulated device runs it"
            )));
        }
        let name = KernelName { stem: &dump.spec.stem, entry: &dump.spec.entry };
        let launch = dump.launch();
        let kernel = self.device().load(image, name, launch.shared_bytes)?;
        let arguments = self.place(dump, inputs)?;
        let mut words: Vec<u64> = Vec::new();
        for (argument, listed) in arguments.iter().zip(&dump.spec.launch.arguments) {
            match &listed.map {
                None => words.push(argument.word + listed.offset),
                Some(map) => {
                    words.resize(words.len().next_multiple_of(MAP_ALIGNMENT), 0);
                    words.extend(self.device().encode(map, argument.word + listed.offset)?);
                }
            }
        }
        words.extend(&dump.spec.launch.numbers);
        let stream = self.stream();
        let run = || {
            arguments.iter().try_for_each(Placed::restore)?;
            let start = stream.record()?;
            if launch.grid > 0 {
                kernel.launch(&launch, &words, stream.handle())?;
            }
            Ok(Duration::from_secs_f64(stream.record()?.elapsed_ms(&start)? / 1e3))
        };
        let mut scratch = Vec::new();
        let trial = run().and_then(|elapsed| {
            let outputs = arguments.iter().filter_map(Placed::read).collect::<Result<_>>()?;
            let shared = SharedMemory::captured(&dump.spec.launch, |at, bytes| {
                self.device().read(arguments[at].word, bytes)
            });
            scratch = shared?.scratch(&dump.spec.launch);
            let timed = if self.device().kind() == "cuda" { TIMED } else { 0 };
            let mut times = (0..timed).map(|_| run()).collect::<Result<Vec<_>>>()?;
            times.sort();
            let elapsed = times.get(timed / 2).copied().unwrap_or(elapsed);
            Ok(Trial { outputs, elapsed, counters: vec![self.device().counters()] })
        });
        Ok(Relaunch {
            resources: (!image.cubin.is_empty()).then_some(image.resources),
            trial,
            scratch,
            counters: self.device().counters(),
            findings: self.device().findings(),
        })
    }

    /// Allocates the arguments of a launch, with the alignment that tensors had when they were
    /// captured.
    fn place<'a>(&self, dump: &'a Dump, inputs: &Values) -> Result<Vec<Placed<'a>>> {
        let mut placed: Vec<Placed<'a>> = Vec::new();
        for (at, argument) in dump.spec.launch.arguments.iter().enumerate() {
            let is_scratch = argument.passed == Passed::Scratch;
            let is_same = |other: &&Placed<'_>| {
                let other = other.argument;
                other.tensor == argument.tensor && (other.passed == Passed::Scratch) == is_scratch
            };
            if let Some(same) = placed.iter().find(is_same) {
                placed.push(Placed { argument, ..same.clone() });
                continue;
            }
            let before = dump.before.as_ref().and_then(|before| before.of(at));
            if is_scratch {
                let buffer = self.device().upload(&vec![POISON; argument.bytes as usize])?;
                let (word, buffer) = (buffer.address(), Some(buffer));
                placed.push(Placed { argument, tensor: None, word, buffer, offset: 0, before });
                continue;
            }
            let tensor = dump.graph().tensor_named(&argument.tensor)?;
            let values = inputs.get(&tensor.uid);
            if values.is_none() && !argument.written {
                let name = &tensor.name;
                return Err(Error::bad_param(format!("input `{name}` has no values")));
            }
            let offset = dump.misalignment(&tensor.name);
            let (word, buffer) = match argument.passed {
                Passed::Value => {
                    let value = values.and_then(|values| values.first()).copied().unwrap_or(0.0);
                    (tensor.dtype.round(value).to_bits(), None)
                }
                Passed::Address | Passed::Scratch | Passed::Map => {
                    let buffer = upload(self.device(), tensor, values, offset, POISON)?;
                    (buffer.address() + offset as u64, Some(buffer))
                }
            };
            placed.push(Placed { argument, tensor: Some(tensor), word, buffer, offset, before });
        }
        Ok(placed)
    }
}

/// Checks that the memory of launches before the dump's is known, if there were any.
fn check_memory(dump: &Dump, inputs: &Values) -> Result<()> {
    let (position, launches) = dump.position();
    if position == 0 {
        return Ok(());
    }
    let (stem, number) = (dump.stem(), position + 1);
    let what = format!("kernel {stem} is launch {number} of {launches} of its problem");
    if dump.before.is_none() {
        return Err(Error::bad_param(format!(
            "{what}, and the dump has not the memory that the others left; dump it with \
             `--tensors` or `KILN_DUMP_TENSORS=1`"
        )));
    }
    let is_captured = dump.inputs().is_some_and(|captured| {
        let bits = |values: &Vec<f64>| values.iter().map(|value| value.to_bits()).collect();
        let same = |(uid, values): (&i64, &Vec<f64>)| {
            inputs.get(uid).is_some_and(|given| {
                let [given, values]: [Vec<u64>; 2] = [given, values].map(bits);
                given == values
            })
        };
        captured.iter().all(same)
    });
    match is_captured {
        true => Ok(()),
        false => Err(Error::bad_param(format!(
            "{what}: it continues from the captured inputs, and takes no others"
        ))),
    }
}

/// An argument of a relaunch.
#[derive(Clone)]
struct Placed<'a> {
    argument: &'a DumpArgument,
    /// The tensor; `None` for a scratch buffer.
    tensor: Option<&'a TensorDesc>,
    /// The value of the parameter.
    word: u64,
    /// The buffer, kept alive during the launch.
    buffer: Option<Buffer>,
    /// Offset of the tensor in the buffer, in bytes.
    offset: usize,
    /// What the captured launch found in memory that it shares with others.
    before: Option<&'a [u8]>,
}

impl Placed<'_> {
    /// Restores what the captured launch found.
    fn restore(&self) -> Result<()> {
        match (&self.buffer, self.before) {
            (Some(buffer), Some(bytes)) => buffer.write(self.offset as u64, bytes),
            _ => Ok(()),
        }
    }

    /// The values of a tensor that the kernel has written.
    fn read(&self) -> Option<Result<(i64, Vec<f64>)>> {
        let buffer = self.buffer.as_ref().filter(|_| self.argument.written)?;
        let tensor = self.tensor?;
        let values = download(buffer, tensor, self.offset);
        Some(values.map(|values| (tensor.uid, values)))
    }
}
