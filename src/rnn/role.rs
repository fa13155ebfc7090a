//! Roles of a network's tensors.

use std::hash::{Hash, Hasher};

/// Role of a tensor in a call (`mcdnnRNNForward`, section 6.2.1.36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// `x`: the input vectors of all steps.
    Input,
    /// The weight space; of a quantised network the matrices, of 8-bit integers.
    Weights,
    /// Of a quantised network, the weights that are f32: parameters, biases and scales.
    WeightNumbers,
    /// `hx`: the initial `h` of every pseudo-layer.
    HInitial,
    /// `cx`: the other initial states of every pseudo-layer.
    StatesInitial,
    /// The number of steps of each sequence.
    Lengths,
    /// Reset mask: a nonzero value resets the states to 0 before the step.
    Reset,
    /// Row inputs of the cell, such as AUGRU's attention.
    RowInputs,
    /// Unit inputs of the cell.
    UnitInputs,
    /// Of training, for each dropout between layers the seed of its random numbers.
    DropoutSeeds,
    /// Of training, for each dropout between layers the offset of its random numbers.
    DropoutPositions,
    /// Of training in chunks of steps, the subsequence of a dropout's random numbers that a chunk
    /// begins with, for all dropouts; a number that a call gives by value.
    DropoutSubsequence,
    /// `dy`: the gradient of `y`.
    OutputGradient,
    /// `dhy`: the gradient of `h` after the last step.
    HFinalGradient,
    /// `dcy`: the gradient of the other states after the last step.
    StatesFinalGradient,
    /// `y`: the output vectors of all steps.
    Output,
    /// `hy`: `h` after the last step.
    HFinal,
    /// `cy`: the other states after the last step.
    StatesFinal,
    /// The other states after every step.
    History,
    /// Reserve space of training: what a forward pass keeps for the gradients, and the gradients of
    /// the data for those of the weights.
    Reserve,
    /// `dx`: the gradient of the input vectors.
    InputGradient,
    /// `dhx`: the gradient of the initial `h`.
    HInitialGradient,
    /// `dcx`: the gradient of the other initial states.
    StatesInitialGradient,
    /// The gradient of the row inputs.
    RowInputsGradient,
    /// The gradient of the unit inputs.
    UnitInputsGradient,
    /// The weight space of gradients, to which those of a pass are added.
    WeightGradients,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 26] = [
        Role::Input,
        Role::Weights,
        Role::WeightNumbers,
        Role::HInitial,
        Role::StatesInitial,
        Role::Lengths,
        Role::Reset,
        Role::RowInputs,
        Role::UnitInputs,
        Role::DropoutSeeds,
        Role::DropoutPositions,
        Role::DropoutSubsequence,
        Role::OutputGradient,
        Role::HFinalGradient,
        Role::StatesFinalGradient,
        Role::Output,
        Role::HFinal,
        Role::StatesFinal,
        Role::History,
        Role::Reserve,
        Role::InputGradient,
        Role::HInitialGradient,
        Role::StatesInitialGradient,
        Role::RowInputsGradient,
        Role::UnitInputsGradient,
        Role::WeightGradients,
    ];

    /// Name in problem and tensor files; torch's where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Weights => "weights",
            Role::WeightNumbers => "weight_numbers",
            Role::HInitial => "h_0",
            Role::StatesInitial => "c_0",
            Role::Lengths => "lengths",
            Role::Reset => "reset",
            Role::RowInputs => "row_inputs",
            Role::UnitInputs => "unit_inputs",
            Role::DropoutSeeds => "dropout_seeds",
            Role::DropoutPositions => "dropout_positions",
            Role::DropoutSubsequence => "dropout_subsequence",
            Role::Output => "output",
            Role::HFinal => "h_n",
            Role::StatesFinal => "c_n",
            Role::History => "history",
            Role::Reserve => "reserve",
            Role::OutputGradient => "d_output",
            Role::HFinalGradient => "d_h_n",
            Role::StatesFinalGradient => "d_c_n",
            Role::InputGradient => "d_input",
            Role::HInitialGradient => "d_h_0",
            Role::StatesInitialGradient => "d_c_0",
            Role::RowInputsGradient => "d_row_inputs",
            Role::UnitInputsGradient => "d_unit_inputs",
            Role::WeightGradients => "d_weights",
        }
    }

    /// The role of the gradient of a tensor of this role.
    pub fn gradient(self) -> Option<Role> {
        Some(match self {
            Role::Input => Role::InputGradient,
            Role::Weights => Role::WeightGradients,
            Role::HInitial => Role::HInitialGradient,
            Role::StatesInitial => Role::StatesInitialGradient,
            Role::RowInputs => Role::RowInputsGradient,
            Role::UnitInputs => Role::UnitInputsGradient,
            Role::Output => Role::OutputGradient,
            Role::HFinal => Role::HFinalGradient,
            Role::StatesFinal => Role::StatesFinalGradient,
            _ => return None,
        })
    }

    /// The role whose gradient this is; otherwise the role itself.
    pub fn of_gradient(self) -> Role {
        Role::ALL.into_iter().find(|role| role.gradient() == Some(self)).unwrap_or(self)
    }

    /// Whether a forward pass writes the tensor, or a backward pass a gradient.
    pub fn is_output(self) -> bool {
        self >= Role::Output
    }
}

/// Optional tensors of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Optional {
    /// [`Role::HInitial`]; 0 if absent.
    pub h_initial: bool,
    /// [`Role::StatesInitial`]; 0 if absent.
    pub states_initial: bool,
    /// [`Role::Lengths`]; all steps if absent.
    pub lengths: bool,
    /// [`Role::Reset`].
    pub reset: bool,
    /// [`Role::HFinal`].
    pub h_final: bool,
    /// [`Role::StatesFinal`].
    pub states_final: bool,
    /// [`Role::History`].
    pub history: bool,
    /// [`Role::Reserve`]: the forward pass of training.
    pub reserve: bool,
}

impl Hash for Optional {
    /// In one number: every call of a network looks plans up by it.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Optional { h_initial, states_initial, lengths, reset, .. } = *self;
        let Optional { h_final, states_final, history, reserve, .. } = *self;
        let all =
            [h_initial, states_initial, lengths, reset, h_final, states_final, history, reserve];
        state.write_u8(all.into_iter().fold(0, |bits, has| bits << 1 | u8::from(has)));
    }
}

impl Optional {
    /// The same with all states of a network, which has others than `h` or not: kernels with all
    /// states also serve calls without them.
    pub(crate) fn with_all_states(self, has_others: bool) -> Optional {
        Optional {
            h_initial: true,
            h_final: true,
            states_initial: self.states_initial || has_others,
            states_final: self.states_final || has_others,
            ..self
        }
    }

    /// Whether a tensor of this role is enabled, if it is optional.
    pub fn has(self, role: Role) -> bool {
        match role {
            Role::HInitial => self.h_initial,
            Role::StatesInitial => self.states_initial,
            Role::Lengths => self.lengths,
            Role::Reset => self.reset,
            Role::HFinal => self.h_final,
            Role::StatesFinal => self.states_final,
            Role::History => self.history,
            Role::Reserve => self.reserve,
            _ => true,
        }
    }
}
