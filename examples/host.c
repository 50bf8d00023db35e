/* A host of Millpond in plain C11: no library but the C library's dlopen.
 *   cc -std=c11 -O2 -ffp-contract=off -I <prefix>/include host.c -o host -lm -ldl
 *   ./host <path of libmillpond.so> <an empty directory>
 *
 * It fits y = W x + b by Adam, W in bf16 with its state streamed through files, b in fp32 (its own
 * main: only its moments are streamed). Beside it runs an Adam of its own, the arithmetic
 * "torch_cpu_foreach/1" written out below, and every parameter must agree with it to the last bit
 * after every step, also across a save, a new runtime and a load. Exit code 0: they did. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "millpond/features.h"
#include "millpond/plugin.h"
#include "millpond/state.h"

enum { kIn = 24, kOut = 40, kWeights = kIn * kOut, kSteps = 60, kSaveAt = 25, kBatch = 16 };

/* ---- the handshake's messages, written by hand: a Protocol Buffers field is a key (field number
 * << 3 | wire type) and a varint (type 0) or a length and bytes (type 2) ---- */

typedef struct message {
  size_t length;
  unsigned char bytes[8184];
} message;

static void put_varint(message* m, uint64_t value) {
  for (; value >= 0x80; value >>= 7) m->bytes[m->length++] = (unsigned char)(value | 0x80);
  m->bytes[m->length++] = (unsigned char)value;
}
static void put_number(message* m, unsigned field, uint64_t value) {
  put_varint(m, (uint64_t)field << 3);
  put_varint(m, value);
}
static void put_bytes(message* m, unsigned field, const void* bytes, size_t length) {
  put_varint(m, (uint64_t)field << 3 | 2);
  put_varint(m, length);
  memcpy(m->bytes + m->length, bytes, length);
  m->length += length;
}
static void put_text(message* m, unsigned field, const char* text) {
  put_bytes(m, field, text, strlen(text));
}
/* The features of millpond/features.h: this host has none of them active. */
static void put_feature(message* profile, const char* name) {
  message feature = {0, {0}};
  put_text(&feature, 1, name);
  put_number(&feature, 2, 1); /* STATE_INACTIVE */
  put_bytes(profile, 9, feature.bytes, feature.length);
}
static void put_group(message* profile, uint64_t id, const char* key) {
  message group = {0, {0}};
  put_number(&group, 1, id);
  put_text(&group, 2, key);
  put_bytes(profile, 10, group.bytes, group.length);
}
static void put_shard(message* profile, uint64_t id, const char* key, uint64_t numel, int own_main,
                      millpond_dtype model) {
  message shard = {0, {0}};
  put_number(&shard, 1, id);
  put_text(&shard, 2, key);
  put_number(&shard, 3, numel); /* global_shape: one dimension */
  put_number(&shard, 4, 0);     /* box_offset: this rank has all of it */
  put_number(&shard, 5, numel); /* box_shape */
  put_number(&shard, 7, numel); /* flat_end; flat_begin is 0 */
  put_number(&shard, 8, id);    /* group_id: one group a shard here */
  put_number(&shard, 10, own_main ? 2 : 1);
  put_number(&shard, 11, model);
  put_number(&shard, 12, MILLPOND_DTYPE_FP32); /* gradients */
  put_number(&shard, 13, 1);                   /* STORAGE_DENSE, twice */
  put_number(&shard, 14, 1);
  put_number(&shard, 15, MILLPOND_DEVICE_CPU);
  put_bytes(profile, 11, shard.bytes, shard.length);
}

static void write_profile(message* profile) {
  message optimizer = {0, {0}};
  put_text(&optimizer, 1, "AdamW");
  put_number(&optimizer, 2, 1); /* FAMILY_ADAM */
  put_text(profile, 1, "plain C");
  put_bytes(profile, 5, optimizer.bytes, optimizer.length);
  put_text(profile, 6, "torch_cpu_foreach/1");
  put_number(profile, 8, 1); /* config_epoch */
#define PUT_FEATURE(since, must_evaluate, name, meaning) put_feature(profile, name);
  MILLPOND_FEATURES(PUT_FEATURE)
  put_group(profile, 0, "weights");
  put_group(profile, 1, "biases");
  put_shard(profile, 0, "W", kWeights, 0, MILLPOND_DTYPE_BF16);
  put_shard(profile, 1, "b", kOut, 1, MILLPOND_DTYPE_FP32);
}

/* ---- the model, and the Adam that Millpond must agree with ---- */

static uint16_t W[kWeights]; /* bf16: the upper half of an fp32 */
static float b[kOut], grad_W[kWeights], grad_b[kOut];
static float own_W[kWeights], own_b[kOut]; /* fp32 mains */
static float m_W[kWeights], v_W[kWeights], m_b[kOut], v_b[kOut];

static float widen(uint16_t value) {
  const uint32_t bits = (uint32_t)value << 16;
  float result;
  return *(float*)memcpy(&result, &bits, sizeof(result));
}
static uint16_t narrow(float value) { /* to nearest, ties to even; no NaN occurs here */
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

static void adam(float* p, float* m, float* v, const float* g, int count,
                 const millpond_group_step* group, int step) {
  const float decay = (float)(1 - group->lr * group->weight_decay);
  const float w = (float)(1 - group->beta1), c2 = (float)(1 - group->beta2);
  const float size = (float)(-group->lr / (1 - pow(group->beta1, step)));
  const float root = (float)pow(1 - pow(group->beta2, step), 0.5);
  for (int i = 0; i < count; ++i) {
    p[i] *= decay;
    m[i] = fmaf(w, g[i] - m[i], m[i]);
    v[i] = fmaf(c2 * g[i], g[i], v[i] * (float)group->beta2);
    p[i] += size * m[i] / (sqrtf(v[i]) / root + (float)group->eps);
  }
}
/* Gradients of the squared error on a batch that depends on the step alone; returns the error. */
static double forward_and_backward(int step) {
  double loss = 0;
  memset(grad_W, 0, sizeof(grad_W));
  memset(grad_b, 0, sizeof(grad_b));
  for (int n = 0; n < kBatch; ++n) {
    for (int o = 0; o < kOut; ++o) {
      float error = b[o] - (float)sin(o), x[kIn];
      for (int i = 0; i < kIn; ++i) {
        x[i] = (float)cos(1.7 * i + 0.31 * n + step);
        error += (widen(W[o * kIn + i]) - (float)sin(o + 2.0 * i)) * x[i];
      }
      loss += error * error / (kBatch * kOut);
      for (int i = 0; i < kIn; ++i) grad_W[o * kIn + i] += 2 * error * x[i] / kBatch;
      grad_b[o] += 2 * error / kBatch;
    }
  }
  return loss;
}

/* ---- driving the plugin ---- */

static const millpond_table_v1* mill;
static millpond_status status = {.header = {sizeof(millpond_status), MILLPOND_TYPE_STATUS}};

static void must(int32_t code, const char* what) {
  if (code == MILLPOND_OK) return;
  fprintf(stderr, "%s: error %d: %s\n", what, code, status.message);
  exit(1);
}
static millpond_str str(const char* text) { return (millpond_str){text, strlen(text)}; }
static millpond_tensor dense(void* data, uint64_t numel, millpond_dtype dtype) {
  return (millpond_tensor){data, 0, numel, MILLPOND_DEVICE_CPU, 0, dtype, 0};
}
static void log_line(void* context, uint32_t level, millpond_str line) {
  fprintf(context, "millpond %u: %.*s\n", level, (int)line.len, line.ptr);
}

static millpond_store* open_store(const char* directory, millpond_runtime** runtime) {
  char options[4096];
  snprintf(options, sizeof(options), "{\"scratch\": \"%s\", \"host_memory_bytes\": 16777216}",
           directory);
  const millpond_host_api host = {
      .header = {sizeof(host), MILLPOND_TYPE_HOST_API}, .context = stderr, .log = log_line};
  millpond_store* store;
  must(mill->runtime_create(&host, str(options), runtime, &status), "runtime_create");
  must(mill->create(*runtime, str("rank00000/opt0_0"), &store, &status), "create");
  message profile = {0, {0}};
  write_profile(&profile);
  const millpond_shard_pointers shards[2] = {
      {0, dense(W, kWeights, MILLPOND_DTYPE_BF16), dense(grad_W, kWeights, MILLPOND_DTYPE_FP32),
       dense(NULL, 0, MILLPOND_DTYPE_NONE)},
      {1, dense(b, kOut, MILLPOND_DTYPE_FP32), dense(grad_b, kOut, MILLPOND_DTYPE_FP32),
       dense(NULL, 0, MILLPOND_DTYPE_NONE)}};
  const millpond_bind_args args = {.header = {sizeof(args), MILLPOND_TYPE_BIND_ARGS},
                                   .profile = profile.bytes,
                                   .profile_bytes = profile.length,
                                   .shards = {shards, 2, sizeof(shards[0])},
                                   .stream = {MILLPOND_DEVICE_CPU, 0, 0}};
  must(mill->bind(store, &args, NULL, &status), "bind");
  return store;
}

static void take_step(millpond_store* store, int step) {
  const double lr = 0.05 / (1 + 0.02 * step); /* read anew every step */
  const millpond_group_step groups[2] = {{0, lr, 0.9, 0.95, 1e-8, 0.01, 1, 0},
                                         {1, 2 * lr, 0.9, 0.95, 1e-8, 0, 1, 0}};
  const millpond_step_args args = {.header = {sizeof(args), MILLPOND_TYPE_STEP_ARGS},
                                   .config_epoch = 1,
                                   .groups = {groups, 2, sizeof(groups[0])},
                                   .shard_count = 2,
                                   .grad_scale = 1,
                                   .stream = {MILLPOND_DEVICE_CPU, 0, 0}};
  must(mill->step(store, &args, &status), "step");
  adam(own_W, m_W, v_W, grad_W, kWeights, &groups[0], step);
  adam(own_b, m_b, v_b, grad_b, kOut, &groups[1], step);
  for (int i = 0; i < kWeights; ++i) {
    if (W[i] == narrow(own_W[i])) continue;
    fprintf(stderr, "step %d: W[%d] is %04x, wanted %04x\n", step, i, W[i], narrow(own_W[i]));
    exit(1);
  }
  if (memcmp(b, own_b, sizeof(b)) != 0) must(MILLPOND_E_INTERNAL, "b differs");
}

int main(int argc, char** argv) {
  if (argc != 3) return fprintf(stderr, "usage: host LIBMILLPOND.SO DIRECTORY\n"), 2;
  void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
  millpond_open_v1_fn open_v1;
  *(void**)&open_v1 = dlsym(library, "millpond_open_v1");
  mill = open_v1 == NULL ? NULL : open_v1(MILLPOND_ABI_MINOR, &status);
  if (mill == NULL) return fprintf(stderr, "no table: %s\n", status.message), 1;

  double first = 0, last = 0;
  millpond_runtime* runtime;
  millpond_store* store = open_store(argv[2], &runtime);
  char save[4096];
  snprintf(save, sizeof(save), "%s/checkpoint", argv[2]);
  const millpond_io_args io = {.header = {sizeof(io), MILLPOND_TYPE_IO_ARGS},
                               .path = str(save),
                               .flags = MILLPOND_IO_COMMIT,
                               .stream = {MILLPOND_DEVICE_CPU, 0, 0}};
  for (int step = 1; step <= kSteps; ++step) {
    last = forward_and_backward(step);
    first = step == 1 ? last : first;
    take_step(store, step);
    if (step != kSaveAt) continue;
    must(mill->save_to(store, &io, &status), "save_to");
    must(mill->runtime_destroy(runtime, &status), "runtime_destroy");
    memset(W, 0, sizeof(W)); /* comes back from the checkpoint; b is its own main: ours to save */
    store = open_store(argv[2], &runtime);
    millpond_io_args load = io;
    load.flags = 0;
    must(mill->load_from(store, &load, &status), "load_from");
  }
  const millpond_ext_state* state = mill->get_extension(runtime, str(MILLPOND_EXT_STATE_1));
  float main_W[kWeights];
  must(state->read(store, 0, MILLPOND_SEGMENT_MAIN, 0, kWeights, main_W, &status), "state/1 read");
  if (memcmp(main_W, own_W, sizeof(main_W)) != 0) must(MILLPOND_E_INTERNAL, "mains differ");
  must(mill->destroy(store, &status), "destroy");
  must(mill->runtime_destroy(runtime, &status), "runtime_destroy");
  printf("%d steps, %d parameters: squared error %.4f -> %.6f, every bit as our own Adam has it\n",
         kSteps, kWeights + kOut, first, last);
  return last < first / 20 ? 0 : 1;
}
