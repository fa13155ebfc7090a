//! Roles of a network's tensors.

/// Role of a tensor in a call (`mcdnnRNNForward`, section 6.2.1.36).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// `x`: the input vectors of all steps.
    Input,
    /// The weight space.
    Weights,
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
    /// `y`: the output vectors of all steps.
    Output,
    /// `hy`: `h` after the last step.
    HFinal,
    /// `cy`: the other states after the last step.
    StatesFinal,
    /// The other states after every step.
    History,
    /// Reserve space of training: outputs of all layers but the last, and states.
    Reserve,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 13] = [
        Role::Input,
        Role::Weights,
        Role::HInitial,
        Role::StatesInitial,
        Role::Lengths,
        Role::Reset,
        Role::RowInputs,
        Role::UnitInputs,
        Role::Output,
        Role::HFinal,
        Role::StatesFinal,
        Role::History,
        Role::Reserve,
    ];

    /// Name in problem and tensor files; torch's where it has one.
    pub fn name(self) -> &'static str {
        match self {
            Role::Input => "input",
            Role::Weights => "weights",
            Role::HInitial => "h_0",
            Role::StatesInitial => "c_0",
            Role::Lengths => "lengths",
            Role::Reset => "reset",
            Role::RowInputs => "row_inputs",
            Role::UnitInputs => "unit_inputs",
            Role::Output => "output",
            Role::HFinal => "h_n",
            Role::StatesFinal => "c_n",
            Role::History => "history",
            Role::Reserve => "reserve",
        }
    }

    /// Whether the network writes the tensor.
    pub fn is_output(self) -> bool {
        self >= Role::Output
    }
}

/// Optional tensors of a forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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

impl Optional {
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
