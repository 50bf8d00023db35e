/* files/1: checkpoint directories without a store. One implementation for the command line and for
 * Python. In this version every entry answers MILLPOND_E_UNSUPPORTED. Results are JSON documents
 * through `sink`. */
#ifndef MILLPOND_FILES_H_
#define MILLPOND_FILES_H_

#include "plugin.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_FILES_1 "files/1"

/* Receives the result, in pieces, on the calling thread. */
typedef void (*millpond_sink_fn)(void* context, millpond_str piece);

/* One operation on checkpoint directories: `request_json` says what (keys by operation, README),
 * the result goes to `sink`. runtime gives log, progress and options. */
typedef int32_t (*millpond_files_fn)(millpond_runtime* runtime, millpond_str request_json,
                                     millpond_sink_fn sink, void* context, millpond_status* status);

typedef struct millpond_ext_files {
  millpond_header header; /* MILLPOND_TYPE_EXT_FILES */
  millpond_files_fn inspect;
  millpond_files_fn verify;
  millpond_files_fn reshard;
  millpond_files_fn import_reference;
  millpond_files_fn export_reference;
  millpond_files_fn diff;
} millpond_ext_files;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_FILES_H_ */
