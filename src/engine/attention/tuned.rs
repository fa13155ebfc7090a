//! What the engines of the family have in common: a value for each knob is a setting, and what
//! follows from one is its schedule, where the device has room for it.

use std::fmt;

use crate::engine::config::combinations;
use crate::engine::header::described;
use crate::engine::{CostModel, EngineConfig, KernelWork, Knob, Notes, Setting, Supported, WorkOf};
use crate::error::{Error, Result};
use crate::kernel::Lowering;
use crate::target::Target;

/// What another setting may take of the time of the one that rules give to be chosen: the cost
/// model is not nearer to the truth.
const CHEAPER: f64 = 0.9;

/// A graph as an engine with `N` knobs runs it.
pub(super) trait Tunable<const N: usize>: fmt::Debug {
    /// The engine's name.
    const NAME: &'static str;
    /// The names of the knobs, sorted.
    const KNOBS: [&'static str; N];
    /// A value for each knob, in the order of their names.
    type Settings: Copy + From<[i64; N]> + Into<[i64; N]>;
    /// What follows from settings that fit.
    type Schedule;

    /// The knobs in the order of their names.
    fn all_knobs(&self) -> [Knob; N];

    /// # Errors
    /// The limit of the device that rules the settings out.
    fn schedule(&self, settings: Self::Settings) -> Result<Self::Schedule, String>;

    /// The settings expected to run best.
    fn best(&self) -> Self::Settings;

    /// A line for each knob: why the best settings are what they are.
    fn reasons(&self) -> Vec<String>;

    /// Settings that need fewer registers, those to try first first; they need not fit.
    fn smaller(&self, settings: Self::Settings) -> Vec<Self::Settings>;

    /// What there is to know of settings.
    fn notes(&self, settings: Self::Settings) -> Notes;

    /// See [`Supported::pays`].
    fn pays(&self) -> bool {
        true
    }

    /// What the kernels ask of a GPU.
    fn work(&self, schedule: &Self::Schedule) -> Vec<KernelWork>;

    /// What rules give, or that of the others which the cost model expects to be well ahead of it.
    fn cheapest(
        &self,
        target: &Target,
        rule: Self::Settings,
        others: impl Iterator<Item = Self::Settings>,
    ) -> Self::Settings {
        let model = CostModel::of(target);
        let us = |settings: Self::Settings| match self.schedule(settings) {
            Ok(schedule) => model.predicted_us(&self.work(&schedule)),
            Err(_) => f64::INFINITY,
        };
        let least = others.map(|of| (us(of), of)).min_by(|a, b| a.0.total_cmp(&b.0));
        match least {
            Some((least, settings)) if least < CHEAPER * us(rule) => settings,
            _ => rule,
        }
    }

    /// The kernels.
    fn lowering(&self, schedule: &Self::Schedule) -> Lowering;
}

/// Defines `Settings`, a value for each of these knobs, which stand sorted.
macro_rules! settings {
    ($($knob:ident),+) => {
        /// A value for each knob.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        struct Settings {
            $($knob: i64),+
        }

        impl Settings {
            const KNOBS: [&'static str; [$(stringify!($knob)),+].len()] = [$(stringify!($knob)),+];
        }

        impl From<[i64; Settings::KNOBS.len()]> for Settings {
            fn from([$($knob),+]: [i64; Settings::KNOBS.len()]) -> Settings {
                Settings { $($knob),+ }
            }
        }

        impl From<Settings> for [i64; Settings::KNOBS.len()] {
            fn from(Settings { $($knob),+ }: Settings) -> Self {
                [$($knob),+]
            }
        }
    };
}
pub(super) use settings;

/// See the module.
#[derive(Debug)]
pub(super) struct Tuned<E, const N: usize>(pub(super) E);

impl<E: Tunable<N>, const N: usize> Tuned<E, N> {
    /// # Errors
    /// `NotSupported` where not even the least settings fit.
    pub(super) fn of(engine: E, least: E::Settings) -> Result<Self> {
        let tuned = Tuned(engine);
        tuned.schedule(least)?;
        Ok(tuned)
    }

    fn config(settings: E::Settings) -> EngineConfig {
        EngineConfig::of_values(E::NAME, E::KNOBS, settings.into())
    }

    fn values(config: &EngineConfig) -> Result<E::Settings> {
        config.values(E::KNOBS).map(E::Settings::from)
    }

    /// # Errors
    /// `NotSupported` where the device's limits rule the settings out.
    fn schedule(&self, settings: E::Settings) -> Result<E::Schedule> {
        let refused =
            |rule: String| Err(Error::not_supported(format!("{} {rule}", Self::config(settings))));
        self.0.schedule(settings).or_else(refused)
    }
}

impl<E: Tunable<N>, const N: usize> Supported for Tuned<E, N> {
    fn knobs(&self) -> Vec<Knob> {
        self.0.all_knobs().to_vec()
    }

    fn heuristic(&self) -> EngineConfig {
        Self::config(self.0.best())
    }

    fn reasons(&self) -> Vec<String> {
        self.0.reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        let knobs = self.0.all_knobs();
        let legal = |settings: &E::Settings| {
            let smaller = Self::config(*settings);
            let known = smaller != *config && smaller.validate(&knobs).is_ok();
            known && self.0.schedule(*settings).is_ok()
        };
        let candidates = self.0.smaller(Self::values(config).ok()?);
        candidates.into_iter().find(legal).map(Self::config)
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |settings: E::Settings| {
            let work = self.0.work(&self.0.schedule(settings).ok()?);
            Some(Setting { config: Self::config(settings), work })
        };
        combinations(&self.0.all_knobs()).map(E::Settings::from).filter_map(setting).collect()
    }

    fn work_of(&self) -> WorkOf<'_> {
        Box::new(|config| Some(self.0.work(&self.0.schedule(Self::values(config).ok()?).ok()?)))
    }

    fn is_refined(&self) -> bool {
        false
    }

    fn notes(&self, config: &EngineConfig) -> Notes {
        Self::values(config).map_or_else(|_| Notes::default(), |settings| self.0.notes(settings))
    }

    fn pays(&self) -> bool {
        self.0.pays()
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        let knobs = self.0.all_knobs();
        config.validate(&knobs)?;
        let lowering = self.0.lowering(&self.schedule(Self::values(config)?)?);
        Ok(described(lowering, config, &knobs))
    }
}
