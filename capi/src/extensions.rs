//! What the documents do not have: texts of failures, and facts of Kiln.

use std::ffi::c_char;
use std::path::Path;

use kiln::cache::Pack;
use kiln::plan::Manifest;

use crate::backend::Backend;
use crate::declare::{Function, Parameter, functions};
use crate::facts::Text;
use crate::handle::{Handle, add_pack};
use crate::object::Ref;
use crate::pointer::{Out, OutArray};
use crate::status::{self, Failure, bad};

/// `char`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Char(c_char);

impl Parameter for Char {
    fn declare(name: &str) -> String {
        crate::declare::of("char", name)
    }

    fn show(self) -> String {
        self.0.to_string()
    }
}

impl OutArray<Char> {
    /// Writes a text and NUL, as much of it as there is room for.
    pub fn text(self, text: &str, room: usize) {
        if room == 0 {
            return;
        }
        let bytes = text.bytes().take(room - 1).chain([0]);
        self.put(bytes.map(|byte| Char(byte as c_char)));
    }
}

/// The function that gives nothing.
pub static PLAIN: &[Function] = &[Function {
    name: "mcdnnGetLastErrorString",
    documentation: &[
        " Why the last function of this thread that did not succeed did not, as much of it as",
        " there is room for; an empty text after that.",
    ],
    parameters: &[
        ("message", OutArray::<Char>::declare),
        ("max_size", <usize as Parameter>::declare),
    ],
    result: |name| format!("void {name}"),
}];

/// Why the last function of this thread that failed did; an empty text after that.
#[unsafe(no_mangle)]
pub extern "C" fn mcdnnGetLastErrorString(message: OutArray<Char>, max_size: usize) {
    if !message.is_null() {
        message.text(&status::take(), max_size);
    }
}

functions! { FUNCTIONS:
    /// Kiln's own version, such as "0.1.0".
    fn mcdnnKilnVersion(version: OutArray<Char>, room: usize) {
        if version.is_null() {
            return bad("version is NULL");
        }
        version.text(env!("CARGO_PKG_VERSION"), room);
        Ok(())
    }

    /// Finds or compiles every kernel of a manifest (docs of `kiln warm`), so that no call that the
    /// manifest foresees compiles.
    fn mcdnnKilnWarm(handle: Ref<Handle>, manifest: Text) {
        let handle = handle.get("handle")?;
        let path = manifest.required("manifest")?;
        let manifest = Manifest::read(Path::new(&path))?;
        let summary = handle.gpu().kiln.warm(&manifest, &[], |_| {})?;
        match summary.failed.into_iter().next() {
            None => Ok(()),
            Some((name, error)) => {
                let failure = Failure::from(error);
                Err(Failure { text: format!("{name}: {failure}"), ..failure })
            }
        }
    }

    /// Adds a pack of prebuilt kernels to those that are searched on devices whose first handle is
    /// made after this.
    fn mcdnnKilnPack(path: Text) {
        let path = path.required("path")?;
        add_pack(Pack::open(Path::new(&path))?);
        Ok(())
    }

    /// What a finalized execution plan runs: for each kernel a line with the engine, its knobs, the
    /// kernel and where it came from. As much of it as there is room for; needed, unless it is
    /// NULL, is what there is, NUL included.
    fn mcdnnKilnExplain(
        plan: Ref<Backend>,
        text: OutArray<Char>,
        room: usize,
        needed: Out<usize>,
    ) {
        let explained = plan.get("plan")?.explain()?;
        needed.put(explained.len() + 1);
        if !text.is_null() {
            text.text(&explained, room);
        }
        Ok(())
    }

    /// The device of a handle: the target that kernels are built for, such as "sm_90a".
    fn mcdnnKilnDevice(handle: Ref<Handle>, name: OutArray<Char>, room: usize) {
        let handle = handle.get("handle")?;
        if name.is_null() {
            return bad("name is NULL");
        }
        name.text(&handle.gpu().kiln.device().target().name, room);
        Ok(())
    }
}
