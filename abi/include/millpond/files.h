/* files/1: checkpoint directories without a store. One implementation for the command line and for
 * Python. Needs no device. Results are JSON documents through `sink`.
 *
 * Requests are JSON objects. "path" is a checkpoint's base directory; "save_id" of one of its saves
 * may be left out: the newest. "to" is a base directory that gets a new save, or an export.
 *
 *   inspect           {path, save_id}                  from COMMIT.json and manifests alone
 *   verify            {path, save_id}                  every block; the first bad one is the status
 *   reshard           {path, save_id, to, world_size}  equal ranges of every parameter
 *   import_reference  {path, layout, to}               layout: JSON text of names and ranges
 *   export_reference  {path, save_id, layout, to}      (plugin/files/reference_layout.h)
 *   diff              {path, save_id, other, other_save_id}
 *
 * A save that fails or is cancelled leaves nothing in "to" that counts. */
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
 * the result goes to `sink`. runtime may be NULL; else its host's progress is told of "files". */
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
