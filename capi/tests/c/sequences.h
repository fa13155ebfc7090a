/* What random sequences of calls are made of: objects, numbers and memory, and what must hold. The
 * cases of `step` are made of the tables of the interface. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mcdnn.h"
#include "mcdnn_kiln.h"

enum { SLOTS = 12, ARRAYS = 12, ELEMENTS = 1 << 14, PLACE = 1 << 17, REGIONS = 32 };

/* Objects of a type: what was given for them, and whether they have not been destroyed: 1, or 2 of
 * a finalized descriptor. */
struct pool {
    void *key[SLOTS];
    int live[SLOTS];
    int kind[SLOTS];
};

static uint64_t state;
static unsigned long seed;
static const char *running = "nothing";
/* Whether numbers may be of any size; nothing is launched then. */
static int wild;
/* Whether the first object of a call is none. */
static int refused;
static long calls, taken, launched;
static char *device;
static int64_t arrays[ARRAYS][ELEMENTS];
static char places[ARRAYS][PLACE];
/* Of the tensors of a graph. */
static int rank = 3;

static uint64_t draw(uint64_t below)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545F4914F6CDD1DULL >> 16) % below;
}

static int one_in(uint64_t so_many) { return draw(so_many) == 0; }

static void contradicted(const char *what)
{
    printf("sequence %lu: %s: %s\n", seed, running, what);
    fflush(stdout);
    _exit(1);
}

static void crashed(int number)
{
    char text[256];
    int length =
        snprintf(text, sizeof(text), "sequence %lu: %s: signal %d\n", seed, running, number);
    length = (int)write(1, text, (size_t)length);
    _exit(2);
}

/* A number of things: mostly two. */
static int number(void)
{
    static const int few[] = {1, 1, 3, 4, 5, 8, 0, -1}, many[] = {7, 9, 64, 1000, 10000, -77};
    if (wild && one_in(6)) {
        return many[draw(sizeof(many) / sizeof(many[0]))];
    }
    return one_in(2) ? few[draw(one_in(4) ? 8 : 5)] : 2;
}

/* A number that no array goes with. */
static int any_number(void)
{
    static const int ends[] = {INT32_MAX, INT32_MIN, INT32_MAX - 7, 1 << 30};
    return wild && one_in(10) ? ends[draw(4)] : number();
}

static double real(void)
{
    static const double values[] = {0.0, 1.0, -1.0, 0.5, 1e-5, 1e300, -0.0, 0.25};
    const double zero = 0.0;
    return one_in(20) ? zero / (one_in(2) ? zero : 1.0) : values[draw(8)];
}

static size_t bytes(void)
{
    static const size_t sizes[] = {0, 1, 4, 64, 1000, PLACE};
    return wild && one_in(10) ? SIZE_MAX - draw(3) : sizes[one_in(3) ? draw(6) : 5];
}

/* A number of an enumeration: mostly the first one. */
static int member(const int *all, size_t count)
{
    static const int none[] = {-1, 99, INT32_MAX, INT32_MIN};
    return one_in(wild ? 8 : 40) ? none[draw(4)] : all[one_in(2) ? 0 : draw(count)];
}

/* Device memory, of its own for each of a call's parameters. */
static void *memory(int parameter)
{
    if (one_in(6)) {
        return NULL;
    }
    const int at = one_in(30) ? (int)draw(REGIONS) : parameter % REGIONS;
    return device + (size_t)at * PLACE + (one_in(30) ? draw(64) : 0);
}

/* An object of a type, or what is none. */
static void *object(struct pool *pools, int types, int type, int first)
{
    const int slot = (int)draw(one_in(3) ? SLOTS : 2);
    struct pool *own = &pools[type];
    if (!one_in(wild ? 8 : 60)) {
        refused |= first && !own->live[slot];
        return own->key[slot];
    }
    switch (draw(3)) {
    case 0:
        refused |= first;
        return NULL;
    case 1: {
        const int other = (int)draw((uint64_t)types);
        refused |= first && (other != type || !own->live[slot]);
        return pools[other].key[slot];
    }
    default:
        refused |= first;
        return (void *)(uintptr_t)(draw(1u << 31) << 8 | draw(32));
    }
}

/* Numbers to read, NULL at times. */
static void *numbers(int parameter, size_t size)
{
    if (one_in(25)) {
        return NULL;
    }
    for (int i = 0; i < 16; i++) {
        const int drawn = number();
        if (size == sizeof(int64_t)) {
            arrays[parameter][i] = drawn;
        } else {
            ((int *)arrays[parameter])[i] = drawn;
        }
    }
    return arrays[parameter];
}

/* A place for results, NULL at times. */
static void *place(int parameter) { return one_in(15) ? NULL : places[parameter]; }

/* What the elements of an attribute are. */
enum content {
    NUMBERS,
    DIMENSIONS,
    STRIDES,
    IDENTIFIERS,
    SIXTEEN,
    ONES,
    ZEROS,
    RANK,
    FLAG,
    FLOATS,
    DOUBLES,
    ADDRESSES,
    FRACTIONS,
    ENUMERATION,
    HANDLES,
    DESCRIPTORS
};

/* An attribute that a kind of descriptor has. */
struct attribute {
    const char *text;
    mcdnnBackendAttributeName_t name;
    mcdnnBackendAttributeType_t type;
    enum content content;
    /* Whether it has several elements. */
    int several;
    int required;
    /* The values of the enumeration, or the kinds of the descriptors. */
    const int *values;
    int count;
};

/* The descriptor in a slot of one of these kinds, or any. */
static void *descriptor_of(const struct pool *pool, const int *kinds, int count)
{
    const int from = (int)draw(SLOTS), whole = !one_in(60);
    for (int i = 0; i < SLOTS && !one_in(100); i++) {
        const int slot = (from + i) % SLOTS;
        for (int k = 0; k < count; k++) {
            if (pool->live[slot] > whole && pool->kind[slot] == kinds[k]) {
                return pool->key[slot];
            }
        }
    }
    return one_in(9) ? pool->key[from] : NULL;
}

/* Sets an attribute to what may be right; tells whether that was taken. */
static int set_attribute(void *own, const struct attribute *attribute, const struct pool *pools,
                         int handles, int descriptors)
{
    static const int64_t packed[] = {8, 4, 2, 1};
    static int64_t identifier;
    static union {
        int64_t whole[8];
        double doubles[8];
        void *pointers[8];
        int numbers[8];
        float floats[8];
        char flag;
        mcdnnFraction_t fractions[8];
    } of;
    int count = attribute->several ? one_in(60) ? 2 + (int)draw(3) : rank : 1;
    if (strstr(attribute->text, "CONVOLUTION_") != NULL ||
        strstr(attribute->text, "RESAMPLE_") != NULL) {
        count = attribute->several ? rank - 2 : 1;
    }
    memset(&of, 0, sizeof(of));
    if (attribute->content == ENUMERATION) {
        /* Types, modes: those that go together most of the time. */
        for (int i = 0; i < 4; i++) {
            of.numbers[i] = one_in(10) ? member(attribute->values, (size_t)attribute->count)
                                       : (int)draw(attribute->type == MCDNN_TYPE_DATA_TYPE ? 1 : 4);
        }
        return mcdnnBackendSetAttribute(own, attribute->name, attribute->type, 1, &of) == 0;
    }
    for (int i = 0; i < 4; i++) {
        switch (attribute->content) {
        case NUMBERS:
            of.whole[i] = number();
            break;
        case DIMENSIONS:
            of.whole[i] = one_in(15) ? number() : 2;
            break;
        case STRIDES:
            of.whole[i] = one_in(40) ? number() : packed[(i + 4 - rank) % 4];
            break;
        case IDENTIFIERS:
            of.whole[i] = one_in(20) ? number() : attribute->several ? i : identifier++ % 5;
            break;
        case SIXTEEN:
            of.whole[i] = one_in(30) ? number() : 16;
            break;
        case ONES:
            of.whole[i] = one_in(6) ? number() : 1;
            break;
        case ZEROS:
            of.whole[i] = one_in(6) ? number() : 0;
            break;
        case RANK:
            of.whole[i] = one_in(20) ? number() : 1;
            break;
        case FLAG:
            /* The memory of values in a pack is the host's: none where something may be launched.
             */
            of.flag = (char)(wild && one_in(6));
            break;
        case FLOATS:
            of.floats[i] = (float)real();
            break;
        case DOUBLES:
            of.doubles[i] = real();
            break;
        case ADDRESSES:
            of.pointers[i] = memory(i);
            break;
        case FRACTIONS:
            of.fractions[i].numerator = number();
            of.fractions[i].denominator = one_in(4) ? number() : 1;
            break;
        case ENUMERATION:
            break;
        case HANDLES:
            of.pointers[i] = pools[handles].key[draw(one_in(9) ? SLOTS : 1)];
            break;
        case DESCRIPTORS:
            of.pointers[i] =
                descriptor_of(&pools[descriptors], attribute->values, attribute->count);
            count = attribute->several ? 1 + (int)draw(2) : 1;
            break;
        }
    }
    return mcdnnBackendSetAttribute(own, attribute->name, attribute->type, count, &of) == 0;
}
