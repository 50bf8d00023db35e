/* state/1: read and write ranges of a shard's segments and its step counter. For state dicts,
 * import and export. BOUND or UNBOUND with parked state; not poisoned. Values are fp32 in host
 * memory whatever the storage format. */
#ifndef MILLPOND_STATE_H_
#define MILLPOND_STATE_H_

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_STATE_1 "state/1"

typedef struct millpond_ext_state {
  millpond_header header; /* MILLPOND_TYPE_EXT_STATE */
  /* Copies `count` elements from element `begin` of a shard. Moments that do not exist yet read as
   * zeros. Segment MAIN of a moments-only shard: MILLPOND_E_ARGUMENT. */
  int32_t (*read)(millpond_store* store, uint64_t shard_id, uint32_t segment, uint64_t begin,
                  uint64_t count, float* values, millpond_status* status);
  /* The reverse. Writing moments makes them exist. Model parameters are not touched. With a scaled
   * storage format whole groups of 256 elements are re-encoded. */
  int32_t (*write)(millpond_store* store, uint64_t shard_id, uint32_t segment, uint64_t begin,
                   uint64_t count, const float* values, millpond_status* status);
  /* The shard's completed steps (bias correction of its next step uses the value + 1). */
  int32_t (*get_step)(millpond_store* store, uint64_t shard_id, uint64_t* step,
                      millpond_status* status);
  int32_t (*set_step)(millpond_store* store, uint64_t shard_id, uint64_t step,
                      millpond_status* status);
} millpond_ext_state;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_STATE_H_ */
