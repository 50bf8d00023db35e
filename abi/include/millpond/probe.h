/* probe/1: what this machine and a directory can do, and the ceilings that a step is measured
 * against. `runtime` may be NULL: then there is no log and no progress, and what the runtime's
 * options would say has the options' defaults. With one, the call takes its turn like any other,
 * and progress ("probe") may cancel it. Any state.
 *
 * A request is a JSON object, or empty; all keys are optional, an unknown one is refused. The
 * answer is one JSON object in one piece; later versions may add keys. `checks` are lists of
 * {"name", "verdict", "found", "remedy"}; a verdict is "ok", "warning" (works, could be better) or
 * "failed" (streaming will not work). A failed check is not a failed call. */
#ifndef MILLPOND_PROBE_H_
#define MILLPOND_PROBE_H_

#include "files.h"

#ifdef __cplusplus
extern "C" {
#endif
#define MILLPOND_EXT_PROBE_1 "probe/1"

typedef struct millpond_ext_probe {
  millpond_header header; /* MILLPOND_TYPE_EXT_PROBE */
  /* Request: io_engine, queue_depth, as the options. Answer: processors, instructions,
   * available_bytes, available_source, memlock_bytes and open_files (null: unlimited), engine,
   * engine_reason, queue_depth, registered, cuda {built, why_none, devices [{name, memory_bytes,
   * free_bytes, capability}]}, checks (engine, memlock, memory, open_files, processor, cuda). */
  millpond_files_fn machine;
  /* Request: directory (default: the runtime's first scratch directory), direct, needed_bytes.
   * Makes small files there, and removes them. Answer: path, usable, filesystem, total_bytes,
   * free_bytes, direct, tmpfile, link, reflink, reason, checks (directory, filesystem, o_direct,
   * o_tmpfile, reflink, free_space). */
  millpond_files_fn directory;
  /* Measures now, which takes seconds. Request: measure, a list of "drive", "update", "bus",
   * "cuda_update", "pin" (default the first two);
   *   drive: directory, direct, io_engine, queue_depth, transfer_bytes (4194304), file_bytes
   *   (4294967296: written first), file ("removed": gone afterwards; "kept": stays for the next
   *   request with the same keys, until another one or the runtime's end), move_bytes (file_bytes;
   *   for each share),
   *   read_shares (list of numbers from 0, writes only, to 1, reads only; [1, 0, 0.5]);
   *   update: elements (67108864), moments (the runtime's), parameters ("bf16"; "fp32": its own
   *   main), gradients ("fp32"), arithmetic ("torch_cpu_fused/1"), threads (0: processors), rounds
   *   (5, of which the medians count);
   *   bus: cuda_device (0), rounds, bus_directions (["up", "down", "both"]);
   *   cuda_update: cuda_device, and the keys of update but threads ("torch_cuda_fused/2"); not
   *   together with update; shards (1): above 1 the tile has so many of 1 to 2,000 elements, in
   *   place of elements, and its ceiling is that of one shard with the same bytes;
   *   pin: cuda_device, pin_bytes (1073741824), threads.
   * Answer: drive {engine, direct, rates [{read_share, bytes_per_s, seconds, bytes_read,
   * bytes_written}], checks (drive)}, update {elements, bytes, threads, update_s, ceiling_s,
   * update_bytes_per_s, update_ceiling_bytes_per_s}: what the update reads and writes, each once,
   * and a loop with the same loads and stores and no arithmetic; bus {up_bytes_per_s,
   * down_bytes_per_s, both_bytes_per_s (at once, the total); null: not asked for}; cuda_update {as
   * update}; pin {bytes, touch_s (mapping the memory and touching its pages), register_s (with
   * CUDA), threads}. */
  millpond_files_fn ceilings;
} millpond_ext_probe;

#ifdef __cplusplus
}
#endif
#endif /* MILLPOND_PROBE_H_ */
