/* What a host gives to the plugin: callbacks, and the pointers that a bind and a step need. */
#ifndef MILLPOND_HOST_H_
#define MILLPOND_HOST_H_

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MILLPOND_LOG_ERROR 0u
#define MILLPOND_LOG_WARNING 1u
#define MILLPOND_LOG_INFO 2u
#define MILLPOND_LOG_DEBUG 3u

/* Segments of a bucket, in file order. */
#define MILLPOND_SEGMENT_MAIN 0u
#define MILLPOND_SEGMENT_EXP_AVG 1u
#define MILLPOND_SEGMENT_EXP_AVG_SQ 2u

/* One run of one shard for the host's own Adam (arithmetic variant "host/1"). All pointers are fp32
 * host memory that the plugin owns, valid during the callback: updated in place, except grad.
 * `begin` is a multiple of 256 from the shard's start and the run ends at such a multiple or at the
 * shard's end, so an Adam whose vector body is at most 256 elements gives the same bits for the
 * pieces as for the whole shard. grad is widened to fp32; grad_scale is not yet applied. */
typedef struct millpond_update_piece {
  millpond_header header; /* MILLPOND_TYPE_UPDATE_PIECE, filled by the plugin */
  millpond_str uid;       /* the store's */
  uint64_t shard_id;
  uint64_t group_id;
  uint64_t begin; /* first element, in the shard */
  uint64_t count; /* elements */
  uint64_t step;  /* the step being taken, from 1 */
  float* main;    /* where the parameter is its own main: the parameter */
  float* exp_avg;
  float* exp_avg_sq;
  const float* grad;
  float grad_scale;  /* divide by it; 1 = none */
  uint32_t reserved; /* 0 */
} millpond_update_piece;

/* Callbacks. Every one is called on a thread that is inside an ABI call of this runtime, never on a
 * background thread, and must not call back into the runtime (MILLPOND_E_STATE). Every `answer` is
 * preset to MILLPOND_E_CALLBACK by the plugin: the callback writes MILLPOND_OK, or another code,
 * before it returns. Return values do not exist, so a foreign function interface that returns
 * garbage after an exception cannot be mistaken for success. NULL members mean "not offered". The
 * struct is copied by runtime_create; `context` must outlive the runtime. */
typedef struct millpond_host_api {
  millpond_header header; /* MILLPOND_TYPE_HOST_API */
  void* context;          /* handed back as the first argument of every callback */

  /* Device memory, stream-ordered on `stream`; alignment is a power of two. For CPU stores never
   * called. */
  void (*alloc)(void* context, uint64_t bytes, uint64_t alignment, millpond_stream stream,
                void** memory, int32_t* answer);
  void (*free)(void* context, void* memory, uint64_t bytes, millpond_stream stream,
               int32_t* answer);

  /* The given mains of these shards have been read into the store during bind: the host may free
   * them now. */
  void (*release_main)(void* context, millpond_str uid, const uint64_t* shard_ids, uint64_t count,
                       int32_t* answer);

  /* Writes `count` fp32 mains of a shard, from element `begin`, into the host's own parameter
   * layout. Called during step for shards that were bound without a model tensor. */
  void (*copy_main_to_model)(void* context, millpond_str uid, uint64_t shard_id, uint64_t begin,
                             const float* main, uint64_t count, int32_t* answer);

  /* The host's own Adam on one piece. Required for arithmetic "host/1", else unused. */
  void (*update)(void* context, const millpond_update_piece* piece, int32_t* answer);

  /* Every rank of the group gives `bytes` bytes and receives size * bytes, ordered by rank. Called
   * only inside the runtime's calls agree, save_begin, save_commit and load_commit, the same number
   * of times on every rank. Optional: without it, groups of more than one rank are refused. */
  void (*allgather)(void* context, millpond_group group, const void* send, void* receive,
                    uint64_t bytes, int32_t* answer);

  /* One line without a newline. Lines of background threads wait until the host's next call. */
  void (*log)(void* context, uint32_t level, millpond_str line);

  /* Long work: `what` is one of "bind", "save", "load", "refresh", "probe" (`done` of
   * `total` bytes) and "step" (tiles begun, of those with work). *cancel is preset to 0; a non-zero
   * value cancels the work with MILLPOND_E_CANCELLED; a cancelled step poisons its store. */
  void (*progress)(void* context, millpond_str what, uint64_t done, uint64_t total,
                   int32_t* cancel);
} millpond_host_api;

/* The pointers of one shard at bind; the element of bind_args.shards, joined with the profile's
 * Shard by shard_id. numel of each present tensor is flat_end - flat_begin of the profile. */
typedef struct millpond_shard_pointers {
  uint64_t shard_id;
  millpond_tensor
      model; /* read at bind and refresh, written by step; borrowed until unbind or the next bind.
                data NULL: an empty shard, or copy_main_to_model writes the parameter */
  millpond_tensor
      grad; /* read by step; borrowed likewise. data NULL: every step passes its address */
  millpond_tensor main; /* optional fp32: the mains to begin with. data NULL: mains := model widened
                           to fp32. Borrowed until release_main names it, or bind returns. Absent
                           for moments-only shards */
} millpond_shard_pointers;

typedef struct millpond_bind_args {
  millpond_header header; /* MILLPOND_TYPE_BIND_ARGS */
  const void* profile;    /* serialized millpond.v1.HostProfile (handshake.proto) */
  uint64_t profile_bytes;
  millpond_span shards; /* of millpond_shard_pointers, in the profile's order of shards */
  millpond_stream
      stream; /* device stores: the stream in whose order the given pointers are valid */
} millpond_bind_args;

/* A group's hyperparameters, read anew every step: the element of step_args.groups, joined by id.
 */
typedef struct millpond_group_step {
  uint64_t id;
  double lr;
  double beta1;
  double beta2;
  double eps;
  double weight_decay;
  uint32_t decoupled; /* 1: AdamW, 0: L2 Adam (g += weight_decay * p first) */
  uint32_t maximize;  /* 1: g = -g */
} millpond_group_step;

typedef struct millpond_step_args {
  millpond_header header; /* MILLPOND_TYPE_STEP_ARGS */
  uint64_t config_epoch;  /* must equal the bound profile's */
  millpond_span groups;   /* of millpond_group_step: every group of the profile, once, any order */
  const void* const*
      grads; /* by shard index, shard_count of them; NULL: those of the last bind or step */
  const millpond_dtype* dtypes; /* of the gradients, by shard index; NULL: as the profile says */
  const uint8_t*
      has_grad; /* by shard index, 0 or 1; NULL: every shard with a gradient pointer has one */
  uint64_t shard_count;   /* elements of the three arrays above; the number of bound shards */
  float grad_scale;       /* g is divided by it in the variant's precision; 1 = none */
  uint8_t found_inf;      /* 1: nothing moves, status.flags has MILLPOND_STATUS_SKIPPED */
  uint8_t reserved[3];    /* 0 */
  millpond_stream stream; /* gradients are ready, and parameters will be, in this stream's order */
} millpond_step_args;

typedef struct millpond_refresh_args {
  millpond_header header;    /* MILLPOND_TYPE_REFRESH_ARGS */
  const uint64_t* shard_ids; /* NULL with count 0: all */
  uint64_t count;
  millpond_stream stream; /* the models' values are ready in this stream's order */
} millpond_refresh_args;

#define MILLPOND_IO_BACKGROUND                                                                \
  1u                          /* save_to: return when later steps cannot change what is saved \
                               */
#define MILLPOND_IO_COMMIT 2u /* save_to: begin and commit as well (one rank, one store) */
#define MILLPOND_IO_FAIL_IF_BUSY \
  4u /* save_to: MILLPOND_E_BUSY at once instead of waiting for the save before */
#define MILLPOND_IO_STAGE 8u       /* load_from: verify and stage; load_commit installs */
#define MILLPOND_IO_KEEP_MODEL 16u /* load_from: do not write the model parameters */
#define MILLPOND_IO_INIT_FROM_MODEL \
  32u /* load_from: a directory without streamed state: mains := model, steps 0 */
#define MILLPOND_IO_CONVERT \
  64u /* load_from: other storage dtypes are converted instead of refused */

typedef struct millpond_io_args {
  millpond_header header; /* MILLPOND_TYPE_IO_ARGS */
  millpond_str path;      /* the checkpoint's base directory */
  millpond_str
      save_id; /* from save_begin; empty with the COMMIT flag; load: empty = the newest committed */
  uint64_t flags;         /* MILLPOND_IO_* */
  millpond_stream stream; /* as for refresh */
} millpond_io_args;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_HOST_H_ */
