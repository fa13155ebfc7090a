// The RNN primitive of oneDNN's C++ interface, on Kiln.
//
// A program that is written for `dnnl.hpp` includes this file instead and says
//
//     namespace dnnl = kiln::dnnl;
//
// Link with -lmcdnn. Needs C++11. docs/onednn.md says what there is and what differs.
#ifndef KILN_DNNL_RNN_HPP_
#define KILN_DNNL_RNN_HPP_

#include "dnnl_rnn_desc.hpp"

namespace kiln
{
namespace dnnl
{

namespace detail
{

// A GRU forward.
template <mcdnnKilnRNNCell_t Cell> struct gru_forward : public primitive {
    struct desc : public operation {
        desc(prop_kind prop, rnn_direction direction, md src_layer, md src_iter, md weights_layer,
             md weights_iter, md bias, md dst_layer, md dst_iter,
             rnn_flags flags = rnn_flags::undef)
            : operation(with_data(operation(prop, Cell, direction, flags), src_layer, src_iter,
                                  weights_layer, weights_iter, bias, dst_layer, dst_iter))
        {
        }
    };

    struct primitive_desc : public rnn_primitive_desc_of<desc> {
        using rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction, md src_layer,
                       md src_iter, md weights_layer, md weights_iter, md bias, md dst_layer,
                       md dst_iter, const primitive_attr &attr = primitive_attr(), bool = false)
            : rnn_primitive_desc_of<desc>(desc(prop, direction, src_layer, src_iter, weights_layer,
                                               weights_iter, bias, dst_layer, dst_iter),
                                          attr, on)
        {
        }
    };

    gru_forward() {}
    gru_forward(const primitive_desc &of) : primitive(of) {}
};

// A GRU backward.
template <mcdnnKilnRNNCell_t Cell> struct gru_backward : public primitive {
    struct desc : public operation {
        desc(prop_kind prop, rnn_direction direction, md src_layer, md src_iter, md weights_layer,
             md weights_iter, md bias, md dst_layer, md dst_iter, md diff_src_layer,
             md diff_src_iter, md diff_weights_layer, md diff_weights_iter, md diff_bias,
             md diff_dst_layer, md diff_dst_iter, rnn_flags flags = rnn_flags::undef)
            : operation(
                  with_diffs(with_data(operation(prop, Cell, direction, flags), src_layer, src_iter,
                                       weights_layer, weights_iter, bias, dst_layer, dst_iter),
                             diff_src_layer, diff_src_iter, diff_weights_layer, diff_weights_iter,
                             diff_bias, diff_dst_layer, diff_dst_iter))
        {
        }
    };

    struct primitive_desc : public rnn_primitive_desc_of<desc> {
        using rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction, md src_layer,
                       md src_iter, md weights_layer, md weights_iter, md bias, md dst_layer,
                       md dst_iter, md diff_src_layer, md diff_src_iter, md diff_weights_layer,
                       md diff_weights_iter, md diff_bias, md diff_dst_layer, md diff_dst_iter,
                       const rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : rnn_primitive_desc_of<desc>(
                  desc(prop, direction, src_layer, src_iter, weights_layer, weights_iter, bias,
                       dst_layer, dst_iter, diff_src_layer, diff_src_iter, diff_weights_layer,
                       diff_weights_iter, diff_bias, diff_dst_layer, diff_dst_iter),
                  attr, on, hint)
        {
        }
    };

    gru_backward() {}
    gru_backward(const primitive_desc &of) : primitive(of) {}
};

// A GRU with attention, forward.
template <mcdnnKilnRNNCell_t Cell> struct augru_forward : public primitive {
    struct desc : public operation {
        desc(prop_kind prop, rnn_direction direction, md src_layer, md src_iter, md attention,
             md weights_layer, md weights_iter, md bias, md dst_layer, md dst_iter,
             rnn_flags flags = rnn_flags::undef)
            : operation(with_data(operation(prop, Cell, direction, flags), src_layer, src_iter,
                                  weights_layer, weights_iter, bias, dst_layer, dst_iter)
                            .with(DNNL_ARG_AUGRU_ATTENTION, attention))
        {
        }
    };

    struct primitive_desc : public rnn_primitive_desc_of<desc> {
        using rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction, md src_layer,
                       md src_iter, md attention, md weights_layer, md weights_iter, md bias,
                       md dst_layer, md dst_iter, const primitive_attr &attr = primitive_attr(),
                       bool = false)
            : rnn_primitive_desc_of<desc>(desc(prop, direction, src_layer, src_iter, attention,
                                               weights_layer, weights_iter, bias, dst_layer,
                                               dst_iter),
                                          attr, on)
        {
        }
    };

    augru_forward() {}
    augru_forward(const primitive_desc &of) : primitive(of) {}
};

// A GRU with attention, backward.
template <mcdnnKilnRNNCell_t Cell> struct augru_backward : public primitive {
    struct desc : public operation {
        desc(prop_kind prop, rnn_direction direction, md src_layer, md src_iter, md attention,
             md weights_layer, md weights_iter, md bias, md dst_layer, md dst_iter,
             md diff_src_layer, md diff_src_iter, md diff_attention, md diff_weights_layer,
             md diff_weights_iter, md diff_bias, md diff_dst_layer, md diff_dst_iter,
             rnn_flags flags = rnn_flags::undef)
            : operation(
                  with_diffs(with_data(operation(prop, Cell, direction, flags), src_layer, src_iter,
                                       weights_layer, weights_iter, bias, dst_layer, dst_iter),
                             diff_src_layer, diff_src_iter, diff_weights_layer, diff_weights_iter,
                             diff_bias, diff_dst_layer, diff_dst_iter)
                      .with(DNNL_ARG_AUGRU_ATTENTION, attention)
                      .with(DNNL_ARG_DIFF_AUGRU_ATTENTION, diff_attention))
        {
        }
    };

    struct primitive_desc : public rnn_primitive_desc_of<desc> {
        using rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction, md src_layer,
                       md src_iter, md attention, md weights_layer, md weights_iter, md bias,
                       md dst_layer, md dst_iter, md diff_src_layer, md diff_src_iter,
                       md diff_attention, md diff_weights_layer, md diff_weights_iter, md diff_bias,
                       md diff_dst_layer, md diff_dst_iter, const rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : rnn_primitive_desc_of<desc>(
                  desc(prop, direction, src_layer, src_iter, attention, weights_layer, weights_iter,
                       bias, dst_layer, dst_iter, diff_src_layer, diff_src_iter, diff_attention,
                       diff_weights_layer, diff_weights_iter, diff_bias, diff_dst_layer,
                       diff_dst_iter),
                  attr, on, hint)
        {
        }
    };

    augru_backward() {}
    augru_backward(const primitive_desc &of) : primitive(of) {}
};

} // namespace detail

typedef detail::gru_forward<MCDNN_KILN_CELL_GRU> gru_forward;
typedef detail::gru_backward<MCDNN_KILN_CELL_GRU> gru_backward;
typedef detail::gru_forward<MCDNN_KILN_CELL_LBR_GRU> lbr_gru_forward;
typedef detail::gru_backward<MCDNN_KILN_CELL_LBR_GRU> lbr_gru_backward;
typedef detail::augru_forward<MCDNN_KILN_CELL_AUGRU> augru_forward;
typedef detail::augru_backward<MCDNN_KILN_CELL_AUGRU> augru_backward;
typedef detail::augru_forward<MCDNN_KILN_CELL_LBR_AUGRU> lbr_augru_forward;
typedef detail::augru_backward<MCDNN_KILN_CELL_LBR_AUGRU> lbr_augru_backward;

// A network of one gate, forward. alpha, the slope of ReLU below 0, must be 0.
struct vanilla_rnn_forward : public primitive {
    struct desc : public detail::operation {
        desc(prop_kind prop, algorithm activation, rnn_direction direction, detail::md src_layer,
             detail::md src_iter, detail::md weights_layer, detail::md weights_iter,
             detail::md bias, detail::md dst_layer, detail::md dst_iter,
             rnn_flags flags = rnn_flags::undef, float alpha = 0.0f, float = 0.0f)
            : operation(detail::with_data(
                  detail::operation(prop, detail::cell_of(activation, alpha), direction, flags),
                  src_layer, src_iter, weights_layer, weights_iter, bias, dst_layer, dst_iter))
        {
        }
    };

    struct primitive_desc : public detail::rnn_primitive_desc_of<desc> {
        using detail::rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, algorithm activation,
                       rnn_direction direction, detail::md src_layer, detail::md src_iter,
                       detail::md weights_layer, detail::md weights_iter, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(desc(prop, activation, direction, src_layer,
                                                       src_iter, weights_layer, weights_iter, bias,
                                                       dst_layer, dst_iter),
                                                  attr, on)
        {
        }
        primitive_desc(const engine &on, prop_kind prop, algorithm activation,
                       rnn_direction direction, detail::md src_layer, detail::md src_iter,
                       detail::md weights_layer, detail::md weights_iter, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, float alpha,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, activation, direction, src_layer, src_iter, weights_layer,
                       weights_iter, bias, dst_layer, dst_iter, rnn_flags::undef, alpha),
                  attr, on)
        {
        }
    };

    vanilla_rnn_forward() {}
    vanilla_rnn_forward(const primitive_desc &of) : primitive(of) {}
};

// A network of one gate, backward.
struct vanilla_rnn_backward : public primitive {
    struct desc : public detail::operation {
        desc(prop_kind prop, algorithm activation, rnn_direction direction, detail::md src_layer,
             detail::md src_iter, detail::md weights_layer, detail::md weights_iter,
             detail::md bias, detail::md dst_layer, detail::md dst_iter, detail::md diff_src_layer,
             detail::md diff_src_iter, detail::md diff_weights_layer, detail::md diff_weights_iter,
             detail::md diff_bias, detail::md diff_dst_layer, detail::md diff_dst_iter,
             rnn_flags flags = rnn_flags::undef, float alpha = 0.0f, float = 0.0f)
            : operation(detail::with_diffs(
                  detail::with_data(
                      detail::operation(prop, detail::cell_of(activation, alpha), direction, flags),
                      src_layer, src_iter, weights_layer, weights_iter, bias, dst_layer, dst_iter),
                  diff_src_layer, diff_src_iter, diff_weights_layer, diff_weights_iter, diff_bias,
                  diff_dst_layer, diff_dst_iter))
        {
        }
    };

    struct primitive_desc : public detail::rnn_primitive_desc_of<desc> {
        using detail::rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, algorithm activation,
                       rnn_direction direction, detail::md src_layer, detail::md src_iter,
                       detail::md weights_layer, detail::md weights_iter, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, detail::md diff_src_layer,
                       detail::md diff_src_iter, detail::md diff_weights_layer,
                       detail::md diff_weights_iter, detail::md diff_bias,
                       detail::md diff_dst_layer, detail::md diff_dst_iter,
                       const detail::rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, activation, direction, src_layer, src_iter, weights_layer,
                       weights_iter, bias, dst_layer, dst_iter, diff_src_layer, diff_src_iter,
                       diff_weights_layer, diff_weights_iter, diff_bias, diff_dst_layer,
                       diff_dst_iter),
                  attr, on, hint)
        {
        }
        primitive_desc(const engine &on, prop_kind prop, algorithm activation,
                       rnn_direction direction, detail::md src_layer, detail::md src_iter,
                       detail::md weights_layer, detail::md weights_iter, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, detail::md diff_src_layer,
                       detail::md diff_src_iter, detail::md diff_weights_layer,
                       detail::md diff_weights_iter, detail::md diff_bias,
                       detail::md diff_dst_layer, detail::md diff_dst_iter, float alpha,
                       const detail::rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, activation, direction, src_layer, src_iter, weights_layer,
                       weights_iter, bias, dst_layer, dst_iter, diff_src_layer, diff_src_iter,
                       diff_weights_layer, diff_weights_iter, diff_bias, diff_dst_layer,
                       diff_dst_iter, rnn_flags::undef, alpha),
                  attr, on, hint)
        {
        }
    };

    vanilla_rnn_backward() {}
    vanilla_rnn_backward(const primitive_desc &of) : primitive(of) {}
};

// An LSTM forward, with peepholes and a projection where their descriptors are not zero.
struct lstm_forward : public primitive {
    struct desc : public detail::operation {
        desc(prop_kind prop, rnn_direction direction, detail::md src_layer, detail::md src_iter,
             detail::md src_iter_c, detail::md weights_layer, detail::md weights_iter,
             detail::md bias, detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
             rnn_flags flags = rnn_flags::undef)
            : operation(
                  detail::with_data(detail::operation(prop, MCDNN_KILN_CELL_LSTM, direction, flags),
                                    src_layer, src_iter, weights_layer, weights_iter, bias,
                                    dst_layer, dst_iter)
                      .with(DNNL_ARG_SRC_ITER_C, src_iter_c)
                      .with(DNNL_ARG_DST_ITER_C, dst_iter_c))
        {
        }
        desc(prop_kind prop, rnn_direction direction, detail::md src_layer, detail::md src_iter,
             detail::md src_iter_c, detail::md weights_layer, detail::md weights_iter,
             detail::md weights_peephole, detail::md bias, detail::md dst_layer,
             detail::md dst_iter, detail::md dst_iter_c, rnn_flags flags = rnn_flags::undef)
            : operation(
                  detail::with_data(detail::operation(prop, MCDNN_KILN_CELL_LSTM, direction, flags),
                                    src_layer, src_iter, weights_layer, weights_iter, bias,
                                    dst_layer, dst_iter)
                      .with(DNNL_ARG_SRC_ITER_C, src_iter_c)
                      .with(DNNL_ARG_WEIGHTS_PEEPHOLE, weights_peephole)
                      .with(DNNL_ARG_DST_ITER_C, dst_iter_c))
        {
        }
        desc(prop_kind prop, rnn_direction direction, detail::md src_layer, detail::md src_iter,
             detail::md src_iter_c, detail::md weights_layer, detail::md weights_iter,
             detail::md weights_peephole, detail::md weights_projection, detail::md bias,
             detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
             rnn_flags flags = rnn_flags::undef)
            : operation(
                  detail::with_data(detail::operation(prop, MCDNN_KILN_CELL_LSTM, direction, flags),
                                    src_layer, src_iter, weights_layer, weights_iter, bias,
                                    dst_layer, dst_iter)
                      .with(DNNL_ARG_SRC_ITER_C, src_iter_c)
                      .with(DNNL_ARG_WEIGHTS_PEEPHOLE, weights_peephole)
                      .with(DNNL_ARG_WEIGHTS_PROJECTION, weights_projection)
                      .with(DNNL_ARG_DST_ITER_C, dst_iter_c))
        {
        }
    };

    struct primitive_desc : public detail::rnn_primitive_desc_of<desc> {
        using detail::rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction,
                       detail::md src_layer, detail::md src_iter, detail::md src_iter_c,
                       detail::md weights_layer, detail::md weights_iter, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(desc(prop, direction, src_layer, src_iter,
                                                       src_iter_c, weights_layer, weights_iter,
                                                       bias, dst_layer, dst_iter, dst_iter_c),
                                                  attr, on)
        {
        }
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction,
                       detail::md src_layer, detail::md src_iter, detail::md src_iter_c,
                       detail::md weights_layer, detail::md weights_iter,
                       detail::md weights_peephole, detail::md bias, detail::md dst_layer,
                       detail::md dst_iter, detail::md dst_iter_c,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, direction, src_layer, src_iter, src_iter_c, weights_layer,
                       weights_iter, weights_peephole, bias, dst_layer, dst_iter, dst_iter_c),
                  attr, on)
        {
        }
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction,
                       detail::md src_layer, detail::md src_iter, detail::md src_iter_c,
                       detail::md weights_layer, detail::md weights_iter,
                       detail::md weights_peephole, detail::md weights_projection, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(desc(prop, direction, src_layer, src_iter,
                                                       src_iter_c, weights_layer, weights_iter,
                                                       weights_peephole, weights_projection, bias,
                                                       dst_layer, dst_iter, dst_iter_c),
                                                  attr, on)
        {
        }
    };

    lstm_forward() {}
    lstm_forward(const primitive_desc &of) : primitive(of) {}
};

// An LSTM backward.
struct lstm_backward : public primitive {
    struct desc : public detail::operation {
        desc(prop_kind prop, rnn_direction direction, detail::md src_layer, detail::md src_iter,
             detail::md src_iter_c, detail::md weights_layer, detail::md weights_iter,
             detail::md bias, detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
             detail::md diff_src_layer, detail::md diff_src_iter, detail::md diff_src_iter_c,
             detail::md diff_weights_layer, detail::md diff_weights_iter, detail::md diff_bias,
             detail::md diff_dst_layer, detail::md diff_dst_iter, detail::md diff_dst_iter_c,
             rnn_flags flags = rnn_flags::undef)
            : operation(
                  detail::with_diffs(detail::with_data(detail::operation(prop, MCDNN_KILN_CELL_LSTM,
                                                                         direction, flags),
                                                       src_layer, src_iter, weights_layer,
                                                       weights_iter, bias, dst_layer, dst_iter),
                                     diff_src_layer, diff_src_iter, diff_weights_layer,
                                     diff_weights_iter, diff_bias, diff_dst_layer, diff_dst_iter)
                      .with(DNNL_ARG_SRC_ITER_C, src_iter_c)
                      .with(DNNL_ARG_DST_ITER_C, dst_iter_c)
                      .with(DNNL_ARG_DIFF_SRC_ITER_C, diff_src_iter_c)
                      .with(DNNL_ARG_DIFF_DST_ITER_C, diff_dst_iter_c))
        {
        }
        desc(prop_kind prop, rnn_direction direction, detail::md src_layer, detail::md src_iter,
             detail::md src_iter_c, detail::md weights_layer, detail::md weights_iter,
             detail::md weights_peephole, detail::md bias, detail::md dst_layer,
             detail::md dst_iter, detail::md dst_iter_c, detail::md diff_src_layer,
             detail::md diff_src_iter, detail::md diff_src_iter_c, detail::md diff_weights_layer,
             detail::md diff_weights_iter, detail::md diff_weights_peephole, detail::md diff_bias,
             detail::md diff_dst_layer, detail::md diff_dst_iter, detail::md diff_dst_iter_c,
             rnn_flags flags = rnn_flags::undef)
            : operation(
                  detail::with_diffs(detail::with_data(detail::operation(prop, MCDNN_KILN_CELL_LSTM,
                                                                         direction, flags),
                                                       src_layer, src_iter, weights_layer,
                                                       weights_iter, bias, dst_layer, dst_iter),
                                     diff_src_layer, diff_src_iter, diff_weights_layer,
                                     diff_weights_iter, diff_bias, diff_dst_layer, diff_dst_iter)
                      .with(DNNL_ARG_SRC_ITER_C, src_iter_c)
                      .with(DNNL_ARG_WEIGHTS_PEEPHOLE, weights_peephole)
                      .with(DNNL_ARG_DST_ITER_C, dst_iter_c)
                      .with(DNNL_ARG_DIFF_SRC_ITER_C, diff_src_iter_c)
                      .with(DNNL_ARG_DIFF_WEIGHTS_PEEPHOLE, diff_weights_peephole)
                      .with(DNNL_ARG_DIFF_DST_ITER_C, diff_dst_iter_c))
        {
        }
        desc(prop_kind prop, rnn_direction direction, detail::md src_layer, detail::md src_iter,
             detail::md src_iter_c, detail::md weights_layer, detail::md weights_iter,
             detail::md weights_peephole, detail::md weights_projection, detail::md bias,
             detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
             detail::md diff_src_layer, detail::md diff_src_iter, detail::md diff_src_iter_c,
             detail::md diff_weights_layer, detail::md diff_weights_iter,
             detail::md diff_weights_peephole, detail::md diff_weights_projection,
             detail::md diff_bias, detail::md diff_dst_layer, detail::md diff_dst_iter,
             detail::md diff_dst_iter_c, rnn_flags flags = rnn_flags::undef)
            : operation(
                  detail::with_diffs(detail::with_data(detail::operation(prop, MCDNN_KILN_CELL_LSTM,
                                                                         direction, flags),
                                                       src_layer, src_iter, weights_layer,
                                                       weights_iter, bias, dst_layer, dst_iter),
                                     diff_src_layer, diff_src_iter, diff_weights_layer,
                                     diff_weights_iter, diff_bias, diff_dst_layer, diff_dst_iter)
                      .with(DNNL_ARG_SRC_ITER_C, src_iter_c)
                      .with(DNNL_ARG_WEIGHTS_PEEPHOLE, weights_peephole)
                      .with(DNNL_ARG_WEIGHTS_PROJECTION, weights_projection)
                      .with(DNNL_ARG_DST_ITER_C, dst_iter_c)
                      .with(DNNL_ARG_DIFF_SRC_ITER_C, diff_src_iter_c)
                      .with(DNNL_ARG_DIFF_WEIGHTS_PEEPHOLE, diff_weights_peephole)
                      .with(DNNL_ARG_DIFF_WEIGHTS_PROJECTION, diff_weights_projection)
                      .with(DNNL_ARG_DIFF_DST_ITER_C, diff_dst_iter_c))
        {
        }
    };

    struct primitive_desc : public detail::rnn_primitive_desc_of<desc> {
        using detail::rnn_primitive_desc_of<desc>::rnn_primitive_desc_of;
        primitive_desc() {}
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction,
                       detail::md src_layer, detail::md src_iter, detail::md src_iter_c,
                       detail::md weights_layer, detail::md weights_iter, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
                       detail::md diff_src_layer, detail::md diff_src_iter,
                       detail::md diff_src_iter_c, detail::md diff_weights_layer,
                       detail::md diff_weights_iter, detail::md diff_bias,
                       detail::md diff_dst_layer, detail::md diff_dst_iter,
                       detail::md diff_dst_iter_c, const detail::rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, direction, src_layer, src_iter, src_iter_c, weights_layer,
                       weights_iter, bias, dst_layer, dst_iter, dst_iter_c, diff_src_layer,
                       diff_src_iter, diff_src_iter_c, diff_weights_layer, diff_weights_iter,
                       diff_bias, diff_dst_layer, diff_dst_iter, diff_dst_iter_c),
                  attr, on, hint)
        {
        }
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction,
                       detail::md src_layer, detail::md src_iter, detail::md src_iter_c,
                       detail::md weights_layer, detail::md weights_iter,
                       detail::md weights_peephole, detail::md bias, detail::md dst_layer,
                       detail::md dst_iter, detail::md dst_iter_c, detail::md diff_src_layer,
                       detail::md diff_src_iter, detail::md diff_src_iter_c,
                       detail::md diff_weights_layer, detail::md diff_weights_iter,
                       detail::md diff_weights_peephole, detail::md diff_bias,
                       detail::md diff_dst_layer, detail::md diff_dst_iter,
                       detail::md diff_dst_iter_c, const detail::rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, direction, src_layer, src_iter, src_iter_c, weights_layer,
                       weights_iter, weights_peephole, bias, dst_layer, dst_iter, dst_iter_c,
                       diff_src_layer, diff_src_iter, diff_src_iter_c, diff_weights_layer,
                       diff_weights_iter, diff_weights_peephole, diff_bias, diff_dst_layer,
                       diff_dst_iter, diff_dst_iter_c),
                  attr, on, hint)
        {
        }
        primitive_desc(const engine &on, prop_kind prop, rnn_direction direction,
                       detail::md src_layer, detail::md src_iter, detail::md src_iter_c,
                       detail::md weights_layer, detail::md weights_iter,
                       detail::md weights_peephole, detail::md weights_projection, detail::md bias,
                       detail::md dst_layer, detail::md dst_iter, detail::md dst_iter_c,
                       detail::md diff_src_layer, detail::md diff_src_iter,
                       detail::md diff_src_iter_c, detail::md diff_weights_layer,
                       detail::md diff_weights_iter, detail::md diff_weights_peephole,
                       detail::md diff_weights_projection, detail::md diff_bias,
                       detail::md diff_dst_layer, detail::md diff_dst_iter,
                       detail::md diff_dst_iter_c, const detail::rnn_primitive_desc &hint,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : detail::rnn_primitive_desc_of<desc>(
                  desc(prop, direction, src_layer, src_iter, src_iter_c, weights_layer,
                       weights_iter, weights_peephole, weights_projection, bias, dst_layer,
                       dst_iter, dst_iter_c, diff_src_layer, diff_src_iter, diff_src_iter_c,
                       diff_weights_layer, diff_weights_iter, diff_weights_peephole,
                       diff_weights_projection, diff_bias, diff_dst_layer, diff_dst_iter,
                       diff_dst_iter_c),
                  attr, on, hint)
        {
        }
    };

    lstm_backward() {}
    lstm_backward(const primitive_desc &of) : primitive(of) {}
};

} // namespace dnnl
} // namespace kiln

#endif
