// What oneDNN's RNN primitive computes: every cell in all directions, forward and backward in f32,
// and LSTM of 8-bit integers. Prints a line for each case, and one for each tensor of it: its name,
// its type, its dimensions, and its values.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dnnl.hpp>
#include <map>
#include <string>
#include <vector>

using namespace dnnl;
using dims = memory::dims;
using tag = memory::format_tag;
using type = memory::data_type;

static const engine cpu(engine::kind::cpu, 0);
static stream queue(cpu);
static std::string prefix;

// Multiples of 1/64 between -1 and 1, the same for everyone.
static uint64_t state = 1;
static float next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<float>(int(state >> 40) % 65 - 32) / 32.0f * (int(state >> 33) % 2 ? 1 : -1);
}

static size_t count(const dims& of) {
    size_t all = 1;
    for (auto extent : of) all *= static_cast<size_t>(extent);
    return all;
}

struct Tensor {
    memory data;
    dims extents;
    type kind;
};

static const char* name_of(type kind) {
    switch (kind) {
        case type::f32:
            return "f32";
        case type::u8:
            return "u8";
        case type::s8:
            return "i8";
        default:
            return "?";
    }
}

static void print(const std::string& name, const Tensor& of) {
    std::printf("tensor %s/%s %s", prefix.c_str(), name.c_str(), name_of(of.kind));
    for (auto extent : of.extents) std::printf(" %ld", long(extent));
    std::printf(" :");
    const void* at = of.data.get_data_handle();
    for (size_t i = 0; i < count(of.extents); ++i) {
        if (of.kind == type::f32) std::printf(" %.9g", static_cast<const float*>(at)[i]);
        if (of.kind == type::u8) std::printf(" %d", static_cast<const uint8_t*>(at)[i]);
        if (of.kind == type::s8) std::printf(" %d", static_cast<const int8_t*>(at)[i]);
    }
    std::printf("\n");
}

static Tensor empty(const dims& extents, type kind, tag layout) {
    memory::desc desc(extents, kind, layout);
    Tensor made{memory(desc, cpu), extents, kind};
    std::memset(made.data.get_data_handle(), 0, desc.get_size());
    return made;
}

// Values of a tensor's own, by a factor.
static Tensor filled(const std::string& name, const dims& extents, type kind, tag layout,
                     float scale = 1.0f, float shift = 0.0f) {
    Tensor made = empty(extents, kind, layout);
    void* at = made.data.get_data_handle();
    for (size_t i = 0; i < count(extents); ++i) {
        const float value = next() * scale + shift;
        if (kind == type::f32) static_cast<float*>(at)[i] = value;
        if (kind == type::u8)
            static_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(std::lround(value));
        if (kind == type::s8) static_cast<int8_t*>(at)[i] = static_cast<int8_t>(std::lround(value));
    }
    print(name, made);
    return made;
}

// A tensor in the layout that a primitive wants.
static memory as(const Tensor& from, const memory::desc& wanted, primitive_attr attr = {}) {
    if (from.data.get_desc() == wanted) return from.data;
    memory to(wanted, cpu);
    memory data = from.data;
    reorder(reorder::primitive_desc(data, to, attr)).execute(queue, data, to);
    queue.wait();
    return to;
}

static const std::vector<std::pair<const char*, rnn_direction>> DIRECTIONS = {
    {"left2right", rnn_direction::unidirectional_left2right},
    {"right2left", rnn_direction::unidirectional_right2left},
    {"bidirectional_concat", rnn_direction::bidirectional_concat},
    {"bidirectional_sum", rnn_direction::bidirectional_sum},
};

using Arguments = std::unordered_map<int, memory>;

// A cell: its gates and biases, and which tensors it has.
struct Cell {
    const char* name;
    long gates, biases;
    bool lstm, attention, peephole, projection;
    algorithm activation;
};

static const Cell CELLS[] = {
    {"relu", 1, 1, false, false, false, false, algorithm::eltwise_relu},
    {"tanh", 1, 1, false, false, false, false, algorithm::eltwise_tanh},
    {"sigmoid", 1, 1, false, false, false, false, algorithm::eltwise_logistic},
    {"lstm", 4, 4, true, false, false, false, algorithm::undef},
    {"lstm_peephole", 4, 4, true, false, true, false, algorithm::undef},
    {"lstm_projection", 4, 4, true, false, false, true, algorithm::undef},
    {"lstm_peephole_projection", 4, 4, true, false, true, true, algorithm::undef},
    {"gru", 3, 3, false, false, false, false, algorithm::undef},
    {"lbr_gru", 3, 4, false, false, false, false, algorithm::undef},
    {"augru", 3, 3, false, true, false, false, algorithm::undef},
    {"lbr_augru", 3, 4, false, true, false, false, algorithm::undef},
};

static memory::desc any(const dims& extents) { return {extents, type::f32, tag::any}; }

// The gradient of a tensor, printed under its name.
static void give(const std::string& name, const memory& of, tag layout) {
    const dims extents = of.get_desc().get_dims();
    Tensor plain = empty(extents, type::f32, layout);
    if (of.get_desc() == plain.data.get_desc()) {
        std::memcpy(plain.data.get_data_handle(), of.get_data_handle(),
                    plain.data.get_desc().get_size());
    } else {
        reorder(of, plain.data).execute(queue, const_cast<memory&>(of), plain.data);
        queue.wait();
    }
    print(name, plain);
}

static memory zero(const memory::desc& desc) {
    memory made(desc, cpu);
    std::memset(made.get_data_handle(), 0, desc.get_size());
    return made;
}

static void run(const Cell& cell, const char* way, rnn_direction direction, long layers) {
    const long t = 3, n = 2, hidden = 3, state = cell.projection ? 2 : hidden;
    const bool both = direction == rnn_direction::bidirectional_concat ||
                      direction == rnn_direction::bidirectional_sum;
    const long d = both ? 2 : 1, input = layers > 1 ? state : 4;
    const long width = direction == rnn_direction::bidirectional_concat ? 2 * state : state;
    prefix = std::string(cell.name) + "_" + way + "_" + std::to_string(layers);
    std::printf(
        "case %s cell=%s direction=%s layers=%ld input=%ld hidden=%ld state=%ld steps=%ld "
        "batch=%ld\n",
        prefix.c_str(), cell.name, way, layers, input, hidden, state, t, n);
    std::map<int, Tensor> in;
    in[DNNL_ARG_SRC_LAYER] = filled("src_layer", {t, n, input}, type::f32, tag::tnc);
    in[DNNL_ARG_SRC_ITER] = filled("src_iter", {layers, d, n, state}, type::f32, tag::ldnc);
    if (cell.lstm)
        in[DNNL_ARG_SRC_ITER_C] =
            filled("src_iter_c", {layers, d, n, hidden}, type::f32, tag::ldnc);
    if (cell.attention) {
        Tensor made = empty({t, n, 1}, type::f32, tag::tnc);
        auto* at = static_cast<float*>(made.data.get_data_handle());
        for (long i = 0; i < t * n; ++i) at[i] = (next() + 1.0f) / 2.0f;
        print("attention", made);
        in[DNNL_ARG_AUGRU_ATTENTION] = made;
    }
    in[DNNL_ARG_WEIGHTS_LAYER] =
        filled("weights_layer", {layers, d, input, cell.gates, hidden}, type::f32, tag::ldigo);
    in[DNNL_ARG_WEIGHTS_ITER] =
        filled("weights_iter", {layers, d, state, cell.gates, hidden}, type::f32, tag::ldigo);
    if (cell.peephole)
        in[DNNL_ARG_WEIGHTS_PEEPHOLE] =
            filled("weights_peephole", {layers, d, 3, hidden}, type::f32, tag::ldgo);
    if (cell.projection)
        in[DNNL_ARG_WEIGHTS_PROJECTION] =
            filled("weights_projection", {layers, d, hidden, state}, type::f32, tag::ldio);
    in[DNNL_ARG_BIAS] = filled("bias", {layers, d, cell.biases, hidden}, type::f32, tag::ldgo);
    const dims dst_layer{t, n, width}, dst_iter{layers, d, n, state},
        dst_iter_c{layers, d, n, hidden};
    const auto of = [&](int argument) { return in.at(argument).data.get_desc(); };
    const auto optional = [&](int argument) {
        return in.count(argument) ? of(argument) : memory::desc();
    };
    const auto free = [&](int argument) {
        return in.count(argument) ? any(in.at(argument).extents) : memory::desc();
    };
    const memory::desc y(dst_layer, type::f32, tag::tnc), h(dst_iter, type::f32, tag::ldnc);
    const memory::desc c(dst_iter_c, type::f32, tag::ldnc);
    const auto training = prop_kind::forward_training, back = prop_kind::backward;
    const int S = DNNL_ARG_SRC_LAYER, I = DNNL_ARG_SRC_ITER, C = DNNL_ARG_SRC_ITER_C;
    const int W = DNNL_ARG_WEIGHTS_LAYER, U = DNNL_ARG_WEIGHTS_ITER, B = DNNL_ARG_BIAS;
    const int P = DNNL_ARG_WEIGHTS_PEEPHOLE, R = DNNL_ARG_WEIGHTS_PROJECTION,
              A = DNNL_ARG_AUGRU_ATTENTION;

    const auto passes = [&](auto forward, auto make_backward) {
        using Forward = decltype(forward);
        Arguments arguments;
        for (const auto& argument : in) {
            const auto wanted = forward.query_md(query::exec_arg_md, argument.first);
            arguments[argument.first] = as(argument.second, wanted);
        }
        arguments[DNNL_ARG_DST_LAYER] = zero(y);
        arguments[DNNL_ARG_DST_ITER] = zero(h);
        if (cell.lstm) arguments[DNNL_ARG_DST_ITER_C] = zero(c);
        arguments[DNNL_ARG_WORKSPACE] = memory(forward.workspace_desc(), cpu);
        primitive(forward).execute(queue, arguments);
        queue.wait();
        give("dst_layer", arguments[DNNL_ARG_DST_LAYER], tag::tnc);
        give("dst_iter", arguments[DNNL_ARG_DST_ITER], tag::ldnc);
        if (cell.lstm) give("dst_iter_c", arguments[DNNL_ARG_DST_ITER_C], tag::ldnc);
        try {
            auto backward = make_backward(forward);
            for (const auto& argument : in) {
                const auto wanted = backward.query_md(query::exec_arg_md, argument.first);
                arguments[argument.first] = as(argument.second, wanted);
                const int own = DNNL_ARG_DIFF_SRC_LAYER - DNNL_ARG_SRC_LAYER + argument.first;
                arguments[own] = zero(backward.query_md(query::exec_arg_md, own));
            }
            arguments[DNNL_ARG_DIFF_DST_LAYER] =
                filled("diff_dst_layer", dst_layer, type::f32, tag::tnc).data;
            arguments[DNNL_ARG_DIFF_DST_ITER] =
                filled("diff_dst_iter", dst_iter, type::f32, tag::ldnc).data;
            if (cell.lstm)
                arguments[DNNL_ARG_DIFF_DST_ITER_C] =
                    filled("diff_dst_iter_c", dst_iter_c, type::f32, tag::ldnc).data;
            primitive(backward).execute(queue, arguments);
            queue.wait();
            const std::map<int, std::pair<const char*, tag>> given = {
                {S, {"diff_src_layer", tag::tnc}},
                {I, {"diff_src_iter", tag::ldnc}},
                {C, {"diff_src_iter_c", tag::ldnc}},
                {W, {"diff_weights_layer", tag::ldigo}},
                {U, {"diff_weights_iter", tag::ldigo}},
                {P, {"diff_weights_peephole", tag::ldgo}},
                {R, {"diff_weights_projection", tag::ldio}},
                {B, {"diff_bias", tag::ldgo}},
                {A, {"diff_attention", tag::tnc}},
            };
            for (const auto& one : given) {
                const int own = DNNL_ARG_DIFF_SRC_LAYER - DNNL_ARG_SRC_LAYER + one.first;
                if (in.count(one.first)) give(one.second.first, arguments[own], one.second.second);
            }
        } catch (const dnnl::error& failure) {
            std::fprintf(stderr, "%s: no backward: %s\n", prefix.c_str(), failure.what());
        }
    };
    const std::string name = cell.name;
    if (name == "gru") {
        gru_forward::primitive_desc pd(cpu, training, direction, of(S), of(I), free(W), free(U),
                                       of(B), y, h);
        passes(pd, [&](auto& f) {
            return gru_backward::primitive_desc(cpu, back, direction, of(S), of(I), free(W),
                                                free(U), of(B), y, h, of(S), of(I), free(W),
                                                free(U), of(B), y, h, f);
        });
    } else if (name == "lbr_gru") {
        lbr_gru_forward::primitive_desc pd(cpu, training, direction, of(S), of(I), free(W), free(U),
                                           of(B), y, h);
        passes(pd, [&](auto& f) {
            return lbr_gru_backward::primitive_desc(cpu, back, direction, of(S), of(I), free(W),
                                                    free(U), of(B), y, h, of(S), of(I), free(W),
                                                    free(U), of(B), y, h, f);
        });
    } else if (name == "augru") {
        augru_forward::primitive_desc pd(cpu, training, direction, of(S), of(I), of(A), free(W),
                                         free(U), of(B), y, h);
        passes(pd, [&](auto& f) {
            return augru_backward::primitive_desc(cpu, back, direction, of(S), of(I), of(A),
                                                  free(W), free(U), of(B), y, h, of(S), of(I),
                                                  of(A), free(W), free(U), of(B), y, h, f);
        });
    } else if (name == "lbr_augru") {
        lbr_augru_forward::primitive_desc pd(cpu, training, direction, of(S), of(I), of(A), free(W),
                                             free(U), of(B), y, h);
        passes(pd, [&](auto& f) {
            return lbr_augru_backward::primitive_desc(cpu, back, direction, of(S), of(I), of(A),
                                                      free(W), free(U), of(B), y, h, of(S), of(I),
                                                      of(A), free(W), free(U), of(B), y, h, f);
        });
    } else if (cell.lstm) {
        lstm_forward::primitive_desc pd(cpu, training, direction, of(S), of(I), of(C), free(W),
                                        free(U), optional(P), free(R), of(B), y, h, c);
        passes(pd, [&](auto& f) {
            return lstm_backward::primitive_desc(cpu, back, direction, of(S), of(I), of(C), free(W),
                                                 free(U), optional(P), free(R), of(B), y, h, c,
                                                 of(S), of(I), of(C), free(W), free(U), optional(P),
                                                 free(R), of(B), y, h, c, f);
        });
    } else {
        vanilla_rnn_forward::primitive_desc pd(cpu, training, cell.activation, direction, of(S),
                                               of(I), free(W), free(U), of(B), y, h);
        passes(pd, [&](auto& f) {
            return vanilla_rnn_backward::primitive_desc(
                cpu, back, cell.activation, direction, of(S), of(I), free(W), free(U), of(B), y, h,
                of(S), of(I), free(W), free(U), of(B), y, h, f);
        });
    }
}

// LSTM of 8-bit integers: u8 sources are value * scale + shift, s8 ones have no shift.
static void run_int8(type source, type result, bool channels, const char* way,
                     rnn_direction direction) {
    const long t = 3, n = 2, hidden = 4, layers = 1;
    const bool both = direction == rnn_direction::bidirectional_concat ||
                      direction == rnn_direction::bidirectional_sum;
    const long d = both ? 2 : 1;
    const long width = direction == rnn_direction::bidirectional_concat ? 2 * hidden : hidden;
    const float scale = source == type::u8 ? 63.0f : 60.0f,
                shift = source == type::u8 ? 128.0f : 0.0f;
    prefix = std::string("int8_") + name_of(source) + "_" + name_of(result) +
             (channels ? "_channels_" : "_tensor_") + way;
    std::printf(
        "case %s cell=lstm direction=%s layers=1 input=%ld hidden=%ld state=%ld steps=%ld "
        "batch=%ld data_scale=%g data_shift=%g channels=%d\n",
        prefix.c_str(), way, hidden, hidden, hidden, t, n, scale, shift, int(channels));
    Tensor src = filled("src_layer", {t, n, hidden}, source, tag::tnc, scale, shift);
    Tensor h0 = filled("src_iter", {layers, d, n, hidden}, source, tag::ldnc, scale, shift);
    Tensor c0 = filled("src_iter_c", {layers, d, n, hidden}, type::f32, tag::ldnc);
    Tensor w = filled("weights_layer", {layers, d, hidden, 4, hidden}, type::f32, tag::ldigo);
    Tensor u = filled("weights_iter", {layers, d, hidden, 4, hidden}, type::f32, tag::ldigo);
    Tensor b = filled("bias", {layers, d, 4, hidden}, type::f32, tag::ldgo);
    std::vector<float> scales;
    for (long i = 0; i < (channels ? 4 * hidden : 1); ++i)
        scales.push_back(channels ? 60.0f + 4.0f * float(i) : 100.0f);
    Tensor printed = empty({long(scales.size())}, type::f32, tag::x);
    std::memcpy(printed.data.get_data_handle(), scales.data(), scales.size() * 4);
    print("weights_scales", printed);
    primitive_attr attr;
    attr.set_rnn_data_qparams(scale, shift);
    attr.set_rnn_weights_qparams(channels ? (1 << 3) + (1 << 4) : 0, scales);
    const memory::desc y({t, n, width}, result, tag::tnc),
        h({layers, d, n, hidden}, source, tag::ldnc);
    const memory::desc c({layers, d, n, hidden}, type::f32, tag::ldnc);
    const auto weights = [&](const Tensor& from) {
        return memory::desc(from.extents, type::s8, tag::any);
    };
    try {
        lstm_forward::primitive_desc pd(cpu, prop_kind::forward_inference, direction,
                                        src.data.get_desc(), h0.data.get_desc(), c0.data.get_desc(),
                                        weights(w), weights(u), b.data.get_desc(), y, h, c, attr);
        Arguments arguments;
        arguments[DNNL_ARG_SRC_LAYER] = src.data;
        arguments[DNNL_ARG_SRC_ITER] = h0.data;
        arguments[DNNL_ARG_SRC_ITER_C] = c0.data;
        arguments[DNNL_ARG_WEIGHTS_LAYER] = as(w, pd.weights_layer_desc(), attr);
        arguments[DNNL_ARG_WEIGHTS_ITER] = as(u, pd.weights_iter_desc(), attr);
        arguments[DNNL_ARG_BIAS] = b.data;
        arguments[DNNL_ARG_DST_LAYER] = zero(y);
        arguments[DNNL_ARG_DST_ITER] = zero(h);
        arguments[DNNL_ARG_DST_ITER_C] = zero(c);
        lstm_forward(pd).execute(queue, arguments);
        queue.wait();
        print("dst_layer", {arguments[DNNL_ARG_DST_LAYER], {t, n, width}, result});
        print("dst_iter", {arguments[DNNL_ARG_DST_ITER], {layers, d, n, hidden}, source});
        print("dst_iter_c", {arguments[DNNL_ARG_DST_ITER_C], {layers, d, n, hidden}, type::f32});
    } catch (const dnnl::error& failure) {
        std::fprintf(stderr, "%s: %s\n", prefix.c_str(), failure.what());
        std::printf("none %s\n", prefix.c_str());
    }
}

int main() {
    const version_t* of = dnnl_version();
    std::printf("version %d.%d.%d\n", of->major, of->minor, of->patch);
    for (const Cell& cell : CELLS) {
        for (const auto& direction : DIRECTIONS) {
            for (long layers : {1L, 2L}) {
                try {
                    run(cell, direction.first, direction.second, layers);
                } catch (const dnnl::error& failure) {
                    std::fprintf(stderr, "%s: %s\n", prefix.c_str(), failure.what());
                    std::printf("none %s\n", prefix.c_str());
                }
            }
        }
    }
    for (type source : {type::u8, type::s8}) {
        for (type result : {source, type::f32}) {
            for (bool channels : {false, true}) {
                for (const auto& direction : DIRECTIONS) {
                    run_int8(source, result, channels, direction.first, direction.second);
                }
            }
        }
    }
    return 0;
}
