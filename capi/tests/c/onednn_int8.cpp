// An LSTM of 8-bit integers as programs for oneDNN run it: `onednn_int8 FOLDER T N SLC DHC
// DIRECTION u8|s8 u8|s8|f32 SCALE SHIFT`. Reads NAME.bin of f32 for each tensor in the layouts tnc,
// ldnc, ldigo and ldgo, and in scales.bin one factor of the weights or one for each output channel;
// quantizes data and weights by reorders, and writes what the LSTM computes as it is.
#include <dnnl.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

using dnnl::memory;
using tag = memory::format_tag;
using type = memory::data_type;

static std::string folder;
static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
static dnnl::stream queue(cpu);

static std::vector<float> numbers(const std::string &name)
{
    std::ifstream file(folder + "/" + name + ".bin", std::ios::binary);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)),
                                  std::istreambuf_iterator<char>());
    std::vector<float> all(bytes.size() / sizeof(float));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char *>(all.data()));
    return all;
}

// The numbers of a tensor, in memory of f32.
static memory user(const std::string &name, const memory::dims &dims, tag layout)
{
    const memory::desc of(dims, type::f32, layout);
    const std::vector<float> all = numbers(name);
    if (all.size() * sizeof(float) != of.get_size())
        throw std::runtime_error(name + " has another size");
    memory made(of, cpu);
    std::copy(all.begin(), all.end(), static_cast<float *>(made.get_data_handle()));
    return made;
}

// Memory of another format or type, quantized by the attributes.
static memory as(memory from, const memory::desc &wanted, const dnnl::primitive_attr &attr)
{
    memory to(wanted, cpu);
    const dnnl::reorder::primitive_desc pd(cpu, from.get_desc(), cpu, wanted, attr);
    dnnl::reorder(pd).execute(queue, from, to);
    return to;
}

static void store(const std::string &name, const memory &from)
{
    std::ofstream file(folder + "/" + name + ".bin", std::ios::binary);
    file.write(static_cast<const char *>(from.get_data_handle()),
               static_cast<std::streamsize>(from.get_desc().get_size()));
}

static type type_of(const std::string &name)
{
    return name == "u8" ? type::u8 : name == "s8" ? type::s8 : type::f32;
}

static int run(char **arguments)
{
    folder = arguments[1];
    const auto number = [&](int at) { return memory::dim(std::atol(arguments[at])); };
    const memory::dim T = number(2), N = number(3), SLC = number(4), DHC = number(5);
    const dnnl::rnn_direction ways[] = {
        dnnl::rnn_direction::unidirectional_left2right,
        dnnl::rnn_direction::unidirectional_right2left,
        dnnl::rnn_direction::bidirectional_concat,
        dnnl::rnn_direction::bidirectional_sum,
    };
    const long way = number(6);
    const memory::dim L = 1, D = way > 1 ? 2 : 1, G = 4, DLC = way == 2 ? 2 * DHC : DHC;
    const type data = type_of(arguments[7]), result = type_of(arguments[8]);
    const float scale = std::strtof(arguments[9], nullptr);
    const float shift = std::strtof(arguments[10], nullptr);

    // Weights have one factor each, or one for each gate and hidden unit: dimensions 3 and 4.
    const std::vector<float> scales = numbers("scales");
    dnnl::primitive_attr attr;
    attr.set_rnn_data_qparams(scale, shift);
    attr.set_rnn_weights_qparams(scales.size() == 1 ? 0 : (1 << 3) + (1 << 4), scales);

    const memory::dims iter = {L, D, N, DHC};
    const memory::desc src_layer_md({T, N, SLC}, data, tag::tnc), iter_md(iter, data, tag::ldnc);
    const memory::desc iter_c_md(iter, type::f32, tag::ldnc);
    const memory::desc bias_md({L, D, G, DHC}, type::f32, tag::ldgo);
    const memory::desc dst_layer_md({T, N, DLC}, result, tag::tnc);
    const memory::desc any_layer_md({L, D, SLC, G, DHC}, type::s8, tag::any);
    const memory::desc any_iter_md({L, D, DHC, G, DHC}, type::s8, tag::any);
    const dnnl::lstm_forward::primitive_desc pd(
        cpu, dnnl::prop_kind::forward_inference, ways[way], src_layer_md, iter_md, iter_c_md,
        any_layer_md, any_iter_md, bias_md, dst_layer_md, iter_md, iter_c_md, attr);

    const memory src_layer = user("src_layer", {T, N, SLC}, tag::tnc);
    const memory src_iter = user("src_iter", iter, tag::ldnc);
    const memory weights_layer = user("weights_layer", {L, D, SLC, G, DHC}, tag::ldigo);
    const memory weights_iter = user("weights_iter", {L, D, DHC, G, DHC}, tag::ldigo);
    const memory dst_layer(dst_layer_md, cpu), dst_iter(iter_md, cpu), dst_iter_c(iter_c_md, cpu);
    dnnl::lstm_forward(pd).execute(
        queue, {
                   {DNNL_ARG_SRC_LAYER, as(src_layer, pd.src_layer_desc(), attr)},
                   {DNNL_ARG_SRC_ITER, as(src_iter, pd.src_iter_desc(), attr)},
                   {DNNL_ARG_SRC_ITER_C, user("src_iter_c", iter, tag::ldnc)},
                   {DNNL_ARG_WEIGHTS_LAYER, as(weights_layer, pd.weights_layer_desc(), attr)},
                   {DNNL_ARG_WEIGHTS_ITER, as(weights_iter, pd.weights_iter_desc(), attr)},
                   {DNNL_ARG_BIAS, user("bias", {L, D, G, DHC}, tag::ldgo)},
                   {DNNL_ARG_DST_LAYER, dst_layer},
                   {DNNL_ARG_DST_ITER, dst_iter},
                   {DNNL_ARG_DST_ITER_C, dst_iter_c},
               });
    queue.wait();
    store("dst_layer", dst_layer);
    store("dst_iter", dst_iter);
    store("dst_iter_c", dst_iter_c);
    return 0;
}

int main(int count, char **arguments)
{
    if (count != 11)
        return 2;
    try {
        return run(arguments);
    } catch (const dnnl::error &failure) {
        std::cout << failure.status << " " << failure.what() << "\n";
        return 1;
    }
}
