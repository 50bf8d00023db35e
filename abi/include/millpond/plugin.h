/* The two exports of libmillpond.so and the version 1 table. The order of calls:
 *
 *   dlopen -> millpond_plugin_identity() -> millpond_open_v1(minor) -> runtime_create -> create ->
 * bind
 *     -> { step -> agree }* , save_to, load_from, refresh_main, get_extension ... -> destroy ->
 * runtime_destroy
 *
 * Threads: one thread at a time may be inside the calls of a runtime and its stores; a second one
 * waits. A call from inside a callback is refused (MILLPOND_E_STATE), a call in a forked child too
 * (MILLPOND_E_FORKED). Different runtimes are independent. No call of a store communicates; runtime
 * calls that take a group do, in a fixed number of rounds.
 *
 * Store states: UNBOUND (possibly with parked state of an earlier bind), BOUND; and beside them
 * POISONED (an earlier failure left files half written: step, save_to and refresh_main answer
 * MILLPOND_E_POISONED until load_from succeeds) and SUSPENDED (phase/1: only save_to,
 * get_extension, reports, destroy and resume work). */
#ifndef MILLPOND_PLUGIN_H_
#define MILLPOND_PLUGIN_H_

#include "base.h"
#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#error "Millpond is for Linux"
#endif
#define MILLPOND_EXPORT __attribute__((visibility("default")))

/* ---- identity: frozen across all majors
 * --------------------------------------------------------------------------- */

#define MILLPOND_MAGIC 0x444e4f504c4c494dull /* "MILLPOND" read as little-endian bytes */

typedef struct millpond_identity {
  uint64_t magic;
  millpond_header header; /* MILLPOND_TYPE_IDENTITY */
  uint32_t major_min;     /* majors that this file serves: millpond_open_v<major> exists for each */
  uint32_t major_max;
  uint32_t minor;        /* of major_max */
  uint8_t pointer_bytes; /* 8 */
  uint8_t little_endian; /* 1 */
  uint8_t reserved[2];
  uint8_t layout_digest[32];  /* SHA-256 of the golden layout text, abi/layout.golden */
  const char* name;           /* "millpond", zero-terminated like the two below; static */
  const char* version;        /* of the package, "0.1.0" */
  const char* build_id;       /* what was built: compiler, flags, CUDA or none */
  const void* descriptor_set; /* serialized google.protobuf.FileDescriptorSet of handshake.proto */
  uint64_t descriptor_set_bytes;
} millpond_identity;

/* Any thread, any time, also before anything else. The data is static. */
MILLPOND_EXPORT const millpond_identity* millpond_plugin_identity(void);
typedef const millpond_identity* (*millpond_plugin_identity_fn)(void);

/* ---- the table
 * -----------------------------------------------------------------------------------------------------
 */

typedef struct millpond_runtime millpond_runtime; /* opaque */
typedef struct millpond_store millpond_store;     /* opaque; belongs to one runtime */

typedef struct millpond_table_v1 {
  millpond_header header; /* MILLPOND_TYPE_TABLE_V1; entries beyond `size` do not exist */
  uint32_t minor;         /* negotiated: min(host's, plugin's) */
  uint32_t reserved;

  /* `host` is copied. `options_json` is one JSON object (README lists the keys); unknown keys are
   * refused with the nearest known name. Creates no files. On failure *runtime is NULL. */
  int32_t (*runtime_create)(const millpond_host_api* host, millpond_str options_json,
                            millpond_runtime** runtime, millpond_status* status);

  /* Destroys the stores as well. Never hangs: buffers that the kernel still owns after io_timeout_s
   * are leaked and reported as MILLPOND_E_LEAKED. The handle is invalid afterwards whatever the
   * answer. NULL is allowed. */
  int32_t (*runtime_destroy)(millpond_runtime* runtime, millpond_status* status);

  /* `uid` is the store's name on this rank: [A-Za-z0-9_/.-], at most 128 bytes, no empty, "." or
   * ".." component, unique in the runtime; "rank00000/opt0_0" by convention. */
  int32_t (*create)(millpond_runtime* runtime, millpond_str uid, millpond_store** store,
                    millpond_status* status);

  /* Legal in every state. Scratch files go. The handle is invalid afterwards. NULL is allowed. */
  int32_t (*destroy)(millpond_store* store, millpond_status* status);

  /* UNBOUND or BOUND -> BOUND, or UNBOUND on any failure. Judges the profile, plans buckets and
   * tiles, reserves space for scratch files, writes mains (from `main` where given, else from
   * `model`). A bind over an older one, or over parked state, keeps mains, moments and counters of
   * every shard whose identity (key, global shape, box, flat range, kind) is unchanged. A refused
   * bind parks the state: step answers MILLPOND_E_STATE, save_to and a later accepted bind still
   * find it. `report` receives a serialized millpond.v1.BindReport in every case in which the guard
   * judged; it is owned by the store and valid until its next bind or destroy. report may be NULL.
   */
  int32_t (*bind)(millpond_store* store, const millpond_bind_args* args, millpond_str* report,
                  millpond_status* status);

  /* BOUND -> UNBOUND with parked state; the host's pointers are no longer used. */
  int32_t (*unbind)(millpond_store* store, millpond_status* status);

  /* BOUND. One optimizer step. Returns when every model parameter is updated in the order of
   * args.stream; writing to the drive may go on, and a failure of it is told by the next call. A
   * failure after anything was written poisons the store. Arguments are checked before anything
   * moves: MILLPOND_E_ARGUMENT changes nothing. */
  int32_t (*step)(millpond_store* store, const millpond_step_args* args, millpond_status* status);

  /* Any state. One allgather round: the worst status of any store of any rank since the last agree.
   * On a failure anywhere every store of the runtime on every rank of the group is poisoned, and
   * the status names the rank. Call it on every rank after its last store's step and before
   * parameters are gathered. A group of one does no round. */
  int32_t (*agree)(millpond_runtime* runtime, millpond_group group, millpond_status* status);

  /* BOUND. mains := model parameters widened to fp32, for all shards or those named. Moments and
   * counters stay. */
  int32_t (*refresh_main)(millpond_store* store, const millpond_refresh_args* args,
                          millpond_status* status);

  /* BOUND, or UNBOUND with parked state. Writes one store of a checkpoint. With the BACKGROUND flag
   * it returns when later steps cannot change what is saved, in a time that does not depend on the
   * state's size; poll and wait (checkpoint/1) tell of the rest. Waits for the store's save before,
   * or answers MILLPOND_E_BUSY where asked to. Reserves another set of scratch files first:
   * MILLPOND_E_NO_SPACE has changed nothing. What it wrote counts only after save_commit
   * (checkpoint/1) or with the COMMIT flag. A failed save leaves the live store and older
   * checkpoints as they were. */
  int32_t (*save_to)(millpond_store* store, const millpond_io_args* args, millpond_status* status);

  /* BOUND, also POISONED. Verifies everything into new files first, then installs: mains, moments
   * and counters become the checkpoint's, model parameters the rounded mains. A refusal changes
   * nothing. */
  int32_t (*load_from)(millpond_store* store, const millpond_io_args* args,
                       millpond_status* status);

  /* `name` is "report/1", ... . Returns a table that begins with millpond_header and lives as long
   * as the process, or NULL if this version does not have it. runtime may be NULL. Any thread. */
  const void* (*get_extension)(millpond_runtime* runtime, millpond_str name);
} millpond_table_v1;

/* Negotiates. `host_minor` is the MILLPOND_ABI_MINOR the host was compiled with. The table is
 * static per minor and valid until the process ends; the library is never unloaded. NULL with a
 * reason in `status` if it cannot be served. */
MILLPOND_EXPORT const millpond_table_v1* millpond_open_v1(uint32_t host_minor,
                                                          millpond_status* status);
typedef const millpond_table_v1* (*millpond_open_v1_fn)(uint32_t host_minor,
                                                        millpond_status* status);

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_PLUGIN_H_ */
