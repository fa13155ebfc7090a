// Elements of 8 and 16 bits in shared memory, several to a word: with and without a barrier between
// those who share bytes, and where they only share words.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;

template <bool FIXED> __device__ void sync()
{
    if (FIXED) __syncthreads();
}

// Two warps store to the same elements.
template <typename T, bool FIXED> __device__ void twice(T* out)
{
    __shared__ T s[32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) s[lane] = lane;
    sync<FIXED>();
    if (warp == 1) s[lane] = lane + 1;
    __syncthreads();
    if (warp == 0) out[lane] = s[lane];
}
extern "C" __global__ void twice_u8_racy(u8* out) { twice<u8, false>(out); }
extern "C" __global__ void twice_u8_clean(u8* out) { twice<u8, true>(out); }
extern "C" __global__ void twice_u16_racy(u16* out) { twice<u16, false>(out); }
extern "C" __global__ void twice_u16_clean(u16* out) { twice<u16, true>(out); }

// One warp loads what another stores; PART of the elements of a word.
template <typename T, int PART, bool FIXED> __device__ void passed(T* out)
{
    __shared__ T s[32];
    constexpr int PARTS = 4 / sizeof(T);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == 0) s[lane] = lane;
    sync<FIXED>();
    if (warp == 1 && lane % PARTS == PART) out[lane] = s[lane];
}
extern "C" __global__ void passed_low_u16_racy(u16* out) { passed<u16, 0, false>(out); }
extern "C" __global__ void passed_low_u16_clean(u16* out) { passed<u16, 0, true>(out); }
extern "C" __global__ void passed_high_u16_racy(u16* out) { passed<u16, 1, false>(out); }
extern "C" __global__ void passed_second_u8_racy(u8* out) { passed<u8, 1, false>(out); }
extern "C" __global__ void passed_second_u8_clean(u8* out) { passed<u8, 1, true>(out); }

// One warp loads the halves of words in two steps; another stores over the half of the first.
template <bool FIXED> __device__ void kept(u16* out)
{
    __shared__ u16 s[64];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (warp == 0) {
        const u16 low = *(volatile u16*)&s[2 * lane];
        __syncwarp();
        const u16 high = *(volatile u16*)&s[2 * lane + 1];
        out[lane] = low + high;
    }
    sync<FIXED>();
    if (warp == 1) s[2 * lane] = 1;
    __syncthreads();
    out[32 + lane] = s[lane];
}
extern "C" __global__ void kept_racy(u16* out) { kept<false>(out); }
extern "C" __global__ void kept_clean(u16* out) { kept<true>(out); }

// Lanes of a warp load their neighbour's half.
template <bool FIXED> __device__ void neighbours(u16* out)
{
    __shared__ u16 s[32];
    s[threadIdx.x] = threadIdx.x;
    if (FIXED) __syncwarp();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void neighbours_racy(u16* out) { neighbours<false>(out); }
extern "C" __global__ void neighbours_clean(u16* out) { neighbours<true>(out); }

// Threads that share words, but no bytes, need no barrier.
template <typename T> __device__ void own(T* out, int steps)
{
    __shared__ T s[64];
    // The threads of a word are of different warps.
    constexpr int PARTS = 4 / sizeof(T);
    const int at = threadIdx.x % (64 / PARTS) * PARTS + threadIdx.x / (64 / PARTS);
    volatile T* mine = &s[at];
    *mine = threadIdx.x;
    for (int i = 0; i < steps; i++) {
        *mine = *mine + i;
        if (i == 2) __syncwarp();
        if (i == 3) __syncthreads();
    }
    out[threadIdx.x] = *mine;
}
extern "C" __global__ void own_u8_clean(u8* out) { own<u8>(out, 6); }
extern "C" __global__ void own_u16_clean(u16* out) { own<u16>(out, 6); }

// Threads store bytes; all load whole words.
template <bool FIXED> __device__ void words(u32* out)
{
    __shared__ u32 s[16];
    ((u8*)s)[threadIdx.x] = threadIdx.x;
    sync<FIXED>();
    out[threadIdx.x] = s[threadIdx.x % 16];
}
extern "C" __global__ void words_racy(u32* out) { words<false>(out); }
extern "C" __global__ void words_clean(u32* out) { words<true>(out); }
