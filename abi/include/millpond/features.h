/* The features of a host that touch optimizer state: the one table. A host lists every feature that
 * it knows as ACTIVE or INACTIVE in its profile; absent means "not evaluated". ACTIVE names that
 * are not in this table are refused.
 *
 * MILLPOND_FEATURE(since_minor, must_evaluate, name, meaning)
 *   since_minor    the minor of major 1 that introduced the name; a host does not send newer ones
 * to an older plugin must_evaluate  1: a host of that minor or newer must list it; absent is
 * refused The verdict on each is the plugin's (plugin/guard/rules.cc) and is listed in
 * abi/README.md. */
#ifndef MILLPOND_FEATURES_H_
#define MILLPOND_FEATURES_H_

#define MILLPOND_FEATURES(MILLPOND_FEATURE)                                                        \
  /* number formats and layouts of parameters */                                                   \
  MILLPOND_FEATURE(0, 1, "param.fp8", "model parameters held in fp8, in any tensor subclass")      \
  MILLPOND_FEATURE(0, 1, "param.fp4", "model parameters held in fp4")                              \
  MILLPOND_FEATURE(0, 1, "param.mxfp8_all_gather",                                                 \
                   "parameters all-gathered in MXFP8, gradient buffer reused for it")              \
  /* the optimizer's family and shape */                                                           \
  MILLPOND_FEATURE(0, 1, "optimizer.muon", "Muon or a mixture of Muon and Adam")                   \
  MILLPOND_FEATURE(0, 1, "optimizer.layer_wise", "layer-wise distributed optimizer")               \
  MILLPOND_FEATURE(0, 1, "optimizer.amsgrad", "AMSGrad: a running maximum of exp_avg_sq")          \
  MILLPOND_FEATURE(0, 1, "optimizer.multi_lora",                                                   \
                   "several LoRA adapters trained with one optimizer")                             \
  MILLPOND_FEATURE(0, 1, "optimizer.precision_aware",                                              \
                   "moments or mains kept by a precision-aware optimizer")                         \
  MILLPOND_FEATURE(0, 1, "optimizer.cpu_offload",                                                  \
                   "optimizer state or step offloaded to the CPU by the host")                     \
  MILLPOND_FEATURE(0, 1, "optimizer.state_offload",                                                \
                   "optimizer state moved away between phases by the host")                        \
  MILLPOND_FEATURE(0, 1, "optimizer.cuda_graph",                                                   \
                   "the optimizer step is captured into a CUDA graph")                             \
  MILLPOND_FEATURE(0, 1, "optimizer.non_distributed",                                              \
                   "Megatron without its distributed optimizer")                                   \
  MILLPOND_FEATURE(0, 1, "parallel.independent_dp",                                                \
                   "data-parallel replicas that train independently")                              \
  MILLPOND_FEATURE(0, 0, "parallel.fsdp", "parameters sharded by FSDP")                            \
  MILLPOND_FEATURE(0, 0, "parallel.distributed_optimizer",                                         \
                   "optimizer state sharded over data-parallel ranks")                             \
  MILLPOND_FEATURE(0, 0, "parallel.overlap_param_gather",                                          \
                   "parameter all-gather overlapped with the forward")                             \
  /* readers and writers behind the store's back */                                                \
  MILLPOND_FEATURE(0, 1, "state.reset", "optimizer states are reset during training")              \
  MILLPOND_FEATURE(0, 1, "state.weight_checksum",                                                  \
                   "a checksum of local weights computed through mains")                           \
  MILLPOND_FEATURE(0, 1, "state.witness", "a witness that writes mains")                           \
  MILLPOND_FEATURE(0, 1, "state.params_norm", "a log of the parameters' norm that reads mains")    \
  MILLPOND_FEATURE(0, 1, "state.qk_clip", "clipping of query and key weights through mains")       \
  /* trainers that pause */                                                                        \
  MILLPOND_FEATURE(0, 1, "trainer.offload", "the paused trainer's memory is taken from it")        \
  MILLPOND_FEATURE(0, 0, "trainer.offload.disk_target", "the paused trainer is backed up on disk") \
  MILLPOND_FEATURE(0, 1, "memory_saver", "a memory saver is preloaded into the process")           \
  MILLPOND_FEATURE(0, 0, "memory_saver.disk_backup",                                               \
                   "the memory saver's binary knows the disk backup")                              \
  /* harmless, listed so that hosts can be complete */                                             \
  MILLPOND_FEATURE(0, 0, "grad.accumulation", "gradients are accumulated over microbatches")       \
  MILLPOND_FEATURE(0, 0, "grad.clip_norm",                                                         \
                   "gradients are clipped by their global norm before the step")                   \
  MILLPOND_FEATURE(0, 0, "grad.loss_scale", "dynamic loss scaling with found_inf")

#endif /* MILLPOND_FEATURES_H_ */
