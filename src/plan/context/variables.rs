//! The table of the library's environment variables, from which they are read, listed and
//! documented.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::cache::{Pack, Remote, TrustRoot};
use crate::error::{Error, Result};
use crate::plan::context::config::Config;

/// An environment variable that provides the value of a field of [`Config`] that is `None`.
#[derive(Debug)]
pub struct Variable {
    /// Name, such as `KILN_DEVICE`.
    pub name: &'static str,
    /// The field of [`Config`], or the part of its value, that the variable provides.
    pub field: &'static str,
    /// Allowed values and their effect.
    pub values: &'static str,
    /// The default if neither the field nor the variable is set.
    pub default: &'static str,
    read: fn(&mut Reading<'_>, &OsStr) -> Result<()>,
}

/// The library's environment variables, which are read by [`Kiln::open`](crate::Kiln::open) only.
/// An empty variable counts as not set, as does every variable of a process with more privileges
/// than the user who started it (setuid). The search for NVRTC is documented at
/// [`locate`](crate::compile::locate).
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "KILN_DEVICE",
        field: "device",
        values: "device: `auto`, `sim[:TARGET]`, `cuda[:N]` or `null[:TARGET]`",
        default: "`auto`",
        read: |reading, value| put(&mut reading.config.device, value, parsed),
    },
    Variable {
        name: "KILN_CACHE_DIR",
        field: "cache_dir",
        values: "folder of the disk cache, or `off`",
        default: "`$XDG_CACHE_HOME/kiln`, `~/.cache/kiln`",
        read: |reading, value| put(&mut reading.config.cache_dir, value, path),
    },
    Variable {
        name: "KILN_CACHE_BYTES",
        field: "cache_bytes",
        values: "maximum size of the disk cache in bytes",
        default: "1 GiB",
        read: |reading, value| put(&mut reading.config.cache_bytes, value, bytes),
    },
    Variable {
        name: "KILN_PACKS",
        field: "packs",
        values: "kernel packs separated by colons, in search order",
        default: "none",
        read: |reading, value| put(&mut reading.config.packs, value, packs),
    },
    Variable {
        name: "KILN_REMOTE",
        field: "remote",
        values: "URL of a kernel store shared by several machines",
        default: "none",
        read: |reading, value| match reading.given.no_disk_cache {
            true => Ok(()),
            false => put(&mut reading.config.remote, value, |value| text(value).map(Remote::new)),
        },
    },
    Variable {
        name: "KILN_REMOTE_READ_ONLY",
        field: "remote",
        values: "1: never write to `KILN_REMOTE`",
        default: "0",
        read: |reading, value| {
            let Some(remote) = reading.remote() else { return Ok(()) };
            remote.read_only = switch(value)?;
            Ok(())
        },
    },
    Variable {
        name: "KILN_REMOTE_MS",
        field: "remote",
        values: "timeout of a read from `KILN_REMOTE` in milliseconds",
        default: "500",
        read: |reading, value| {
            let Some(remote) = reading.remote() else { return Ok(()) };
            remote.timeout = Duration::from_millis(number(value, "a number of milliseconds")?);
            Ok(())
        },
    },
    Variable {
        name: "KILN_TRUST_ROOTS",
        field: "trust_roots",
        values: "public keys, one of which must have signed a pack, separated by colons",
        default: "no signature required",
        read: |reading, value| put(&mut reading.config.trust_roots, value, trust_roots),
    },
    Variable {
        name: "KILN_TRUST_VERSION",
        field: "trust_version",
        values: "minimum version of a signed pack",
        default: "any",
        read: |reading, value| {
            put(&mut reading.config.trust_version, value, |value| number(value, "a version"))
        },
    },
    Variable {
        name: "KILN_TRUST_EXPIRY",
        field: "trust_expiry",
        values: "1: refuse packs without an expiry date",
        default: "0",
        read: |reading, value| put(&mut reading.config.trust_expiry, value, switch),
    },
    Variable {
        name: "KILN_TRUST_ALL",
        field: "trust_all",
        values: "1: run only signed packs and kernels compiled here",
        default: "0",
        read: |reading, value| put(&mut reading.config.trust_all, value, switch),
    },
    Variable {
        name: "KILN_NO_JIT",
        field: "no_jit",
        values: "1: fail instead of compiling",
        default: "0",
        read: |reading, value| put(&mut reading.config.no_jit, value, switch),
    },
    Variable {
        name: "KILN_HEURISTIC",
        field: "heuristic",
        values: "how configurations are chosen: `a`, `b` or `fallback`",
        default: "`a`",
        read: |reading, value| put(&mut reading.config.heuristic, value, parsed),
    },
    Variable {
        name: "KILN_WITHOUT",
        field: "without",
        values: "notes, separated by commas: exclude configurations with any of them",
        default: "none",
        read: |reading, value| put(&mut reading.config.without, value, parsed),
    },
    Variable {
        name: "KILN_ALLOW_SPILLS",
        field: "allow_spills",
        values: "0: refuse requested configurations that spill registers",
        default: "1: run them with a warning",
        read: |reading, value| put(&mut reading.config.allow_spills, value, switch),
    },
    Variable {
        name: "KILN_OVERLAP_LAUNCHES",
        field: "overlap_launches",
        values: "0: kernels never begin before those before them have ended, those of a network's \
                 layers either",
        default: "1: kernels of a plan on sm_90 and later",
        read: |reading, value| put(&mut reading.config.overlap_launches, value, switch),
    },
    Variable {
        name: "KILN_BACKGROUND",
        field: "background",
        values: "compile in the background: `THREADS` or `THREADS:QUEUE`",
        default: "in the foreground",
        read: |reading, value| put(&mut reading.config.background, value, parsed),
    },
    Variable {
        name: "KILN_RECORD",
        field: "record",
        values: "manifest that every planned problem is added to",
        default: "none",
        read: |reading, value| put(&mut reading.config.record, value, path),
    },
    Variable {
        name: "KILN_SANITIZE",
        field: "sanitize",
        values: "1: the simulator detects races, uninitialised reads and divergent barriers",
        default: "0",
        read: |reading, value| put(&mut reading.config.sanitize, value, switch),
    },
    Variable {
        name: "KILN_SIM_SEED",
        field: "sim_seed",
        values: "seed of the simulator's order of warps and of asynchronous copies",
        default: "0",
        read: |reading, value| put(&mut reading.config.sim_seed, value, seed),
    },
    Variable {
        name: "KILN_SIM_WORST",
        field: "sim_worst",
        values: "1: approximate functions and tensor cores have their largest known errors",
        default: "0",
        read: |reading, value| put(&mut reading.config.sim_worst, value, switch),
    },
    Variable {
        name: "KILN_SIM_LATE",
        field: "sim_late",
        values: "1: the simulator runs what no stream or event orders late, in an order of the \
                 seed",
        default: "0",
        read: |reading, value| put(&mut reading.config.sim_late, value, switch),
    },
    Variable {
        name: "KILN_PTX_ONLY",
        field: "ptx_only",
        values: "1: compile to PTX only for the simulator",
        default: "0",
        read: |reading, value| put(&mut reading.config.ptx_only, value, switch),
    },
    Variable {
        name: "KILN_DUMP",
        field: "dump",
        values: "folder that every planned kernel is dumped to",
        default: "no dumps",
        read: |reading, value| put(&mut reading.config.dump, value, path),
    },
    Variable {
        name: "KILN_DUMP_FILTER",
        field: "dump_filter",
        values: "dump only kernels whose stem contains, or whose key starts with, this text",
        default: "every kernel",
        read: |reading, value| {
            let parse = |value: &OsStr| text(value).map(str::to_owned);
            reading.of_dump(|config| put(&mut config.dump_filter, value, parse))
        },
    },
    Variable {
        name: "KILN_DUMP_TENSORS",
        field: "dump_tensors",
        values: "1: also dump the tensors of first launches",
        default: "0",
        read: |reading, value| {
            reading.of_dump(|config| put(&mut config.dump_tensors, value, switch))
        },
    },
    Variable {
        name: "KILN_DUMP_TENSOR_BYTES",
        field: "dump_tensor_bytes",
        values: "maximum bytes of tensors to dump per launch",
        default: "256 MiB",
        read: |reading, value| {
            reading.of_dump(|config| put(&mut config.dump_tensor_bytes, value, bytes))
        },
    },
    Variable {
        name: "KILN_OVERRIDES",
        field: "overrides",
        values: "folder of edited kernels that replace generated ones",
        default: "none",
        read: |reading, value| put(&mut reading.config.overrides, value, path),
    },
    Variable {
        name: "KILN_NVRTC",
        field: "nvrtc",
        values: "NVRTC library or its folder",
        default: "searched for",
        read: |reading, value| put(&mut reading.config.nvrtc, value, path),
    },
    Variable {
        name: "KILN_TEMPLATES",
        field: "templates",
        values: "folder with the layout of `templates/`",
        default: "embedded",
        read: |reading, value| put(&mut reading.config.templates, value, path),
    },
];

/// The configuration while variables are read into it, in the order of the table.
struct Reading<'a> {
    /// The configuration given by the program.
    given: &'a Config,
    config: Config,
}

impl Reading<'_> {
    /// The store of `KILN_REMOTE`, unless the program gave one, which is complete.
    fn remote(&mut self) -> Option<&mut Remote> {
        self.config.remote.as_mut().filter(|_| self.given.remote.is_none())
    }

    /// Reads a variable that only has an effect if kernels are dumped.
    fn of_dump(&mut self, read: impl FnOnce(&mut Config) -> Result<()>) -> Result<()> {
        if self.config.dump.is_some() { read(&mut self.config) } else { Ok(()) }
    }
}

/// Completes this configuration with the values of variables.
///
/// # Errors
/// `BadParam` for an invalid value.
pub(in crate::plan) fn with_environment(
    given: &Config,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Config> {
    let mut reading = Reading { given, config: given.clone() };
    for Variable { name, read, .. } in VARIABLES {
        if let Some(value) = environment(name) {
            let named = |error: Error| error.context(format_args!("environment {name}"));
            read(&mut reading, &value).map_err(named)?;
        }
    }
    Ok(reading.config)
}

/// Sets a field that is `None`.
fn put<T>(
    field: &mut Option<T>,
    value: &OsStr,
    parse: impl FnOnce(&OsStr) -> Result<T>,
) -> Result<()> {
    if field.is_none() {
        *field = Some(parse(value)?);
    }
    Ok(())
}

/// Checks that a value is UTF-8. Treating another one as not set could turn off what it enables,
/// such as signature checks.
fn text(value: &OsStr) -> Result<&str> {
    value.to_str().ok_or_else(|| Error::bad_param("the value is not UTF-8"))
}

fn parsed<T: FromStr<Err = Error>>(value: &OsStr) -> Result<T> {
    text(value)?.parse()
}

fn path(value: &OsStr) -> Result<PathBuf> {
    Ok(PathBuf::from(value))
}

fn switch(value: &OsStr) -> Result<bool> {
    match text(value)? {
        "1" => Ok(true),
        "0" => Ok(false),
        other => Err(Error::bad_param(format!("`{other}` is neither 0 nor 1"))),
    }
}

fn number(value: &OsStr, units: &str) -> Result<u64> {
    let text = text(value)?;
    text.parse().map_err(|_| Error::bad_param(format!("`{text}` is not {units}")))
}

fn seed(value: &OsStr) -> Result<u64> {
    number(value, "a seed")
}

fn bytes(value: &OsStr) -> Result<u64> {
    number(value, "a number of bytes")
}

fn packs(value: &OsStr) -> Result<Vec<Pack>> {
    let paths = env::split_paths(value).filter(|path| !path.as_os_str().is_empty());
    paths.map(|path| Pack::open(&path)).collect()
}

fn trust_roots(value: &OsStr) -> Result<Vec<TrustRoot>> {
    text(value)?.split(':').map(TrustRoot::from_hex).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A valid value of a variable; `None` for packs, which are files.
    fn example(name: &str) -> Option<&'static str> {
        Some(match name {
            "KILN_DEVICE" => "sim:t4",
            "KILN_PACKS" => return None,
            "KILN_REMOTE" => "redis://cache",
            "KILN_TRUST_ROOTS" => {
                "3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"
            }
            "KILN_HEURISTIC" => "b",
            "KILN_WITHOUT" => "tensor_core",
            _ => "1",
        })
    }

    fn read(config: &Config, set: &[(&str, &str)]) -> Result<Config> {
        let value = |name: &str| set.iter().find(|(known, _)| *known == name);
        with_environment(config, |name| value(name).map(|(_, value)| OsString::from(value)))
    }

    /// The variable and value without which a variable has no effect.
    fn beside(name: &str) -> Option<(&'static str, &'static str)> {
        match name {
            "KILN_DUMP_FILTER" | "KILN_DUMP_TENSORS" | "KILN_DUMP_TENSOR_BYTES" => {
                Some(("KILN_DUMP", "dumps"))
            }
            "KILN_REMOTE_READ_ONLY" | "KILN_REMOTE_MS" => Some(("KILN_REMOTE", "redis://cache")),
            _ => None,
        }
    }

    #[test]
    fn every_variable_sets_its_field_and_no_other() {
        let shown = |config: &Config| -> Vec<String> {
            format!("{config:#?}").lines().map(str::to_owned).collect()
        };
        for Variable { name, field, .. } in VARIABLES {
            let beside: Vec<_> = beside(name).into_iter().collect();
            let before = read(&Config::default(), &beside).expect("legal");
            let Some(value) = example(name) else { continue };
            let set = [&beside[..], &[(*name, value)]].concat();
            let after = read(&Config::default(), &set).expect("legal");
            let (before, after) = (shown(&before), shown(&after));
            let differs = before.iter().zip(&after).find(|(before, after)| before != after);
            let (_, line) = differs.unwrap_or_else(|| panic!("{name} is not read"));
            let nested = beside.first().is_some_and(|(name, _)| *name == "KILN_REMOTE");
            assert!(
                nested || line.trim_start().starts_with(&format!("{field}:")),
                "{name}: {line}"
            );
        }
    }

    #[test]
    fn what_a_program_gives_wins() {
        let given = Config {
            no_jit: Some(false),
            remote: Some(Remote::new("redis://own")),
            dump: None,
            ..Config::default()
        };
        let set = [
            ("KILN_NO_JIT", "neither"),
            ("KILN_REMOTE", "redis://other"),
            ("KILN_REMOTE_READ_ONLY", "1"),
            ("KILN_DUMP_TENSORS", "neither"),
        ];
        let read = read(&given, &set).expect("nothing of it is read");
        assert_eq!(format!("{read:?}"), format!("{given:?}"));
        let off = Config { no_disk_cache: true, ..Config::default() };
        let kept = super::tests::read(&off, &set[1..3]).expect("legal");
        assert!(kept.remote.is_none());
    }

    #[test]
    fn errors_name_their_variable() {
        let cases = [
            ("KILN_NO_JIT", "yes", "`yes` is neither 0 nor 1"),
            ("KILN_CACHE_BYTES", "1G", "`1G` is not a number of bytes"),
            ("KILN_TRUST_VERSION", "-1", "`-1` is not a version"),
            (
                "KILN_BACKGROUND",
                "nine",
                "malformed background `nine`: expected THREADS or THREADS:QUEUE",
            ),
        ];
        for (name, value, text) in cases {
            let error = read(&Config::default(), &[(name, value)]).expect_err("malformed");
            assert_eq!(error.to_string(), format!("environment {name}: {text}"));
        }
        let remote = [("KILN_REMOTE", "redis://cache"), ("KILN_REMOTE_MS", "soon")];
        let error = read(&Config::default(), &remote).expect_err("malformed");
        let text = "environment KILN_REMOTE_MS: `soon` is not a number of milliseconds";
        assert_eq!(error.to_string(), text);
    }
}
