//! The environment variables of the library: the one table that is read, documented and listed.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::cache::{Pack, Remote, TrustRoot};
use crate::error::{Error, Result};
use crate::plan::context::config::Config;

/// An environment variable that stands in for a field of [`Config`] that is `None`.
#[derive(Debug)]
pub struct Variable {
    /// Its name, such as `KILN_DEVICE`.
    pub name: &'static str,
    /// The field of [`Config`] that it stands in for, or a part of that field's value.
    pub field: &'static str,
    /// What it may be set to, and what that asks for.
    pub values: &'static str,
    /// What holds where neither the field nor the variable is set.
    pub default: &'static str,
    read: fn(&mut Reading<'_>, &OsStr) -> Result<()>,
}

/// Every variable that the library reads for itself, at [`Kiln::open`](crate::Kiln::open) alone. A
/// variable that is set to nothing counts as not set, and so does every variable in a program that
/// has more rights than who started it (setuid). Where NVRTC is looked for is said at
/// [`locate`](crate::compile::locate).
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: "KILN_DEVICE",
        field: "device",
        values: "what to run on: `auto`, `sim[:TARGET]`, `cuda[:N]` or `null[:TARGET]`",
        default: "`auto`",
        read: |reading, value| put(&mut reading.config.device, value, parsed),
    },
    Variable {
        name: "KILN_CACHE_DIR",
        field: "cache_dir",
        values: "the folder of the disk cache, or `off`",
        default: "`$XDG_CACHE_HOME/kiln`, `~/.cache/kiln`",
        read: |reading, value| put(&mut reading.config.cache_dir, value, path),
    },
    Variable {
        name: "KILN_CACHE_BYTES",
        field: "cache_bytes",
        values: "the budget of the disk cache in bytes",
        default: "1 GiB",
        read: |reading, value| put(&mut reading.config.cache_bytes, value, bytes),
    },
    Variable {
        name: "KILN_PACKS",
        field: "packs",
        values: "packs of kernels separated by colons, the first wins",
        default: "none",
        read: |reading, value| put(&mut reading.config.packs, value, packs),
    },
    Variable {
        name: "KILN_REMOTE",
        field: "remote",
        values: "the address of a store that machines share",
        default: "none",
        read: |reading, value| match reading.given.no_disk_cache {
            true => Ok(()),
            false => put(&mut reading.config.remote, value, |value| text(value).map(Remote::new)),
        },
    },
    Variable {
        name: "KILN_REMOTE_READ_ONLY",
        field: "remote",
        values: "1: the store of `KILN_REMOTE` is not written to",
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
        values: "the most milliseconds that a read of the store of `KILN_REMOTE` takes",
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
        values: "public keys that packs must be signed by, separated by colons",
        default: "no signature needed",
        read: |reading, value| put(&mut reading.config.trust_roots, value, trust_roots),
    },
    Variable {
        name: "KILN_TRUST_VERSION",
        field: "trust_version",
        values: "the oldest version of a signed pack",
        default: "any",
        read: |reading, value| {
            put(&mut reading.config.trust_version, value, |value| number(value, "a version"))
        },
    },
    Variable {
        name: "KILN_TRUST_EXPIRY",
        field: "trust_expiry",
        values: "1: packs that never expire are refused",
        default: "0",
        read: |reading, value| put(&mut reading.config.trust_expiry, value, switch),
    },
    Variable {
        name: "KILN_TRUST_ALL",
        field: "trust_all",
        values: "1: nothing runs but signed packs and what is compiled here",
        default: "0",
        read: |reading, value| put(&mut reading.config.trust_all, value, switch),
    },
    Variable {
        name: "KILN_NO_JIT",
        field: "no_jit",
        values: "1: fail rather than compile",
        default: "0",
        read: |reading, value| put(&mut reading.config.no_jit, value, switch),
    },
    Variable {
        name: "KILN_HEURISTIC",
        field: "heuristic",
        values: "how settings are chosen: `a`, `b` or `fallback`",
        default: "`a`",
        read: |reading, value| put(&mut reading.config.heuristic, value, parsed),
    },
    Variable {
        name: "KILN_WITHOUT",
        field: "without",
        values: "notes that exclude a setting, separated by commas",
        default: "none",
        read: |reading, value| put(&mut reading.config.without, value, parsed),
    },
    Variable {
        name: "KILN_ALLOW_SPILLS",
        field: "allow_spills",
        values: "0: settings that spill registers are refused",
        default: "1: they run, with a warning",
        read: |reading, value| put(&mut reading.config.allow_spills, value, switch),
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
        values: "a manifest that what is planned is added to",
        default: "nothing is recorded",
        read: |reading, value| put(&mut reading.config.record, value, path),
    },
    Variable {
        name: "KILN_SANITIZE",
        field: "sanitize",
        values: "1: the simulator looks for races and more",
        default: "0",
        read: |reading, value| put(&mut reading.config.sanitize, value, switch),
    },
    Variable {
        name: "KILN_PTX_ONLY",
        field: "ptx_only",
        values: "1: nothing is assembled for the simulator, which runs PTX",
        default: "0",
        read: |reading, value| put(&mut reading.config.ptx_only, value, switch),
    },
    Variable {
        name: "KILN_DUMP",
        field: "dump",
        values: "a folder that every planned kernel is dumped to",
        default: "no dumps",
        read: |reading, value| put(&mut reading.config.dump, value, path),
    },
    Variable {
        name: "KILN_DUMP_FILTER",
        field: "dump_filter",
        values: "dump only kernels with this in their stem or at the start of their key",
        default: "every kernel",
        read: |reading, value| {
            let parse = |value: &OsStr| text(value).map(str::to_owned);
            reading.of_dump(|config| put(&mut config.dump_filter, value, parse))
        },
    },
    Variable {
        name: "KILN_DUMP_TENSORS",
        field: "dump_tensors",
        values: "1: dump the tensors of first launches too",
        default: "0",
        read: |reading, value| {
            reading.of_dump(|config| put(&mut config.dump_tensors, value, switch))
        },
    },
    Variable {
        name: "KILN_DUMP_TENSOR_BYTES",
        field: "dump_tensor_bytes",
        values: "the most bytes of tensors to dump of a launch",
        default: "256 MiB",
        read: |reading, value| {
            reading.of_dump(|config| put(&mut config.dump_tensor_bytes, value, bytes))
        },
    },
    Variable {
        name: "KILN_OVERRIDES",
        field: "overrides",
        values: "a folder of edited kernels that stand in for generated ones",
        default: "none",
        read: |reading, value| put(&mut reading.config.overrides, value, path),
    },
    Variable {
        name: "KILN_NVRTC",
        field: "nvrtc",
        values: "the NVRTC library or its folder",
        default: "searched for",
        read: |reading, value| put(&mut reading.config.nvrtc, value, path),
    },
    Variable {
        name: "KILN_TEMPLATES",
        field: "templates",
        values: "a folder laid out as `templates/`",
        default: "embedded",
        read: |reading, value| put(&mut reading.config.templates, value, path),
    },
];

/// Settings while the variables are read into them, in the order of the table.
struct Reading<'a> {
    /// As the program gave them.
    given: &'a Config,
    config: Config,
}

impl Reading<'_> {
    /// The store that `KILN_REMOTE` names; one that the program gave is complete.
    fn remote(&mut self) -> Option<&mut Remote> {
        self.config.remote.as_mut().filter(|_| self.given.remote.is_none())
    }

    /// Reads what only matters where kernels are dumped.
    fn of_dump(&mut self, read: impl FnOnce(&mut Config) -> Result<()>) -> Result<()> {
        if self.config.dump.is_some() { read(&mut self.config) } else { Ok(()) }
    }
}

/// These settings with every field that is `None` as its variable says, if that is set.
///
/// # Errors
/// `BadParam` for a value that its variable cannot have.
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

/// Sets a field that the program has left open.
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

/// A value that is no text is an error: to take it for unset would turn off what it asks for,
/// signatures among others.
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

    /// A value that the variable may have; none for packs, which are files.
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

    /// What a variable needs beside it to count.
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
