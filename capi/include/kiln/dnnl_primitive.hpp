// Primitives, their attributes and reorders of oneDNN's C++ interface, on Kiln; see dnnl_rnn.hpp.
#ifndef KILN_DNNL_PRIMITIVE_HPP_
#define KILN_DNNL_PRIMITIVE_HPP_

#include <unordered_map>
#include <utility>

#include "dnnl_memory.hpp"

namespace kiln
{
namespace dnnl
{

enum class query { undef = 0, workspace_md, scratchpad_md, exec_arg_md };

enum class scratchpad_mode { library = 0, user = 1 };

// Quantization of 8-bit LSTMs. Primitives keep their scratchpads themselves.
struct primitive_attr {
    void set_rnn_data_qparams(float scale, float shift)
    {
        has_data_ = true;
        scale_ = scale;
        shift_ = shift;
    }
    void get_rnn_data_qparams(float &scale, float &shift) const
    {
        scale = scale_;
        shift = shift_;
    }
    void set_rnn_weights_qparams(int mask, const std::vector<float> &scales)
    {
        weights_ = std::make_pair(mask, scales);
    }
    void get_rnn_weights_qparams(int &mask, std::vector<float> &scales) const
    {
        mask = weights_.first;
        scales = weights_.second;
    }
    void set_rnn_weights_projection_qparams(int mask, const std::vector<float> &scales)
    {
        projection_ = std::make_pair(mask, scales);
    }
    void get_rnn_weights_projection_qparams(int &mask, std::vector<float> &scales) const
    {
        mask = projection_.first;
        scales = projection_.second;
    }
    void set_scratchpad_mode(scratchpad_mode mode)
    {
        if (mode != scratchpad_mode::library)
            detail::refuse("scratchpads of programs");
    }
    scratchpad_mode get_scratchpad_mode() const { return scratchpad_mode::library; }

    // Tells a primitive that is being described.
    void describe(mcdnnKilnPrimitive_t to) const
    {
        if (has_data_)
            detail::check(mcdnnKilnSetPrimitiveDataQuantization(to, scale_, shift_));
        scales(to, DNNL_ARG_WEIGHTS_LAYER, weights_);
        scales(to, DNNL_ARG_WEIGHTS_PROJECTION, projection_);
    }

  private:
    typedef std::pair<int, std::vector<float>> scales_of;

    static void scales(mcdnnKilnPrimitive_t to, int argument, const scales_of &own)
    {
        if (own.second.empty())
            return;
        detail::check(mcdnnKilnSetPrimitiveWeightsQuantization(
            to, argument, own.first, static_cast<int>(own.second.size()), own.second.data()));
    }

    bool has_data_ = false;
    float scale_ = 1.0f, shift_ = 0.0f;
    scales_of weights_, projection_;
};

namespace detail
{

typedef std::shared_ptr<struct mcdnnKilnPrimitiveStruct> object;

inline object describe()
{
    mcdnnKilnPrimitive_t own;
    check(mcdnnKilnCreatePrimitive(&own));
    return object(own, [](mcdnnKilnPrimitive_t of) { mcdnnKilnDestroyPrimitive(of); });
}

inline mcdnnDataType_t type_of(memory::data_type of)
{
    switch (of) {
    case memory::data_type::f16:
        return MCDNN_DATA_HALF;
    case memory::data_type::bf16:
        return MCDNN_DATA_BFLOAT16;
    case memory::data_type::f32:
        return MCDNN_DATA_FLOAT;
    case memory::data_type::s32:
        return MCDNN_DATA_INT32;
    case memory::data_type::s8:
        return MCDNN_DATA_INT8;
    case memory::data_type::u8:
        return MCDNN_DATA_UINT8;
    case memory::data_type::f64:
        return MCDNN_DATA_DOUBLE;
    default:
        bad("memory without a type");
    }
}

inline memory::data_type type_of(mcdnnDataType_t of)
{
    switch (of) {
    case MCDNN_DATA_HALF:
        return memory::data_type::f16;
    case MCDNN_DATA_BFLOAT16:
        return memory::data_type::bf16;
    case MCDNN_DATA_INT8:
        return memory::data_type::s8;
    case MCDNN_DATA_UINT8:
        return memory::data_type::u8;
    case MCDNN_DATA_DOUBLE:
        return memory::data_type::f64;
    default:
        return memory::data_type::f32;
    }
}

// Describes the memory of an argument, unless the descriptor is a zero one.
inline void set_memory(const object &to, int argument, const memory::desc &of)
{
    if (of.is_zero())
        return;
    const memory::dims dims = of.get_dims(), strides = of.get_strides();
    check(mcdnnKilnSetPrimitiveMemory(to.get(), argument, type_of(of.get_data_type()),
                                      of.get_ndims(), dims.data(),
                                      strides.empty() ? nullptr : strides.data()));
}

} // namespace detail

// What all primitive descriptors have.
struct primitive_desc_base {
    primitive_desc_base() {}

    engine get_engine() const { return engine_; }
    primitive_attr get_primitive_attr() const { return attr_; }
    memory::desc workspace_desc() const { return memory_of(DNNL_ARG_WORKSPACE); }
    memory::desc scratchpad_desc() const { return memory::desc(); }
    memory::desc query_md(query what, int argument = 0) const
    {
        switch (what) {
        case query::exec_arg_md:
            return memory_of(argument);
        case query::workspace_md:
            return workspace_desc();
        default:
            return memory::desc();
        }
    }

    const detail::object &get() const
    {
        if (!object_)
            detail::bad("a primitive descriptor that was not made");
        return object_;
    }

    // The memory that the primitive wants of an argument; a zero one if it has none.
    memory::desc memory_of(int argument) const
    {
        if (argument == DNNL_ARG_SCRATCHPAD)
            return memory::desc();
        mcdnnDataType_t type = MCDNN_DATA_FLOAT;
        int count = 0;
        memory::dims dims(MCDNN_DIM_MAX), strides(MCDNN_DIM_MAX);
        detail::check(mcdnnKilnGetPrimitiveMemory(get().get(), argument, MCDNN_DIM_MAX, &type,
                                                  &count, dims.data(), strides.data()));
        if (count == 0)
            return memory::desc();
        dims.resize(static_cast<std::size_t>(count));
        strides.resize(static_cast<std::size_t>(count));
        return memory::desc(dims, detail::type_of(type), strides);
    }

  protected:
    primitive_desc_base(const engine &on, const primitive_attr &attr)
        : engine_(on), attr_(attr), object_(detail::describe())
    {
    }

    void finalize()
    {
        attr_.describe(object_.get());
        detail::check(mcdnnKilnFinalizePrimitive(object_.get()));
    }

    engine engine_;
    primitive_attr attr_;
    detail::object object_;
};

// A primitive, compiled.
struct primitive {
    primitive() {}
    primitive(const primitive_desc_base &of) : of_(of)
    {
        const detail::handle on = of.get_engine().get();
        detail::check(mcdnnKilnBuildPrimitive(on.get(), of.get().get()));
    }

    // Queues the primitive. Arguments that it does not have are left alone; memory on the host is
    // copied to the device before and back after, and waited for.
    void execute(const stream &on, const std::unordered_map<int, memory> &arguments) const
    {
        std::vector<int> numbers;
        std::vector<const void *> addresses;
        std::vector<std::pair<memory, std::shared_ptr<void>>> staged;
        mcdnnHandle_t handle = on.get().get();
        for (const auto &argument : arguments) {
            if (!argument.second)
                continue;
            const memory::desc wanted = of_.memory_of(argument.first);
            if (wanted.is_zero())
                continue;
            const memory &own = argument.second;
            if (own.get_desc() != wanted)
                detail::bad("argument " + std::to_string(argument.first) +
                            " is not what the primitive descriptor asks for");
            void *address = own.get_data_handle();
            if (own.get_engine().get_kind() != engine::kind::gpu) {
                const std::shared_ptr<void> copy = detail::allocate(on.get(), wanted.get_size());
                detail::check(mcdnnKilnMemcpyHtoD(handle, copy.get(), address, wanted.get_size()));
                staged.emplace_back(own, copy);
                address = copy.get();
            }
            numbers.push_back(argument.first);
            addresses.push_back(address);
        }
        detail::check(mcdnnKilnExecutePrimitive(handle, of_.get().get(),
                                                static_cast<int>(numbers.size()), numbers.data(),
                                                addresses.data()));
        for (const auto &one : staged)
            detail::check(mcdnnKilnMemcpyDtoH(handle, one.first.get_data_handle(), one.second.get(),
                                              one.first.get_desc().get_size()));
    }

  private:
    primitive_desc_base of_;
};

// Changes format or type, between host and device as well.
struct reorder : public primitive {
    struct primitive_desc : public primitive_desc_base {
        primitive_desc() {}
        primitive_desc(const engine &from_engine, const memory::desc &from, const engine &to_engine,
                       const memory::desc &to, const primitive_attr &attr = primitive_attr(),
                       bool = false)
            : primitive_desc_base(
                  from_engine.get_kind() == engine::kind::gpu ? from_engine : to_engine, attr)
        {
            detail::set_memory(object_, DNNL_ARG_FROM, from);
            detail::set_memory(object_, DNNL_ARG_TO, to);
            finalize();
        }
        primitive_desc(const memory &from, const memory &to,
                       const primitive_attr &attr = primitive_attr(), bool = false)
            : primitive_desc(from.get_engine(), from.get_desc(), to.get_engine(), to.get_desc(),
                             attr)
        {
        }
    };

    reorder() {}
    reorder(const primitive_desc &of) : primitive(of) {}
    reorder(const memory &from, const memory &to, const primitive_attr &attr = primitive_attr())
        : primitive(primitive_desc(from, to, attr))
    {
    }

    using primitive::execute;
    void execute(const stream &on, const memory &from, const memory &to) const
    {
        execute(on, {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    }
};

} // namespace dnnl
} // namespace kiln

#endif
