/* phase/1: give memory back between a trainer's phases. */
#ifndef MILLPOND_PHASE_H_
#define MILLPOND_PHASE_H_

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_PHASE_1 "phase/1"

#define MILLPOND_SUSPEND_HOST_TIER 1u /* also flush, empty and unmap the pinned host memory */

typedef struct millpond_ext_phase {
  millpond_header header; /* MILLPOND_TYPE_EXT_PHASE */
  /* Waits for what is in flight and gives device staging back through the host's free. While
   * suspended only save_to, get_extension, reports, destroy and resume work; other calls answer
   * MILLPOND_E_STATE. Suspending twice is OK. */
  int32_t (*suspend)(millpond_runtime* runtime, uint64_t flags, millpond_status* status);
  /* Takes the memory again. MILLPOND_E_MEMORY leaves the runtime suspended, to be tried again. */
  int32_t (*resume)(millpond_runtime* runtime, millpond_status* status);
} millpond_ext_phase;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_PHASE_H_ */
