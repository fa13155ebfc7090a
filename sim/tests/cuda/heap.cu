// Memory that kernels allocate, and what goes wrong with it.

struct Node {
    Node* next;
    int value;
};

// Each thread builds a list, adds it up and frees it.
extern "C" __global__ void lists(int* out, int length)
{
    const int thread = blockIdx.x * blockDim.x + threadIdx.x;
    Node* first = nullptr;
    for (int i = 0; i < length; i++) {
        Node* node = static_cast<Node*>(malloc(sizeof(Node)));
        *node = Node{first, thread * i};
        first = node;
    }
    int sum = 0;
    while (first != nullptr) {
        Node* next = first->next;
        sum += first->value;
        free(first);
        first = next;
    }
    out[thread] = sum;
}

// An array of a thread that its warp fills, by `new`.
extern "C" __global__ void arrays(int* out)
{
    __shared__ int* values;
    if (threadIdx.x == 0) values = new int[blockDim.x];
    __syncthreads();
    values[threadIdx.x] = 3 * threadIdx.x + blockIdx.x;
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) delete[] values;
}

// Blocks that were others' before.
extern "C" __global__ void churn(int* out, int rounds)
{
    int sum = 0;
    for (int i = 0; i < rounds; i++) {
        int* block = static_cast<int*>(malloc(1000));
        for (int j = 0; j < 250; j += 50) block[j] = threadIdx.x + j;
        for (int j = 0; j < 250; j += 50) sum += block[j];
        free(block);
    }
    out[threadIdx.x] = sum;
}

// What is kept from one launch to the next.
extern "C" __global__ void keep(long long* place, int value)
{
    int* kept = static_cast<int*>(malloc(4));
    *kept = value;
    *place = reinterpret_cast<long long>(kept);
}

extern "C" __global__ void recall(const long long* place, int* out)
{
    int* kept = reinterpret_cast<int*>(*place);
    *out = *kept;
    free(kept);
}

// How many blocks of a size there are.
extern "C" __global__ void exhaust(int* out, long long bytes, int most)
{
    int count = 0;
    while (count < most && malloc(bytes) != nullptr) count++;
    *out = count;
}

extern "C" __global__ void misuse(int* out, int which)
{
    int* block = static_cast<int*>(malloc(40));
    for (int i = 0; i < 9; i++) block[i] = i;
    if (which == 0) *out = block[9];
    if (which == 1) *out = block[10];
    if (which == 2) block[-1] = 1;
    if (which == 3) free(block + 1);
    if (which == 4) free(out);
    free(block);
    if (which == 5) *out = block[0];
    if (which == 6) free(block);
    free(nullptr);
}

// A block that another thread fills, with nothing that orders them.
extern "C" __global__ void unordered(int* out)
{
    __shared__ int* block;
    if (threadIdx.x == 0) block = static_cast<int*>(malloc(4));
    __syncthreads();
    if (threadIdx.x == 32) *block = 1;
    if (threadIdx.x == 0) *out = *block;
}
