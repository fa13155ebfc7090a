// Errors, engines, streams and memory of oneDNN's C++ interface, on Kiln; see dnnl_rnn.hpp.
#ifndef KILN_DNNL_MEMORY_HPP_
#define KILN_DNNL_MEMORY_HPP_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "../mcdnn_kiln.h"

#define DNNL_ARG_SRC_0 1
#define DNNL_ARG_SRC_1 2
#define DNNL_ARG_SRC_2 3
#define DNNL_ARG_SRC_3 4
#define DNNL_ARG_DST_0 17
#define DNNL_ARG_DST_1 18
#define DNNL_ARG_DST_2 19
#define DNNL_ARG_WEIGHTS_0 33
#define DNNL_ARG_WEIGHTS_1 34
#define DNNL_ARG_WEIGHTS_2 35
#define DNNL_ARG_WEIGHTS_3 36
#define DNNL_ARG_BIAS 41
#define DNNL_ARG_WORKSPACE 64
#define DNNL_ARG_SCRATCHPAD 80
#define DNNL_ARG_DIFF_SRC_0 129
#define DNNL_ARG_DIFF_SRC_1 130
#define DNNL_ARG_DIFF_SRC_2 131
#define DNNL_ARG_DIFF_SRC_3 132
#define DNNL_ARG_DIFF_DST_0 145
#define DNNL_ARG_DIFF_DST_1 146
#define DNNL_ARG_DIFF_DST_2 147
#define DNNL_ARG_DIFF_WEIGHTS_0 161
#define DNNL_ARG_DIFF_WEIGHTS_1 162
#define DNNL_ARG_DIFF_WEIGHTS_2 163
#define DNNL_ARG_DIFF_WEIGHTS_3 164
#define DNNL_ARG_DIFF_BIAS 169

#define DNNL_ARG_SRC DNNL_ARG_SRC_0
#define DNNL_ARG_DST DNNL_ARG_DST_0
#define DNNL_ARG_FROM DNNL_ARG_SRC_0
#define DNNL_ARG_TO DNNL_ARG_DST_0
#define DNNL_ARG_SRC_LAYER DNNL_ARG_SRC_0
#define DNNL_ARG_SRC_ITER DNNL_ARG_SRC_1
#define DNNL_ARG_SRC_ITER_C DNNL_ARG_SRC_2
#define DNNL_ARG_AUGRU_ATTENTION DNNL_ARG_SRC_3
#define DNNL_ARG_DST_LAYER DNNL_ARG_DST_0
#define DNNL_ARG_DST_ITER DNNL_ARG_DST_1
#define DNNL_ARG_DST_ITER_C DNNL_ARG_DST_2
#define DNNL_ARG_WEIGHTS_LAYER DNNL_ARG_WEIGHTS_0
#define DNNL_ARG_WEIGHTS_ITER DNNL_ARG_WEIGHTS_1
#define DNNL_ARG_WEIGHTS_PEEPHOLE DNNL_ARG_WEIGHTS_2
#define DNNL_ARG_WEIGHTS_PROJECTION DNNL_ARG_WEIGHTS_3
#define DNNL_ARG_DIFF_SRC_LAYER DNNL_ARG_DIFF_SRC_0
#define DNNL_ARG_DIFF_SRC_ITER DNNL_ARG_DIFF_SRC_1
#define DNNL_ARG_DIFF_SRC_ITER_C DNNL_ARG_DIFF_SRC_2
#define DNNL_ARG_DIFF_AUGRU_ATTENTION DNNL_ARG_DIFF_SRC_3
#define DNNL_ARG_DIFF_DST_LAYER DNNL_ARG_DIFF_DST_0
#define DNNL_ARG_DIFF_DST_ITER DNNL_ARG_DIFF_DST_1
#define DNNL_ARG_DIFF_DST_ITER_C DNNL_ARG_DIFF_DST_2
#define DNNL_ARG_DIFF_WEIGHTS_LAYER DNNL_ARG_DIFF_WEIGHTS_0
#define DNNL_ARG_DIFF_WEIGHTS_ITER DNNL_ARG_DIFF_WEIGHTS_1
#define DNNL_ARG_DIFF_WEIGHTS_PEEPHOLE DNNL_ARG_DIFF_WEIGHTS_2
#define DNNL_ARG_DIFF_WEIGHTS_PROJECTION DNNL_ARG_DIFF_WEIGHTS_3

#define DNNL_MEMORY_NONE (nullptr)
#define DNNL_MEMORY_ALLOCATE (reinterpret_cast<void *>(static_cast<std::size_t>(-1)))

namespace kiln
{
namespace dnnl
{

enum dnnl_status_t {
    dnnl_success = 0,
    dnnl_out_of_memory = 1,
    dnnl_invalid_arguments = 2,
    dnnl_unimplemented = 3,
    dnnl_last_impl_reached = 4,
    dnnl_runtime_error = 5,
    dnnl_not_required = 6
};

// What every function throws.
struct error : public std::exception {
    error(dnnl_status_t of, const std::string &text) : status(of), message(text) {}
    const char *what() const noexcept override { return message.c_str(); }

    dnnl_status_t status;
    std::string message;
};

// The version of oneDNN whose interface this is.
struct version_t {
    int major, minor, patch;
    const char *hash;
};

inline const version_t *dnnl_version()
{
    static const version_t of = {3, 2, 0, "kiln"};
    return &of;
}

namespace detail
{

inline void check(mcdnnStatus_t status)
{
    if (status == MCDNN_STATUS_SUCCESS)
        return;
    char text[4096];
    mcdnnGetLastErrorString(text, sizeof text);
    switch (status) {
    case MCDNN_STATUS_NOT_INITIALIZED:
    case MCDNN_STATUS_BAD_PARAM:
    case MCDNN_STATUS_INVALID_VALUE:
        throw error(dnnl_invalid_arguments, text);
    case MCDNN_STATUS_ARCH_MISMATCH:
    case MCDNN_STATUS_NOT_SUPPORTED:
        throw error(dnnl_unimplemented, text);
    case MCDNN_STATUS_ALLOC_FAILED:
        throw error(dnnl_out_of_memory, text);
    default:
        throw error(dnnl_runtime_error, text);
    }
}

[[noreturn]] inline void refuse(const std::string &text) { throw error(dnnl_unimplemented, text); }
[[noreturn]] inline void bad(const std::string &text) { throw error(dnnl_invalid_arguments, text); }

typedef std::shared_ptr<struct mcdnnHandleStruct> handle;

inline handle open()
{
    mcdnnHandle_t own;
    check(mcdnnCreate(&own));
    return handle(own, [](mcdnnHandle_t of) { mcdnnDestroy(of); });
}

// Device memory of the library's.
inline std::shared_ptr<void> allocate(const handle &of, std::size_t bytes)
{
    void *address;
    check(mcdnnKilnMalloc(of.get(), &address, bytes ? bytes : 1));
    return std::shared_ptr<void>(address, [of](void *own) { mcdnnKilnFree(of.get(), own); });
}

} // namespace detail

// A device. Memory of a GPU's engine is on the device. That of a CPU's is on the host: primitives
// copy it to the device and back, as they compute there whatever the engine.
struct engine {
    enum class kind { any = 0, cpu = 1, gpu = 2 };

    engine() : kind_(kind::any) {}
    engine(kind of, std::size_t index) : kind_(of), handle_(detail::open())
    {
        if (index != 0)
            detail::bad("engine " + std::to_string(index) + ", expected 0");
    }

    static std::size_t get_count(kind)
    {
        mcdnnHandle_t own;
        if (mcdnnCreate(&own) != MCDNN_STATUS_SUCCESS)
            return 0;
        mcdnnDestroy(own);
        return 1;
    }

    kind get_kind() const { return kind_; }
    const detail::handle &get() const
    {
        if (!handle_)
            detail::bad("an engine that was not made");
        return handle_;
    }
    bool operator==(const engine &other) const
    {
        return kind_ == other.kind_ && handle_ == other.handle_;
    }
    bool operator!=(const engine &other) const { return !(*this == other); }

  private:
    kind kind_;
    detail::handle handle_;
};

// A queue of executions, in order: the default stream of the device, or one of CUDA's.
struct stream {
    enum class flags : unsigned { in_order = 1, out_of_order = 2, default_flags = in_order };

    stream() {}
    explicit stream(const engine &of, flags = flags::default_flags)
        : engine_(of), handle_(detail::open())
    {
    }
    stream(const engine &of, cudaStream_t own) : stream(of)
    {
        detail::check(mcdnnSetStream(handle_.get(), own));
    }

    engine get_engine() const { return engine_; }
    const detail::handle &get() const
    {
        if (!handle_)
            detail::bad("a stream that was not made");
        return handle_;
    }
    stream &wait()
    {
        detail::check(mcdnnKilnSynchronize(get().get()));
        return *this;
    }

  private:
    engine engine_;
    detail::handle handle_;
};

// Memory and its descriptors.
struct memory {
    typedef std::int64_t dim;
    typedef std::vector<dim> dims;

    enum class data_type {
        undef = 0,
        f16 = 1,
        bf16 = 2,
        f32 = 3,
        s32 = 4,
        s8 = 5,
        u8 = 6,
        f64 = 7
    };

    static std::size_t data_type_size(data_type of)
    {
        switch (of) {
        case data_type::undef:
            return 0;
        case data_type::f16:
        case data_type::bf16:
            return 2;
        case data_type::s8:
        case data_type::u8:
            return 1;
        case data_type::f64:
            return 8;
        default:
            return 4;
        }
    }

    enum class format_kind { undef = 0, any = 1, blocked = 2 };

    enum class format_tag {
        undef = 0,
        any = 1,
        a,
        ab,
        ba,
        abc,
        acb,
        bac,
        abcd,
        abdc,
        abcde,
        abdec,
        x = a,
        nc = ab,
        cn = ba,
        tnc = abc,
        ntc = bac,
        ldnc = abcd,
        ldio = abcd,
        ldgo = abcd,
        ldoi = abdc,
        ldigo = abcde,
        ldgoi = abdec
    };

    struct desc {
        // A zero memory descriptor: of a tensor that is not there.
        desc() : data_type_(data_type::undef), kind_(format_kind::undef) {}

        desc(const dims &of, data_type type, format_tag tag, bool = false)
            : dims_(of), data_type_(type), kind_(format_kind::blocked)
        {
            if (tag == format_tag::any) {
                kind_ = format_kind::any;
                return;
            }
            const std::string order = letters(tag);
            if (order.size() != of.size())
                detail::bad("a tag of another number of dimensions");
            strides_.resize(of.size());
            dim next = 1;
            for (std::size_t at = order.size(); at-- > 0;) {
                const std::size_t axis = static_cast<std::size_t>(order[at] - 'a');
                strides_[axis] = next;
                next *= of[axis];
            }
        }

        desc(const dims &of, data_type type, const dims &strides, bool = false)
            : dims_(of), strides_(strides), data_type_(type), kind_(format_kind::blocked)
        {
            if (strides.size() != of.size())
                detail::bad("another number of strides than dimensions");
        }

        dims get_dims() const { return dims_; }
        dims get_strides() const { return strides_; }
        int get_ndims() const { return static_cast<int>(dims_.size()); }
        data_type get_data_type() const { return data_type_; }
        format_kind get_format_kind() const { return kind_; }
        bool is_zero() const { return dims_.empty(); }

        // Bytes from the first element to the end of the last one.
        std::size_t get_size() const
        {
            if (kind_ != format_kind::blocked)
                return 0;
            dim last = 0;
            for (std::size_t at = 0; at < dims_.size(); ++at) {
                if (dims_[at] == 0)
                    return 0;
                last += (dims_[at] - 1) * strides_[at];
            }
            return static_cast<std::size_t>(last + 1) * data_type_size(data_type_);
        }

        bool operator==(const desc &other) const
        {
            return dims_ == other.dims_ && data_type_ == other.data_type_ && kind_ == other.kind_ &&
                   strides_ == other.strides_;
        }
        bool operator!=(const desc &other) const { return !(*this == other); }

      private:
        // The axes from the outermost one in memory on.
        static const char *letters(format_tag tag)
        {
            switch (tag) {
            case format_tag::a:
                return "a";
            case format_tag::ab:
                return "ab";
            case format_tag::ba:
                return "ba";
            case format_tag::abc:
                return "abc";
            case format_tag::acb:
                return "acb";
            case format_tag::bac:
                return "bac";
            case format_tag::abcd:
                return "abcd";
            case format_tag::abdc:
                return "abdc";
            case format_tag::abcde:
                return "abcde";
            case format_tag::abdec:
                return "abdec";
            default:
                return "";
            }
        }

        dims dims_, strides_;
        data_type data_type_;
        format_kind kind_;
    };

    memory() {}
    memory(const desc &of, const engine &on) : memory(of, on, DNNL_MEMORY_ALLOCATE) {}
    memory(const desc &of, const engine &on, void *data) : own_(new state)
    {
        own_->of = of;
        own_->on = on;
        own_->address = data;
        if (data != DNNL_MEMORY_ALLOCATE)
            return;
        if (on.get_kind() == engine::kind::gpu) {
            own_->memory = detail::allocate(on.get(), of.get_size());
        } else {
            own_->memory.reset(std::calloc(of.get_size() + 1, 1), std::free);
            if (!own_->memory)
                throw error(dnnl_out_of_memory, "no memory on the host");
        }
        own_->address = own_->memory.get();
    }

    desc get_desc() const { return get().of; }
    engine get_engine() const { return get().on; }
    // An address on the device of a GPU's engine, on the host of a CPU's.
    void *get_data_handle() const { return get().address; }
    void set_data_handle(void *data) const { get().address = data; }

    // The elements on the host, until they are unmapped, which writes them back. On a GPU for
    // memory that this class has allocated.
    template <typename T = void> T *map_data() const
    {
        state &own = get();
        if (own.on.get_kind() != engine::kind::gpu)
            return static_cast<T *>(own.address);
        own.mapped.resize(own.of.get_size());
        if (!own.mapped.empty())
            detail::check(mcdnnKilnMemcpyDtoH(own.on.get().get(), own.mapped.data(), own.address,
                                              own.mapped.size()));
        return static_cast<T *>(static_cast<void *>(own.mapped.data()));
    }
    void unmap_data(void *) const
    {
        state &own = get();
        if (!own.mapped.empty())
            detail::check(mcdnnKilnMemcpyHtoD(own.on.get().get(), own.address, own.mapped.data(),
                                              own.mapped.size()));
        own.mapped.clear();
    }

    // Whether there is memory.
    explicit operator bool() const { return static_cast<bool>(own_); }

  private:
    struct state {
        desc of;
        engine on;
        void *address;
        std::shared_ptr<void> memory;
        std::vector<unsigned char> mapped;
    };

    state &get() const
    {
        if (!own_)
            detail::bad("memory that was not made");
        return *own_;
    }

    std::shared_ptr<state> own_;
};

} // namespace dnnl
} // namespace kiln

#endif
