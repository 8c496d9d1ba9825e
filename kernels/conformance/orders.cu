// conformance/orders: what the ends of kernels and griddepcontrol.wait order towards other ranks. PTX says nothing of either; docs/emulator/races.md has
// what passmuster takes for granted, and `ledger --orders` counts words that came too late.
//
// Words are published, rank 0 to the others, turn by turn:
//
//   produce  writes the turn's number to all words, at rank 0 or at each reader
//   tell     follows it on the stream, as an ordinary or a dependent launch, and stores the number to each reader's flag
//   read     polls its flag and counts the words that are older
//
// or taken, rank 0 from the others:
//
//   push     of each other rank writes the turn's number to its part of rank 0's words and releases a flag of each block there
//   poll     polls these flags without acquiring
//   check    follows it on the stream, or is part of it, and counts the words that are older
//
// Each block of a reader or of `check` acknowledges a turn (release), and the next one begins when all have (acquire). Nothing else orders anything: a fence
// would empty the caches whose stale lines are looked for. Blocks count turns in a word of their own, `state`. The arguments say what is under test.
// target: compute_90
#include "../common/signals.cuh"
#include "abi.cuh"

__device__ __forceinline__ u32 load_weak(const u32* from) {
    u32 value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
}

__device__ __forceinline__ void wait_for_prerequisite() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void let_dependents_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Whether a word has come to a number in time. Nobody waits long once somebody has given up.
template <Ordering ORDERING>
__device__ bool comes(const u32* word, u32 number, Result* result, u64 limit) {
    if (*(volatile u32*)&result->gave_up) return false;
    u64 begin = nanoseconds();
    while ((i32)(load_signal<ORDERING>(word) - number) < 0)
        if (nanoseconds() - begin > limit) {
            *(volatile u32*)&result->gave_up = number;
            return false;
        }
    return true;
}

// Thread `i` waits for word `i` of `count`, the block for all of them.
template <Ordering ORDERING>
__device__ bool all_come(const u32* words, u32 count, u32 number, Result* result, u64 limit) {
    bool come = true;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) come &= comes<ORDERING>(words + i, number, result, limit);
    return __syncthreads_and(come);
}

// Counts words that are older than a turn.
__device__ void count(const u32* words, u32 each, u32 turn, bool weak, Result* result) {
    u32 stale = 0;
    u64 threads = (u64)gridDim.x * blockDim.x, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    for (u64 i = at; i < each; i += threads) {
        u32 seen = weak ? load_weak(words + i) : load_signal<RELAXED>(words + i);
        stale += (i32)(seen - turn) < 0;
    }
    if (stale) atomicAdd((unsigned long long*)&result->stale, stale);
    if (at == 0) atomicAdd((unsigned long long*)&result->reads, each);
}

// The `count` words at `acks` are of all readers' blocks. Each thread loses up to `lose` nanoseconds between its words.
extern "C" __global__ void produce(Peers words, u32 each, u32 at_readers, const u32* acks, u32 count, u32* state, Result* result, u32 world, u32 early, u32 lose, u64 limit) {
    u32 turn = load_weak(state + blockIdx.x) + 1;
    bool ready = all_come<RELEASE_ACQUIRE>(acks, count, turn - 1, result, limit);
    // Not before the last turn is over: nobody learns of this one while its words are still read.
    if (early) let_dependents_start();
    u64 threads = (u64)gridDim.x * blockDim.x, at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u32 random = ((u32)at * 2654435761u) ^ (turn * 40503u);
    for (u64 i = at; ready && i < each; i += threads) {
        for (u32 rank = at_readers; rank < (at_readers ? world : 1); rank++) ((u32*)words.address[rank])[i] = turn;
        random = random * 1664525u + 1013904223u;
        u64 begin = nanoseconds();
        while (lose && nanoseconds() - begin < random % lose) {}
    }
    if (threadIdx.x == 0) state[blockIdx.x] = turn;
}

// One block, a thread for each reader.
extern "C" __global__ void tell(Peers flags, u32* state, u32 world, u32 wait, u32 release) {
    if (wait) wait_for_prerequisite();
    u32 turn = load_weak(state) + 1, rank = threadIdx.x;
    if (rank > 0 && rank < world) {
        if (release) store_signal<RELEASE_ACQUIRE>((u32*)flags.address[rank], turn);
        else store_signal<RELAXED>((u32*)flags.address[rank], turn);
    }
    __syncthreads();
    if (threadIdx.x == 0) *state = turn;
}

// `turns` turns. `acks` is this rank's words at rank 0, one of each block.
extern "C" __global__ void read(const u32* words, u32 each, const u32* flag, u32* acks, u32* state, Result* result, u32 turns, u32 weak, u64 limit) {
    u32 turn = load_weak(state + blockIdx.x);
    for (u32 n = 0; n < turns; n++) {
        turn++;
        if (!all_come<RELAXED>(flag, 1, turn, result, limit)) return;
        count(words, each, turn, weak, result);
        __syncthreads();
        if (threadIdx.x == 0) {
            state[blockIdx.x] = turn;
            store_signal<RELEASE_ACQUIRE>(acks + blockIdx.x, turn);
        }
    }
}

// `turns` turns; `words` is this rank's part at rank 0, `flags` its flags there, one of each block. `acks` has those of rank 0's blocks here.
extern "C" __global__ void push(u32* words, u32 each, u32* flags, const u32* acks, u32 count, Result* result, u32 turns, u64 limit) {
    for (u32 turn = 1; turn <= turns; turn++) {
        if (!all_come<RELEASE_ACQUIRE>(acks, count, turn - 1, result, limit)) return;
        u64 threads = (u64)gridDim.x * blockDim.x;
        for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < each; i += threads) words[i] = turn;
        __syncthreads();
        if (threadIdx.x == 0) store_signal<RELEASE_ACQUIRE>(flags + blockIdx.x, turn);
    }
}

// What `poll` and `check` share: which words, and how they are taken.
struct Taking {
    const u32* words;
    u32 each;      // of all ranks' parts together
    u32 count;     // of flags, of all ranks' blocks
    const u32* flags;
    Peers acks;    // rank 0's words at each other rank, one of each block
    u32* state;
    Result* result;
    u64 limit;
    u32 world;
};

// Has every thread read the words that it counts later, so that they may be cached. Loads that nobody uses would be left out: the sum is no turn's.
__device__ void touch(const Taking& taking, u32 turn) {
    u64 threads = (u64)gridDim.x * blockDim.x;
    u32 later = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < taking.each; i += threads) later |= load_weak(taking.words + i) > turn + 1;
    if (later) *(volatile u32*)&taking.result->gave_up = turn;
}

__device__ void acknowledge(const Taking& taking, u32 turn) {
    __syncthreads();
    if (threadIdx.x > 0 && threadIdx.x < taking.world) store_signal<RELEASE_ACQUIRE>((u32*)taking.acks.address[threadIdx.x] + blockIdx.x, turn);
    if (threadIdx.x == 0) taking.state[blockIdx.x] = turn;
}

// With `whole`, does all that `check` does, too, by the same threads and without an acquire.
extern "C" __global__ void poll(const __grid_constant__ Taking taking, u32 early, u32 whole) {
    if (early) let_dependents_start();
    u32 turn = load_weak(taking.state + blockIdx.x) + 1;
    if (whole) touch(taking, turn);
    bool come = all_come<RELAXED>(taking.flags, taking.count, turn, taking.result, taking.limit);
    if (!whole) return;
    if (come) count(taking.words, taking.each, turn, true, taking.result);
    acknowledge(taking, turn);
}

extern "C" __global__ void check(const __grid_constant__ Taking taking, u32 touches, u32 wait) {
    u32 turn = load_weak(taking.state + blockIdx.x) + 1;
    if (touches) touch(taking, turn);
    if (wait) wait_for_prerequisite();
    count(taking.words, taking.each, turn, true, taking.result);
    acknowledge(taking, turn);
}
