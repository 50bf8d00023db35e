/* Millpond C ABI: versions, plain types, status. C11 and C++; depends on <stdint.h> only.
 *
 * Rules that hold for every struct and function of this ABI
 *  - Fixed-width fields, no implicit padding, no enum or bool fields, no varargs, little endian,
 * 64-bit pointers.
 *  - A growable struct begins with `millpond_header`. The filler sets `size` to sizeof of the
 * struct *it* was compiled with and `type` to the constant named beside the struct. The reader
 * zero-fills what is missing and refuses a non-zero byte beyond what it knows
 * (MILLPOND_E_UNKNOWN_TAIL). Structs grow at their end only.
 *  - An element of an array has no header: the span's `stride` is the size that the filler knows,
 * same rules.
 *  - Who allocates frees. Nothing allocated on one side is freed on the other.
 *  - Strings are UTF-8, pointer and length, not terminated. An absent string is {NULL, 0}.
 *  - Pointers passed in are borrowed until the call returns unless the function says longer.
 */
#ifndef MILLPOND_BASE_H_
#define MILLPOND_BASE_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Major: any incompatible change. Minor: tail fields, table entries, features, options (CHANGELOG,
 * one entry each). */
#define MILLPOND_ABI_MAJOR 1u
#define MILLPOND_ABI_MINOR 0u

typedef struct millpond_header {
  uint32_t size; /* bytes of the whole struct as the filler knows it */
  uint32_t type; /* MILLPOND_TYPE_* */
} millpond_header;

#define MILLPOND_TYPE_STATUS 1u
#define MILLPOND_TYPE_IDENTITY 2u
#define MILLPOND_TYPE_TABLE_V1 3u
#define MILLPOND_TYPE_HOST_API 4u
#define MILLPOND_TYPE_BIND_ARGS 5u
#define MILLPOND_TYPE_STEP_ARGS 6u
#define MILLPOND_TYPE_REFRESH_ARGS 7u
#define MILLPOND_TYPE_IO_ARGS 8u
#define MILLPOND_TYPE_UPDATE_PIECE 9u
#define MILLPOND_TYPE_EXT_REPORT 32u
#define MILLPOND_TYPE_EXT_CHECKPOINT 33u
#define MILLPOND_TYPE_EXT_STATE 34u
#define MILLPOND_TYPE_EXT_FILES 35u
#define MILLPOND_TYPE_EXT_PROBE 36u
#define MILLPOND_TYPE_EXT_PHASE 37u
#define MILLPOND_TYPE_STEP_FIGURES 48u
#define MILLPOND_TYPE_PLAN_FIGURES 49u
#define MILLPOND_TYPE_RUNTIME_FIGURES 50u
#define MILLPOND_TYPE_SAVE_PROGRESS 51u

typedef struct millpond_str {
  const char* ptr;
  uint64_t len; /* bytes */
} millpond_str;

/* An array whose elements may be larger than the reader knows. count == 0 allows ptr == NULL. */
typedef struct millpond_span {
  const void* ptr;
  uint64_t count;
  uint64_t stride; /* bytes from one element to the next; at least the first minor's size of the
                      element */
} millpond_span;

/* Devices by DLPack's numbering: 1 CPU, 2 CUDA, 3 CUDA pinned host memory. */
#define MILLPOND_DEVICE_CPU 1
#define MILLPOND_DEVICE_CUDA 2
#define MILLPOND_DEVICE_CUDA_HOST 3

/* A stream to be ordered after and before. CUDA handles as in DLPack and the array API: 0 is
 * illegal (ambiguous), 1 the legacy default stream, 2 the per-thread default stream, else a
 * cudaStream_t. On the CPU the handle is 0. */
typedef struct millpond_stream {
  int32_t device_type;
  int32_t device_id;
  uint64_t handle;
} millpond_stream;

/* DLDataType packed little endian: code | bits << 8 | lanes << 16. Codes: 2 float, 4 bfloat, 10
 * e4m3fn, 12 e5m2. */
typedef uint32_t millpond_dtype;
#define MILLPOND_DTYPE_NONE 0u
#define MILLPOND_DTYPE_FP32 (2u | 32u << 8 | 1u << 16)
#define MILLPOND_DTYPE_FP16 (2u | 16u << 8 | 1u << 16)
#define MILLPOND_DTYPE_BF16 (4u | 16u << 8 | 1u << 16)

/* A dense flat run of elements; DLPack's field meanings. The first element is at data +
 * byte_offset. */
typedef struct millpond_tensor {
  void* data; /* NULL: absent (allowed where numel is 0 or the field says so) */
  uint64_t byte_offset;
  uint64_t numel;
  int32_t device_type;
  int32_t device_id;
  millpond_dtype dtype;
  uint32_t reserved; /* 0 */
} millpond_tensor;

/* A group of ranks, named by a token that means something to the host's allgather only. A group of
 * one: {0, 0, 1}. */
typedef struct millpond_group {
  uint64_t token;
  uint32_t rank; /* this process in the group */
  uint32_t size; /* ranks in the group, at least 1 */
} millpond_group;

/* ---- status
 * ------------------------------------------------------------------------------------------------------
 */

/* Codes are stable; new ones are added at the end. Every function returns the code that it also
 * puts in the status. */
#define MILLPOND_OK 0
#define MILLPOND_E_ARGUMENT 1 /* a bad field: `field` names it */
#define MILLPOND_E_UNKNOWN_TAIL \
  2 /* a struct has non-zero bytes that this side does not know: upgrade the plugin */
#define MILLPOND_E_VERSION 3 /* no common major, or a minor that cannot be served */
#define MILLPOND_E_OPTION \
  4 /* options: unknown key, bad value; the message suggests the nearest known key */
#define MILLPOND_E_STATE 5 /* the call is not legal in the store's present state */
#define MILLPOND_E_REFUSED                                                                         \
  6                            /* the guard refused the profile; the BindReport lists every reason \
                                */
#define MILLPOND_E_IO 7        /* the operating system refused or cut an I/O operation */
#define MILLPOND_E_NO_SPACE 8  /* ENOSPC or EDQUOT; wanted and got are bytes */
#define MILLPOND_E_TIMEOUT 9   /* an I/O or a peer did not answer within io_timeout_s */
#define MILLPOND_E_CORRUPT 10  /* a checksum, digest, size or structure on disk is wrong */
#define MILLPOND_E_MISSING 11  /* no checkpoint, or a rank, file or parameter is absent from it */
#define MILLPOND_E_MISMATCH 12 /* checkpoint and live store differ: key, shape, dtype, topology */
#define MILLPOND_E_POISONED \
  13 /* an earlier failure left the store half done: load_from makes it well */
#define MILLPOND_E_MEMORY 14    /* host or device memory could not be had */
#define MILLPOND_E_DEVICE 15    /* CUDA said no: native holds the code */
#define MILLPOND_E_CALLBACK 16  /* a host callback failed or left its answer unset */
#define MILLPOND_E_CANCELLED 17 /* the host's progress callback cancelled */
#define MILLPOND_E_BUSY 18 /* a save is still being written, or another thread is inside a call */
#define MILLPOND_E_FORKED                                                 \
  19 /* the caller is a forked child of the process that made the runtime \
      */
#define MILLPOND_E_UNSUPPORTED 20 /* declared, not there yet in this version */
#define MILLPOND_E_PEER 21        /* another rank failed; the message names it and its code */
#define MILLPOND_E_LEAKED 22      /* destroy gave up on buffers that the kernel still owns */
#define MILLPOND_E_INTERNAL 23    /* a bug of Millpond: please report the message */

#define MILLPOND_NATIVE_NONE 0u
#define MILLPOND_NATIVE_ERRNO 1u
#define MILLPOND_NATIVE_CUDA 2u

#define MILLPOND_STATUS_POISONED 1u /* flags: the store is (now or since earlier) poisoned */
#define MILLPOND_STATUS_SKIPPED \
  2u /* flags: step did nothing, because found_inf was set; code is MILLPOND_OK */

/* Caller-allocated, 1024 bytes. The caller fills header; the plugin writes everything else on every
 * return. A NULL status is allowed where only the code matters. offset, wanted, got are UINT64_MAX
 * where they mean nothing. */
typedef struct millpond_status {
  millpond_header header; /* {sizeof(millpond_status), MILLPOND_TYPE_STATUS} */
  int32_t code;           /* MILLPOND_OK or MILLPOND_E_* */
  int32_t native;         /* errno or cudaError_t; 0 when none */
  uint32_t native_kind;   /* MILLPOND_NATIVE_* */
  uint32_t flags;         /* MILLPOND_STATUS_* */
  uint64_t offset;        /* bytes in the file, or index in the array, that the message speaks of */
  uint64_t wanted;
  uint64_t got;
  char field[80];    /* zero-terminated: the offending field, option or feature, e.g.
                        "step_args.groups[1].beta2" */
  char message[896]; /* zero-terminated: operation, path, offset, wanted, got, and what to do */
} millpond_status;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_BASE_H_ */
