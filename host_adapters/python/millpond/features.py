"""The features that a host of ABI minor 0 must judge (abi/include/millpond/features.h)."""

ABSENT, INACTIVE, ACTIVE = 0, 1, 2

FEATURES = (
    "param.fp8",
    "param.fp4",
    "param.mxfp8_all_gather",
    "optimizer.muon",
    "optimizer.layer_wise",
    "optimizer.amsgrad",
    "optimizer.multi_lora",
    "optimizer.precision_aware",
    "optimizer.cpu_offload",
    "optimizer.state_offload",
    "optimizer.cuda_graph",
    "optimizer.non_distributed",
    "parallel.independent_dp",
    "parallel.fsdp",
    "parallel.distributed_optimizer",
    "parallel.overlap_param_gather",
    "state.reset",
    "state.weight_checksum",
    "state.witness",
    "state.params_norm",
    "state.qk_clip",
    "trainer.offload",
    "trainer.offload.disk_target",
    "memory_saver",
    "memory_saver.disk_backup",
    "grad.accumulation",
    "grad.clip_norm",
    "grad.loss_scale",
)
