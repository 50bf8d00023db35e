/* probe/1: what this machine and a directory can do, and the ceilings that a step is measured
 * against. In this version every entry answers MILLPOND_E_UNSUPPORTED. Results are JSON documents
 * through `sink`. */
#ifndef MILLPOND_PROBE_H_
#define MILLPOND_PROBE_H_

#include "files.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_PROBE_1 "probe/1"

typedef struct millpond_ext_probe {
  millpond_header header;    /* MILLPOND_TYPE_EXT_PROBE */
  millpond_files_fn machine; /* memory, limits, engines, devices */
  millpond_files_fn
      directory; /* O_DIRECT, O_TMPFILE, reflink, free space of the directory in the request */
  millpond_files_fn ceilings; /* drive, memory and PCIe rates, measured now */
} millpond_ext_probe;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_PROBE_H_ */
