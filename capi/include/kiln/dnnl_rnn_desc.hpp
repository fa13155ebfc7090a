// Descriptions of recurrent networks of oneDNN's C++ interface, on Kiln; see dnnl_rnn.hpp.
#ifndef KILN_DNNL_RNN_DESC_HPP_
#define KILN_DNNL_RNN_DESC_HPP_

#include <map>

#include "dnnl_primitive.hpp"

namespace kiln
{
namespace dnnl
{

enum class prop_kind {
    undef = 0,
    forward_training = 64,
    forward_inference = 96,
    forward = forward_training,
    backward = 128
};

enum class algorithm {
    undef = 0,
    eltwise_relu,
    eltwise_tanh,
    eltwise_logistic,
    vanilla_rnn,
    vanilla_lstm,
    vanilla_gru,
    lbr_gru,
    vanilla_augru,
    lbr_augru
};

enum class rnn_flags : unsigned {
    undef = 0,
    diff_weights_overwrite = MCDNN_KILN_DIFF_WEIGHTS_OVERWRITE
};

enum class rnn_direction {
    unidirectional_left2right = MCDNN_KILN_RNN_LEFT2RIGHT,
    unidirectional_right2left = MCDNN_KILN_RNN_RIGHT2LEFT,
    bidirectional_concat = MCDNN_KILN_RNN_BIDIRECTIONAL_CONCAT,
    bidirectional_sum = MCDNN_KILN_RNN_BIDIRECTIONAL_SUM,
    unidirectional = unidirectional_left2right
};

namespace detail
{

// A recurrent network's operation, before there is an engine for it.
struct operation {
    operation(prop_kind prop, mcdnnKilnRNNCell_t of, rnn_direction way, rnn_flags with)
        : kind(prop), cell(of), direction(way), flags(with)
    {
    }

    operation &with(int argument, const memory::desc &of)
    {
        descs[argument] = of;
        return *this;
    }

    prop_kind kind;
    mcdnnKilnRNNCell_t cell;
    rnn_direction direction;
    rnn_flags flags;
    std::map<int, memory::desc> descs;
};

inline mcdnnKilnRNNCell_t cell_of(algorithm activation, float alpha)
{
    if (alpha != 0.0f)
        refuse("an activation with alpha");
    switch (activation) {
    case algorithm::eltwise_relu:
        return MCDNN_KILN_CELL_RELU;
    case algorithm::eltwise_tanh:
        return MCDNN_KILN_CELL_TANH;
    case algorithm::eltwise_logistic:
        return MCDNN_KILN_CELL_LOGISTIC;
    default:
        bad("an activation other than eltwise_relu, eltwise_tanh and eltwise_logistic");
    }
}

inline mcdnnKilnPropKind_t prop_of(prop_kind of)
{
    switch (of) {
    case prop_kind::forward_inference:
        return MCDNN_KILN_PROP_FORWARD_INFERENCE;
    case prop_kind::forward_training:
        return MCDNN_KILN_PROP_FORWARD_TRAINING;
    case prop_kind::backward:
        return MCDNN_KILN_PROP_BACKWARD;
    default:
        bad("a propagation kind other than forward and backward");
    }
}

// The descriptor of a recurrent network's primitive.
struct rnn_primitive_desc : public primitive_desc_base {
    rnn_primitive_desc()
        : operation_(prop_kind::undef, MCDNN_KILN_CELL_LSTM, rnn_direction::unidirectional,
                     rnn_flags::undef)
    {
    }

    memory::desc src_layer_desc() const { return memory_of(DNNL_ARG_SRC_LAYER); }
    memory::desc src_iter_desc() const { return memory_of(DNNL_ARG_SRC_ITER); }
    memory::desc src_iter_c_desc() const { return memory_of(DNNL_ARG_SRC_ITER_C); }
    memory::desc augru_attention_desc() const { return memory_of(DNNL_ARG_AUGRU_ATTENTION); }
    memory::desc weights_layer_desc() const { return memory_of(DNNL_ARG_WEIGHTS_LAYER); }
    memory::desc weights_iter_desc() const { return memory_of(DNNL_ARG_WEIGHTS_ITER); }
    memory::desc weights_peephole_desc() const { return memory_of(DNNL_ARG_WEIGHTS_PEEPHOLE); }
    memory::desc weights_projection_desc() const { return memory_of(DNNL_ARG_WEIGHTS_PROJECTION); }
    memory::desc bias_desc() const { return memory_of(DNNL_ARG_BIAS); }
    memory::desc dst_layer_desc() const { return memory_of(DNNL_ARG_DST_LAYER); }
    memory::desc dst_iter_desc() const { return memory_of(DNNL_ARG_DST_ITER); }
    memory::desc dst_iter_c_desc() const { return memory_of(DNNL_ARG_DST_ITER_C); }
    memory::desc diff_src_layer_desc() const { return memory_of(DNNL_ARG_DIFF_SRC_LAYER); }
    memory::desc diff_src_iter_desc() const { return memory_of(DNNL_ARG_DIFF_SRC_ITER); }
    memory::desc diff_src_iter_c_desc() const { return memory_of(DNNL_ARG_DIFF_SRC_ITER_C); }
    memory::desc diff_augru_attention_desc() const
    {
        return memory_of(DNNL_ARG_DIFF_AUGRU_ATTENTION);
    }
    memory::desc diff_weights_layer_desc() const { return memory_of(DNNL_ARG_DIFF_WEIGHTS_LAYER); }
    memory::desc diff_weights_iter_desc() const { return memory_of(DNNL_ARG_DIFF_WEIGHTS_ITER); }
    memory::desc diff_weights_peephole_desc() const
    {
        return memory_of(DNNL_ARG_DIFF_WEIGHTS_PEEPHOLE);
    }
    memory::desc diff_weights_projection_desc() const
    {
        return memory_of(DNNL_ARG_DIFF_WEIGHTS_PROJECTION);
    }
    memory::desc diff_bias_desc() const { return memory_of(DNNL_ARG_DIFF_BIAS); }
    memory::desc diff_dst_layer_desc() const { return memory_of(DNNL_ARG_DIFF_DST_LAYER); }
    memory::desc diff_dst_iter_desc() const { return memory_of(DNNL_ARG_DIFF_DST_ITER); }
    memory::desc diff_dst_iter_c_desc() const { return memory_of(DNNL_ARG_DIFF_DST_ITER_C); }

    prop_kind get_prop_kind() const { return operation_.kind; }
    rnn_direction get_direction() const { return operation_.direction; }

  protected:
    rnn_primitive_desc(const engine &on, const operation &of, const primitive_attr &attr)
        : primitive_desc_base(on, attr), operation_(of)
    {
        check(mcdnnKilnSetRNNPrimitive(object_.get(), prop_of(of.kind), of.cell,
                                       static_cast<mcdnnKilnRNNDirection_t>(of.direction),
                                       static_cast<unsigned>(of.flags)));
        for (const auto &own : of.descs)
            set_memory(object_, own.first, own.second);
        finalize();
    }

    operation operation_;
};

// The descriptor of a primitive that computes an operation of this description.
template <typename Desc> struct rnn_primitive_desc_of : public rnn_primitive_desc {
    rnn_primitive_desc_of() {}
    rnn_primitive_desc_of(const Desc &of, const engine &on, bool = false)
        : rnn_primitive_desc(on, of, primitive_attr())
    {
    }
    rnn_primitive_desc_of(const Desc &of, const primitive_attr &attr, const engine &on,
                          bool = false)
        : rnn_primitive_desc(on, of, attr)
    {
    }
    // With the descriptor of the forward primitive whose workspace is read.
    rnn_primitive_desc_of(const Desc &of, const engine &on, const rnn_primitive_desc &hint,
                          bool = false)
        : rnn_primitive_desc_of(of, primitive_attr(), on, hint)
    {
    }
    rnn_primitive_desc_of(const Desc &of, const primitive_attr &attr, const engine &on,
                          const rnn_primitive_desc &hint, bool = false)
        : rnn_primitive_desc(on, of, attr)
    {
        if (hint.workspace_desc() != this->workspace_desc())
            bad("the forward primitive has another workspace than the backward one");
    }
};

// Descriptors of memory, as constructors take them.
typedef const memory::desc &md;

// What every cell reads and writes.
inline operation with_data(operation of, md src_layer, md src_iter, md weights_layer,
                           md weights_iter, md bias, md dst_layer, md dst_iter)
{
    return of.with(DNNL_ARG_SRC_LAYER, src_layer)
        .with(DNNL_ARG_SRC_ITER, src_iter)
        .with(DNNL_ARG_WEIGHTS_LAYER, weights_layer)
        .with(DNNL_ARG_WEIGHTS_ITER, weights_iter)
        .with(DNNL_ARG_BIAS, bias)
        .with(DNNL_ARG_DST_LAYER, dst_layer)
        .with(DNNL_ARG_DST_ITER, dst_iter);
}

// Its gradients.
inline operation with_diffs(operation of, md src_layer, md src_iter, md weights_layer,
                            md weights_iter, md bias, md dst_layer, md dst_iter)
{
    return of.with(DNNL_ARG_DIFF_SRC_LAYER, src_layer)
        .with(DNNL_ARG_DIFF_SRC_ITER, src_iter)
        .with(DNNL_ARG_DIFF_WEIGHTS_LAYER, weights_layer)
        .with(DNNL_ARG_DIFF_WEIGHTS_ITER, weights_iter)
        .with(DNNL_ARG_DIFF_BIAS, bias)
        .with(DNNL_ARG_DIFF_DST_LAYER, dst_layer)
        .with(DNNL_ARG_DIFF_DST_ITER, dst_iter);
}

} // namespace detail

} // namespace dnnl
} // namespace kiln

#endif
