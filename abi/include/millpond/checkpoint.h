/* checkpoint/1: a save of several stores and ranks that counts as one. The order on every rank of
 * the group:
 *
 *   save_begin(group) -> save_to(store, save_id) for each store -> wait -> save_commit(group)
 *
 * Runtime calls: every rank of the group takes part, also one that has failed or has no store. Each
 * does a fixed number of allgather rounds: save_begin 1, save_commit 2, load_commit 1 (none where
 * the group has one rank). Where that round told all ranks so, load_commit takes more: one because
 * their newest saves differ, two because not every saved store is taken whole by one of its name.
 */
#ifndef MILLPOND_CHECKPOINT_H_
#define MILLPOND_CHECKPOINT_H_

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_CHECKPOINT_1 "checkpoint/1"

/* 32 lower-case hexadecimal digits (128 random bits made by rank 0) and a zero. save_begin: zeros
 * on input, or digits that the host has chosen (rank 0's count), for hosts that write the id
 * elsewhere before they begin; one that the directory has already is MILLPOND_E_ARGUMENT. */
typedef struct millpond_save_id {
  char text[40];
} millpond_save_id;

#define MILLPOND_SAVE_NONE 0u
#define MILLPOND_SAVE_WRITING 1u
#define MILLPOND_SAVE_WRITTEN 2u
#define MILLPOND_SAVE_FAILED 3u

typedef struct millpond_save_progress {
  millpond_header header; /* MILLPOND_TYPE_SAVE_PROGRESS */
  uint32_t state;         /* MILLPOND_SAVE_* of the store's last save */
  uint32_t reserved;
  uint64_t bytes_done;
  uint64_t bytes_total;
} millpond_save_progress;

typedef struct millpond_ext_checkpoint {
  millpond_header header; /* MILLPOND_TYPE_EXT_CHECKPOINT */
  /* Agrees on the save's name. Waits for saves of the runtime that are still being written (one
   * that was begun and never committed is cancelled). Leftovers of killed attempts under `path` are
   * reclaimed (a save_to with the COMMIT flag does that in the background). One base directory
   * belongs to one job. */
  int32_t (*save_begin)(millpond_runtime* runtime, millpond_group group, millpond_str path,
                        millpond_save_id* save_id, millpond_status* status);
  /* Progress of the store's newest save; never blocks. */
  int32_t (*poll)(millpond_store* store, millpond_save_progress* progress, millpond_status* status);
  /* Until the store's newest save is written (with the COMMIT flag: counts), or failed (then its
   * status). The host's progress callback is called meanwhile. */
  int32_t (*wait)(millpond_store* store, millpond_status* status);
  /* Gives up the store's save in flight; what it wrote is removed, the store is as it was. Returns
   * when that is done. OK when there is none. From any thread. */
  int32_t (*cancel)(millpond_store* store, millpond_status* status);
  /* Waits for the stores' saves, then COMMIT.json's rename, if every rank wrote all of its stores;
   * else nothing counts and every rank gets the same verdict. The older save ids under `path` are
   * removed afterwards. */
  int32_t (*save_commit)(millpond_runtime* runtime, millpond_group group, millpond_str save_id,
                         millpond_status* status);
  /* Installs what load_from with MILLPOND_IO_STAGE staged, on all stores of all ranks or on none.
   * Where ranks staged different saves, because the host named none and their node-local
   * directories differ, the newest that all have is staged instead. MILLPOND_E_MISMATCH also where
   * the save has a parameter that none of the ranks has. */
  int32_t (*load_commit)(millpond_runtime* runtime, millpond_group group, millpond_status* status);
} millpond_ext_checkpoint;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_CHECKPOINT_H_ */
