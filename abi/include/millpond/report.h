/* report/1: figures of the last step, the plan, and the runtime's memory. Threads and states: any
 * state, also poisoned, suspended and unbound (then zeros). Filling structs: the caller sets
 * header; the plugin writes as much as the caller knows. */
#ifndef MILLPOND_REPORT_H_
#define MILLPOND_REPORT_H_

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_REPORT_1 "report/1"

#define MILLPOND_STAGE_FETCH 0u
#define MILLPOND_STAGE_UPLOAD 1u
#define MILLPOND_STAGE_UPDATE 2u
#define MILLPOND_STAGE_DOWNLOAD 3u
#define MILLPOND_STAGE_FLUSH 4u
#define MILLPOND_STAGES 5u

#define MILLPOND_STEP_NONE 0u /* no step yet */
#define MILLPOND_STEP_DONE 1u
#define MILLPOND_STEP_SKIPPED 2u
#define MILLPOND_STEP_FAILED 3u

typedef struct millpond_step_figures {
  millpond_header header;   /* MILLPOND_TYPE_STEP_FIGURES */
  uint32_t outcome;         /* MILLPOND_STEP_* */
  uint32_t bound_by;        /* MILLPOND_STAGE_*: the stage that the step waited for longest */
  uint64_t step;            /* completed steps of this store, skipped ones not counted */
  uint64_t tiles;           /* tiles with work in this step */
  uint64_t tiles_from_tier; /* of these, found in the host tier */
  uint64_t bytes_read;      /* from scratch files, for this step, padding included */
  uint64_t bytes_written; /* to scratch files, caused by this step (also those still on their way at
                             return) */
  uint64_t bytes_from_tier;  /* that a read would have cost without the tier */
  double seconds;            /* wall time inside step */
  double busy_seconds[5];    /* by stage: time in which the stage had work */
  double waiting_seconds[5]; /* by stage: time in which the step could do nothing but wait for the
                                stage */
} millpond_step_figures;

typedef struct millpond_plan_figures {
  millpond_header header; /* MILLPOND_TYPE_PLAN_FIGURES */
  uint64_t shards;
  uint64_t elements; /* of all shards */
  uint64_t buckets;
  uint64_t tiles; /* T */
  uint64_t tile_elements;
  uint64_t block_elements;
  uint64_t tile_bytes;  /* of a place in the host tier */
  uint64_t state_bytes; /* all segments, padding included */
  uint64_t tier_tiles;  /* K: tiles of this store that stay in the tier between steps */
} millpond_plan_figures;

typedef struct millpond_runtime_figures {
  millpond_header header; /* MILLPOND_TYPE_RUNTIME_FIGURES */
  uint64_t host_bytes;    /* the pinned region: ring and tier together, to the byte */
  uint64_t host_places;   /* tiles that fit it */
  uint64_t ring_places;   /* of these, the pipeline's ring */
  uint64_t device_bytes;  /* staging taken through alloc or cudaMalloc */
  uint64_t scratch_bytes; /* reserved in all scratch directories */
  uint64_t leaked_bytes;  /* buffers given up to the kernel */
  char engine[24];        /* "io_uring", "io_uring_plain", "threads", zero-terminated */
  uint32_t direct;        /* 1: O_DIRECT in every scratch directory */
  uint32_t update_threads;
} millpond_runtime_figures;

typedef struct millpond_ext_report {
  millpond_header header; /* MILLPOND_TYPE_EXT_REPORT */
  int32_t (*last_step)(millpond_store* store, millpond_step_figures* figures,
                       millpond_status* status);
  int32_t (*plan)(millpond_store* store, millpond_plan_figures* figures, millpond_status* status);
  int32_t (*runtime)(millpond_runtime* runtime, millpond_runtime_figures* figures,
                     millpond_status* status);
} millpond_ext_report;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_REPORT_H_ */
