//! Engines with a fixed set of knobs: [`Tunable`] is what each of them writes, [`Tuned`] answers
//! everything of [`Supported`] from it.

use std::fmt;

use kiln_sass::TileOrder;

use crate::engine::config::combinations;
use crate::engine::header::described;
use crate::engine::support::GAIN_MIN;
use crate::engine::{
    CostModel, EngineConfig, KernelWork, Knob, LayoutInfo, Notes, Setting, Supported, WorkOf,
};
use crate::error::{Error, Result};
use crate::kernel::Lowering;
use crate::target::Target;

/// A graph as an engine with `N` knobs runs it.
///
/// Settings are a value per knob; a schedule is everything derived from settings that are legal for
/// the graph and fit the device.
pub(super) trait Tunable<const N: usize>: fmt::Debug {
    /// The names of the knobs, sorted.
    const KNOBS: [&'static str; N];
    /// Predicted time of another setting, relative to the rules' choice, below which it replaces
    /// that choice: the cost model is not more precise.
    const CHEAPER: f64 = 0.9;
    /// A value per knob; converts from and to values in the order of [`KNOBS`](Self::KNOBS).
    type Settings: Copy + From<[i64; N]> + Into<[i64; N]>;
    /// Everything derived from legal settings.
    type Schedule;
    /// Why settings are not legal; reads on after the configuration: "needs 70 registers".
    type Refusal: fmt::Display;

    /// The engine's name.
    fn name(&self) -> &'static str;

    /// The knobs with the values this graph allows, sorted by name.
    fn all_knobs(&self) -> [Knob; N];

    /// The knobs as the header of a kernel lists them: they must not depend on extents that are
    /// run-time values, else each would have a source of its own.
    fn listed_knobs(&self) -> Vec<Knob> {
        self.all_knobs().to_vec()
    }

    /// The schedule of settings.
    ///
    /// # Errors
    /// The limit of the device or the property of the graph that rules the settings out.
    fn schedule(&self, settings: Self::Settings) -> Result<Self::Schedule, Self::Refusal>;

    /// The settings expected to run best.
    fn best(&self) -> Self::Settings;

    /// Why the best settings were chosen, one line per knob.
    fn reasons(&self) -> Vec<String>;

    /// Settings that need fewer registers, preferred ones first; they need not be legal.
    fn smaller(&self, settings: Self::Settings) -> Vec<Self::Settings>;

    /// Settings for the cost model to rank: one of each set that it cannot distinguish. They need
    /// not be legal.
    fn ranked(&self) -> Vec<Self::Settings> {
        combinations(&self.all_knobs()).map(Self::Settings::from).collect()
    }

    /// The legal ones among [`ranked`](Self::ranked) with their work; for an engine to override
    /// where settings share most of a schedule.
    fn ranked_work(&self) -> Vec<(Self::Settings, Vec<KernelWork>)> {
        let with_work = |settings| Some((settings, self.work(&self.schedule(settings).ok()?)));
        self.ranked().into_iter().filter_map(with_work).collect()
    }

    /// Numerical and behavioural notes of settings.
    fn notes(&self, settings: Self::Settings) -> Notes;

    /// See [`Supported::gain_min`].
    fn gain_min(&self) -> f64 {
        GAIN_MIN
    }

    /// See [`Supported::layouts`].
    fn layouts(&self) -> Vec<LayoutInfo> {
        Vec::new()
    }

    /// See [`Supported::pays`].
    fn pays(&self) -> bool {
        true
    }

    /// See [`Supported::expected_clocks`].
    fn expected_clocks(&self) -> Option<f64> {
        None
    }

    /// See [`Supported::tile_order`].
    fn tile_order(&self, _schedule: &Self::Schedule) -> Option<TileOrder> {
        None
    }

    /// Work of each kernel, for the cost model.
    fn work(&self, schedule: &Self::Schedule) -> Vec<KernelWork>;

    /// `rule`, or whichever of `others` the cost model predicts to be well ahead of it.
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
            Some((least, settings)) if least < Self::CHEAPER * us(rule) => settings,
            _ => rule,
        }
    }

    /// The kernels.
    fn lowering(&self, schedule: &Self::Schedule) -> Lowering;

    /// What [`Tunable::lowering`] has as [`Lowering::scratch`].
    fn scratch(&self, schedule: &Self::Schedule) -> Vec<u64> {
        self.lowering(schedule).scratch
    }
}

/// Defines the settings of an engine, a value per knob: `settings! { struct Settings { items } }`.
/// The names must be sorted.
macro_rules! settings {
    ($vis:vis struct $name:ident { $($knob:ident),+ $(,)? }) => {
        /// A value for each knob.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis struct $name {
            $($vis $knob: i64),+
        }

        impl $name {
            $vis const KNOBS: [&'static str; [$(stringify!($knob)),+].len()] =
                [$(stringify!($knob)),+];
        }

        impl From<[i64; $name::KNOBS.len()]> for $name {
            fn from([$($knob),+]: [i64; $name::KNOBS.len()]) -> $name {
                $name { $($knob),+ }
            }
        }

        impl From<$name> for [i64; $name::KNOBS.len()] {
            fn from($name { $($knob),+ }: $name) -> Self {
                [$($knob),+]
            }
        }
    };
}
pub(super) use settings;

/// A [`Tunable`] graph as a [`Supported`] one: what every engine of the family does alike.
#[derive(Debug)]
pub(super) struct Tuned<E, const N: usize>(pub(super) E);

impl<E: Tunable<N>, const N: usize> Tuned<E, N> {
    /// An engine of which at least one of these candidates is legal.
    ///
    /// # Errors
    /// `NotSupported` with the refusal of the last candidate where none is legal.
    pub(super) fn of(engine: E, candidates: impl IntoIterator<Item = E::Settings>) -> Result<Self> {
        // Graphs are offered to engines often: no refusal becomes text but the one that is shown.
        let mut refused = None;
        for settings in candidates {
            match engine.schedule(settings) {
                Ok(_) => return Ok(Tuned(engine)),
                Err(refusal) => refused = Some((settings, refusal)),
            }
        }
        let (settings, refusal) = refused.expect("there are candidates");
        Err(Tuned(engine).refused(settings, refusal))
    }

    fn config(&self, settings: E::Settings) -> EngineConfig {
        EngineConfig::of_values(self.0.name(), E::KNOBS, settings.into())
    }

    fn values(config: &EngineConfig) -> Result<E::Settings> {
        config.values(E::KNOBS).map(E::Settings::from)
    }

    fn refused(&self, settings: E::Settings, refusal: E::Refusal) -> Error {
        Error::not_supported(format!("{} {refusal}", self.config(settings)))
    }

    /// # Errors
    /// `NotSupported` where the settings are not legal.
    fn schedule(&self, settings: E::Settings) -> Result<E::Schedule> {
        self.0.schedule(settings).map_err(|refusal| self.refused(settings, refusal))
    }
}

impl<E: Tunable<N>, const N: usize> Supported for Tuned<E, N> {
    fn knobs(&self) -> Vec<Knob> {
        self.0.all_knobs().to_vec()
    }

    fn heuristic(&self) -> EngineConfig {
        self.config(self.0.best())
    }

    fn reasons(&self) -> Vec<String> {
        self.0.reasons()
    }

    fn smaller(&self, config: &EngineConfig) -> Option<EngineConfig> {
        let knobs = self.0.all_knobs();
        let legal = |settings: &E::Settings| {
            let smaller = self.config(*settings);
            let known = smaller != *config && smaller.validate(&knobs).is_ok();
            known && self.0.schedule(*settings).is_ok()
        };
        let candidates = self.0.smaller(Self::values(config).ok()?);
        candidates.into_iter().find(legal).map(|settings| self.config(settings))
    }

    fn settings(&self) -> Vec<Setting> {
        let setting = |(settings, work)| Setting { config: self.config(settings), work };
        self.0.ranked_work().into_iter().map(setting).collect()
    }

    fn work_of(&self) -> WorkOf<'_> {
        // A schedule is of values that the knobs have: others would divide by zero.
        let knobs = self.0.all_knobs();
        Box::new(move |config| {
            let values = config.values(E::KNOBS).ok()?;
            let mut with_knobs = values.iter().zip(&knobs);
            let known = with_knobs.all(|(value, knob)| knob.values.contains(value));
            let settings = known.then(|| E::Settings::from(values))?;
            Some(self.0.work(&self.0.schedule(settings).ok()?))
        })
    }

    fn gain_min(&self) -> f64 {
        self.0.gain_min()
    }

    fn layouts(&self) -> Vec<LayoutInfo> {
        self.0.layouts()
    }

    fn notes(&self, config: &EngineConfig) -> Notes {
        Self::values(config).map_or_else(|_| Notes::default(), |settings| self.0.notes(settings))
    }

    fn tile_order(&self, config: &EngineConfig) -> Option<TileOrder> {
        self.0.tile_order(&self.0.schedule(Self::values(config).ok()?).ok()?)
    }

    fn pays(&self) -> bool {
        self.0.pays()
    }

    fn expected_clocks(&self) -> Option<f64> {
        self.0.expected_clocks()
    }

    fn lower(&self, config: &EngineConfig) -> Result<Lowering> {
        config.validate(&self.0.all_knobs())?;
        let lowering = self.0.lowering(&self.schedule(Self::values(config)?)?);
        Ok(described(lowering, config, &self.0.listed_knobs()))
    }

    fn scratch(&self, config: &EngineConfig) -> Result<Vec<u64>> {
        config.validate(&self.0.all_knobs())?;
        Ok(self.0.scratch(&self.schedule(Self::values(config)?)?))
    }
}
