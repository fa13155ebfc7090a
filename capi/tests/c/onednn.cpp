// An LSTM through oneDNN's interface on a GPU's engine, in training: `onednn FOLDER T N SLC DHC
// DIRECTION`. Reads NAME.bin of f32 for each tensor in the layouts tnc, ldnc, ldigo and ldgo, and
// writes those that it computes.
#include <kiln/dnnl_rnn.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <unordered_map>

namespace dnnl = kiln::dnnl;
using dnnl::memory;
using tag = memory::format_tag;
using type = memory::data_type;

static std::string folder;

static void load(const std::string &name, const memory &to)
{
    std::ifstream file(folder + "/" + name + ".bin", std::ios::binary);
    char *data = to.map_data<char>();
    file.read(data, static_cast<std::streamsize>(to.get_desc().get_size()));
    to.unmap_data(data);
    if (!file)
        throw std::runtime_error("failed to read " + name);
}

static void store(const std::string &name, const memory &from)
{
    std::ofstream file(folder + "/" + name + ".bin", std::ios::binary);
    char *data = from.map_data<char>();
    file.write(data, static_cast<std::streamsize>(from.get_desc().get_size()));
    from.unmap_data(data);
}

static void clear(const memory &of)
{
    void *data = of.map_data();
    std::memset(data, 0, of.get_desc().get_size());
    of.unmap_data(data);
}

// A descriptor that breaks a rule is an error with a status and the rule.
static void refuse(const dnnl::engine &gpu)
{
    const memory::desc data({3, 2, 4}, type::f32, tag::tnc);
    const memory::desc weights({1, 1, 4, 3, 4}, type::f32, tag::any);
    try {
        dnnl::lstm_forward::primitive_desc(gpu, dnnl::prop_kind::forward_inference,
                                           dnnl::rnn_direction::unidirectional_left2right, data,
                                           memory::desc(), memory::desc(), weights, weights,
                                           memory::desc(), data, memory::desc(), memory::desc());
    } catch (const dnnl::error &failure) {
        std::cout << failure.status << " " << failure.what() << "\n";
    }
}

int main(int count, char **arguments)
{
    if (count != 7)
        return 2;
    folder = arguments[1];
    const auto number = [&](int at) { return memory::dim(std::atol(arguments[at])); };
    const memory::dim T = number(2), N = number(3), SLC = number(4), DHC = number(5);
    const auto direction = static_cast<dnnl::rnn_direction>(std::atoi(arguments[6]));
    const bool concat = direction == dnnl::rnn_direction::bidirectional_concat;
    const bool both = concat || direction == dnnl::rnn_direction::bidirectional_sum;
    const memory::dim L = 1, D = both ? 2 : 1, G = 4, DLC = concat ? 2 * DHC : DHC;

    dnnl::engine gpu(dnnl::engine::kind::gpu, 0);
    dnnl::stream queue(gpu);
    refuse(gpu);

    const memory::dims src_layer_dims = {T, N, SLC}, dst_layer_dims = {T, N, DLC};
    const memory::dims iter_dims = {L, D, N, DHC}, bias_dims = {L, D, G, DHC};
    const memory::dims weights_layer_dims = {L, D, SLC, G, DHC};
    const memory::dims weights_iter_dims = {L, D, DHC, G, DHC};
    const memory::desc src_layer_md(src_layer_dims, type::f32, tag::tnc);
    const memory::desc dst_layer_md(dst_layer_dims, type::f32, tag::tnc);
    const memory::desc iter_md(iter_dims, type::f32, tag::ldnc);
    const memory::desc bias_md(bias_dims, type::f32, tag::ldgo);
    const memory::desc user_layer_md(weights_layer_dims, type::f32, tag::ldigo);
    const memory::desc user_iter_md(weights_iter_dims, type::f32, tag::ldigo);
    const memory::desc any_layer_md(weights_layer_dims, type::f32, tag::any);
    const memory::desc any_iter_md(weights_iter_dims, type::f32, tag::any);

    const auto read = [&](const std::string &name, const memory::desc &of) {
        memory made(of, gpu);
        load(name, made);
        return made;
    };
    const memory src_layer = read("src_layer", src_layer_md);
    const memory src_iter = read("src_iter", iter_md), src_iter_c = read("src_iter_c", iter_md);
    const memory user_layer = read("weights_layer", user_layer_md);
    const memory user_iter = read("weights_iter", user_iter_md);
    const memory bias = read("bias", bias_md);
    memory dst_layer(dst_layer_md, gpu), dst_iter(iter_md, gpu), dst_iter_c(iter_md, gpu);

    const auto forward_pd = dnnl::lstm_forward::primitive_desc(
        gpu, dnnl::prop_kind::forward_training, direction, src_layer_md, iter_md, iter_md,
        any_layer_md, any_iter_md, bias_md, dst_layer_md, iter_md, iter_md);
    // The primitive's formats, once.
    const auto as = [&](const memory &from, const memory::desc &wanted) {
        if (from.get_desc() == wanted)
            return from;
        memory to(wanted, gpu);
        dnnl::reorder(from, to).execute(queue, from, to);
        return to;
    };
    const memory weights_layer = as(user_layer, forward_pd.weights_layer_desc());
    const memory weights_iter = as(user_iter, forward_pd.weights_iter_desc());
    const memory workspace(forward_pd.workspace_desc(), gpu);
    std::unordered_map<int, memory> forward_args = {
        {DNNL_ARG_SRC_LAYER, src_layer},       {DNNL_ARG_SRC_ITER, src_iter},
        {DNNL_ARG_SRC_ITER_C, src_iter_c},     {DNNL_ARG_WEIGHTS_LAYER, weights_layer},
        {DNNL_ARG_WEIGHTS_ITER, weights_iter}, {DNNL_ARG_BIAS, bias},
        {DNNL_ARG_DST_LAYER, dst_layer},       {DNNL_ARG_DST_ITER, dst_iter},
        {DNNL_ARG_DST_ITER_C, dst_iter_c},     {DNNL_ARG_WORKSPACE, workspace},
    };
    dnnl::lstm_forward(forward_pd).execute(queue, forward_args);
    queue.wait();
    store("dst_layer", dst_layer);
    store("dst_iter", dst_iter);
    store("dst_iter_c", dst_iter_c);

    // Gradients of the weights in the program's format.
    const auto backward_pd = dnnl::lstm_backward::primitive_desc(
        gpu, dnnl::prop_kind::backward, direction, src_layer_md, iter_md, iter_md, any_layer_md,
        any_iter_md, bias_md, dst_layer_md, iter_md, iter_md, src_layer_md, iter_md, iter_md,
        user_layer_md, user_iter_md, bias_md, dst_layer_md, iter_md, iter_md, forward_pd);
    std::unordered_map<int, memory> backward_args = forward_args;
    backward_args[DNNL_ARG_WEIGHTS_LAYER] = as(user_layer, backward_pd.weights_layer_desc());
    backward_args[DNNL_ARG_WEIGHTS_ITER] = as(user_iter, backward_pd.weights_iter_desc());
    backward_args[DNNL_ARG_DIFF_DST_LAYER] = read("diff_dst_layer", dst_layer_md);
    backward_args[DNNL_ARG_DIFF_DST_ITER] = read("diff_dst_iter", iter_md);
    backward_args[DNNL_ARG_DIFF_DST_ITER_C] = read("diff_dst_iter_c", iter_md);
    const std::vector<std::pair<int, std::string>> diffs = {
        {DNNL_ARG_DIFF_SRC_LAYER, "diff_src_layer"},
        {DNNL_ARG_DIFF_SRC_ITER, "diff_src_iter"},
        {DNNL_ARG_DIFF_SRC_ITER_C, "diff_src_iter_c"},
        {DNNL_ARG_DIFF_WEIGHTS_LAYER, "diff_weights_layer"},
        {DNNL_ARG_DIFF_WEIGHTS_ITER, "diff_weights_iter"},
        {DNNL_ARG_DIFF_BIAS, "diff_bias"},
    };
    for (const auto &diff : diffs) {
        const memory made(backward_pd.query_md(dnnl::query::exec_arg_md, diff.first), gpu);
        clear(made);
        backward_args[diff.first] = made;
    }
    dnnl::lstm_backward(backward_pd).execute(queue, backward_args);
    queue.wait();
    for (const auto &diff : diffs)
        store(diff.second, backward_args[diff.first]);
    return 0;
}
