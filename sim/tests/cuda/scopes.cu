// targets: sm_90a sm_120
// Message passing through global memory at the scopes of a block, a cluster and the device, and
// vectors whose elements PTX stores one by one; mistakes beside their correct forms.

typedef unsigned int word;
typedef unsigned long long wide;

enum class Scope { BLOCK, CLUSTER, DEVICE };

template <Scope SCOPE> __device__ void release(word* flag)
{
    if (SCOPE == Scope::BLOCK) asm volatile("st.release.cta.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    if (SCOPE == Scope::CLUSTER) asm volatile("st.release.cluster.global.u32 [%0], 1;" ::"l"(flag) : "memory");
    if (SCOPE == Scope::DEVICE) asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}

template <Scope SCOPE> __device__ word acquire(const word* flag)
{
    word out;
    if (SCOPE == Scope::BLOCK) asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(out) : "l"(flag) : "memory");
    if (SCOPE == Scope::CLUSTER) asm volatile("ld.acquire.cluster.global.u32 %0, [%1];" : "=r"(out) : "l"(flag) : "memory");
    if (SCOPE == Scope::DEVICE) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(out) : "l"(flag) : "memory");
    return out;
}

// Each block writes a word and reads that of another: its neighbour in the cluster, or in the grid.
template <Scope WRITER, Scope READER, int DISTANCE> __device__ void pass(word* data, word* flags, word* out)
{
    if (threadIdx.x != 0) return;
    const int other = blockIdx.x ^ DISTANCE;
    data[blockIdx.x] = blockIdx.x + 1;
    release<WRITER>(flags + blockIdx.x);
    while (acquire<READER>(flags + other) == 0) {}
    out[blockIdx.x] = data[other];
}

#define PASS(NAME, WRITER, READER, DISTANCE)                                                                         \
    extern "C" __global__ void __cluster_dims__(2, 1, 1) NAME(word* data, word* flags, word* out)                   \
    {                                                                                                                \
        pass<Scope::WRITER, Scope::READER, DISTANCE>(data, flags, out);                                              \
    }
PASS(passed_in_cluster_clean, CLUSTER, CLUSTER, 1)
PASS(passed_in_cluster_wider_clean, CLUSTER, DEVICE, 1)
PASS(passed_in_grid_clean, DEVICE, DEVICE, 2)
PASS(passed_in_grid_racy, CLUSTER, CLUSTER, 2)
PASS(released_too_near_racy, CLUSTER, DEVICE, 2)
PASS(acquired_too_near_racy, DEVICE, CLUSTER, 2)
PASS(passed_in_block_racy, BLOCK, BLOCK, 1)

extern "C" __global__ void __cluster_dims__(2, 1, 1) counted_in_grid_clean(word* data, word*, word*)
{
    if (threadIdx.x == 0) asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(data) : "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) counted_in_clusters_clean(word* data, word*, word*)
{
    word* own = data + blockIdx.x / 2;
    if (threadIdx.x == 0) asm volatile("red.relaxed.cluster.global.add.u32 [%0], 1;" ::"l"(own) : "memory");
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) counted_too_near_racy(word* data, word*, word*)
{
    if (threadIdx.x == 0) asm volatile("red.relaxed.cluster.global.add.u32 [%0], 1;" ::"l"(data) : "memory");
}

// Messages of 62 bits of data with the number of the message: who reads polls for the number. Two
// messages are in one vector.

// The number belongs to the whole vector: its elements may be of different messages.
struct Torn {
    static __device__ void send(word* to, word number)
    {
        asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(to), "r"(number) : "memory");
    }
    static __device__ bool receive(const word* from, word number, word& sum)
    {
        word a, b, c, d;
        asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "l"(from)
                     : "memory");
        sum = a + b + c;
        return d == number;
    }
};

// Each element has the number.
struct Tagged {
    static __device__ void send(word* to, word number)
    {
        const wide value = (wide)number << 32 | number;
        asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %1};" ::"l"(to), "l"(value) : "memory");
    }
    static __device__ bool receive(const word* from, word number, word& sum)
    {
        wide a, b;
        asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
        sum = (word)a + (word)b + number;
        return a >> 32 == number && b >> 32 == number;
    }
};

// One value of 128 bits.
struct Whole {
    static __device__ void send(word* to, word number)
    {
        asm volatile(
            "{\n.reg .b128 v;\n.reg .b64 d;\nmov.b64 d, {%1, %1};\nmov.b128 v, {d, d};\n"
            "st.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(to),
            "r"(number)
            : "memory");
    }
    static __device__ bool receive(const word* from, word number, word& sum)
    {
        wide a, b;
        asm volatile("{\n.reg .b128 v;\nld.relaxed.gpu.global.b128 v, [%2];\nmov.b128 {%0, %1}, v;\n}"
                     : "=l"(a), "=l"(b)
                     : "l"(from)
                     : "memory");
        sum = (word)a + (word)(a >> 32) + (word)b;
        return (word)(b >> 32) == number;
    }
};

// Block 0 sends 16 messages to block 1, which answers each.
template <typename Message> __device__ void exchange(word* data, word* flags, word* out)
{
    if (threadIdx.x != 0) return;
    for (word number = 1; number <= 16; number++) {
        word sum = 0;
        if (blockIdx.x == 0) {
            Message::send(data, number);
            while (!Message::receive(data + 4, number, sum)) {}
        } else {
            while (!Message::receive(data, number, sum)) {}
            out[number - 1] = sum;
            Message::send(data + 4, number);
        }
    }
}
extern "C" __global__ void exchanged_torn(word* data, word* flags, word* out) { exchange<Torn>(data, flags, out); }
extern "C" __global__ void exchanged_tagged(word* data, word* flags, word* out) { exchange<Tagged>(data, flags, out); }
extern "C" __global__ void exchanged_whole(word* data, word* flags, word* out) { exchange<Whole>(data, flags, out); }
