"""What of Megatron's arguments and configuration cannot go with streamed optimizer state.

One table. `check_arguments` reads the parsed arguments with it at start-up; `features` reads the
optimizer's and DDP's configuration with it at each bind; the plugin's guard judges the features.
Names that a release does not have read as "off".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _on(value: Any) -> bool:
    return bool(value)


def _off(value: Any) -> bool:
    return value is not None and not value


@dataclass(frozen=True)
class Rule:
    """`argument` is the attribute, `option` what the user writes, `active` says for a value that it
    cannot go. `feature` is the plugin's name, or "" where only the adapter refuses."""

    argument: str
    option: str
    feature: str
    reason: str
    remedy: str
    active: Callable[[Any], bool] = _on


def _contains(word: str) -> Callable[[Any], bool]:
    def active(value: Any) -> bool:
        values = value if isinstance(value, list | tuple) else str(value or "").split(",")
        return any(word in str(one) for one in values)

    return active


def _other_than(*allowed: Any) -> Callable[[Any], bool]:
    return lambda value: value is not None and value not in allowed


_RESIDENT = "The store has the optimizer state already: leave the option out."
_MAINS = "It reads or writes fp32 mains, which are in the store."

# Of Megatron itself, in one release or another.
MEGATRON = (
    Rule("optimizer_cpu_offload", "--optimizer-cpu-offload", "optimizer.cpu_offload",
         "Optimizer state cannot be kept on the CPU and in the store.", _RESIDENT),
    Rule("offload_optimizer_states", "--offload-optimizer-states", "optimizer.state_offload",
         "Optimizer state cannot be moved away between steps by Megatron.", _RESIDENT),
    Rule("use_precision_aware_optimizer", "--use-precision-aware-optimizer",
         "optimizer.precision_aware",
         "The precision-aware optimizer keeps mains and moments itself.",
         "Leave it out; --stream-optimizer-state-moments chooses the moments' format."),
    Rule("optimizer", "--optimizer", "optimizer.muon",
         "Muon updates whole matrices, not single elements.", "Use --optimizer adam.",
         _contains("muon")),
    Rule("optimizer", "--optimizer", "", "Only Adam and AdamW can be streamed.",
         "Use --optimizer adam.", lambda v: v not in (None, "adam") and "muon" not in str(v)),
    Rule("use_layer_wise_distributed_optimizer", "--use-layer-wise-distributed-optimizer",
         "optimizer.layer_wise", "The layer-wise optimizer keeps whole layers on a rank.",
         "Use --use-distributed-optimizer."),
    Rule("use_distributed_optimizer", "--use-distributed-optimizer", "optimizer.non_distributed",
         "Only the distributed optimizer's shards can be streamed.",
         "Add --use-distributed-optimizer.", _off),
    Rule("optimizer_cuda_graph", "--optimizer-cuda-graph", "optimizer.cuda_graph",
         "A step that reads files cannot be captured into a CUDA graph.", "Leave the option out."),
    Rule("fp8_param_gather", "--fp8-param-gather", "param.fp8",
         "Parameters held in fp8 are not their own values.",
         "Leave it out: fp8 in the forward with bf16 parameters works."),
    Rule("fp8_param", "--fp8-param-gather", "param.fp8",
         "Parameters held in fp8 are not their own values.",
         "Leave it out: fp8 in the forward with bf16 parameters works."),
    Rule("fp4_param_gather", "--fp4-param-gather", "param.fp4",
         "Parameters held in fp4 are not their own values.", "Leave the option out."),
    Rule("fp4_param", "--fp4-param-gather", "param.fp4",
         "Parameters held in fp4 are not their own values.", "Leave the option out."),
    Rule("reuse_grad_buf_for_mxfp8_param_ag", "--reuse-grad-buf-for-mxfp8-param-ag",
         "param.mxfp8_all_gather", "The MXFP8 gather copies mains into the gradient buffer.",
         "Leave the option out."),
    Rule("use_megatron_fsdp", "--use-megatron-fsdp", "", "Megatron-FSDP keeps mains in its own "
         "buffers.", "Use --use-distributed-optimizer without FSDP."),
    Rule("use_custom_fsdp", "--use-custom-fsdp", "", "The custom FSDP keeps mains in its own "
         "buffers.", "Use --use-distributed-optimizer without FSDP."),
    Rule("use_torch_fsdp2", "--use-torch-fsdp2", "", "FSDP2 has no distributed optimizer.",
         "Use --use-distributed-optimizer, or millpond.torch with FSDP2."),
    Rule("log_params_norm", "--log-params-norm", "state.params_norm",
         f"The norm of parameters is computed from mains. {_MAINS}", "Leave the option out."),
    Rule("qk_clip", "--qk-clip", "state.qk_clip",
         f"QK-clip scales query and key weights through mains. {_MAINS}", "Leave the option out."),
    Rule("rl_offload_optimizer_during_inference", "--rl-offload-optimizer-during-inference",
         "optimizer.state_offload", "The optimizer's tensors cannot be moved to the CPU.",
         "Leave it out and call millpond.megatron.suspend() and resume()."),
    Rule("load_main_params_from_ckpt", "--load-main-params-from-ckpt", "",
         "Mains from a checkpoint's model state are not implemented.",
         "Leave it out: mains are made from the loaded parameters."),
    Rule("ckpt_format", "--ckpt-format", "",
         "Only torch_dist checkpoints pass the hooks that save and load the store.",
         "Use --ckpt-format torch_dist.", _other_than("torch_dist")),
    Rule("non_persistent_ckpt_type", "--non-persistent-ckpt-type", "",
         "Local checkpoints do not pass the hooks that save and load the store.",
         "Use --non-persistent-ckpt-type global, or leave it out.",
         _other_than("global", "in_memory")),
)  # fmt: skip

# Of forks and trainers around Megatron: read where they are there.
FORKS = (
    Rule("chunked_optimizer_state_offload", "--chunked-optimizer-state-offload",
         "optimizer.state_offload", "Optimizer state cannot be moved away in chunks as well.",
         _RESIDENT),
    Rule("use_stateless_adam", "--use-stateless-adam", "state.reset",
         "A stateless Adam has nothing to stream.", "Leave one of both out."),
    Rule("multi_lora", "--multi-lora", "optimizer.multi_lora",
         "Several adapters share one optimizer.", "Train one adapter a run."),
    Rule("multi_lora_n_adapters", "--multi-lora-n-adapters", "optimizer.multi_lora",
         "Several adapters share one optimizer.", "Train one adapter a run."),
    Rule("reset_optimizer_states", "--reset-optimizer-states", "state.reset",
         "It clears moments that are in the store, without the store's knowledge.",
         "Leave the option out."),
    Rule("save_local_weight_checksum", "--save-local-weight-checksum", "state.weight_checksum",
         f"The checksum is made of mains and moments. {_MAINS}", "Leave the option out."),
    Rule("enable_witness", "--enable-witness", "state.witness",
         f"The witness writes mains. {_MAINS}", "Leave the option out."),
    Rule("indep_dp", "--indep-dp", "parallel.independent_dp",
         "Replicas that train independently do not agree on steps and saves.",
         "Leave the option out."),
    Rule("ft_components", "--ft-components", "parallel.independent_dp",
         "Fault tolerance of training restores optimizer state from other replicas' memory.",
         "Leave 'train' out of --ft-components.", _contains("train")),
)  # fmt: skip

RULES = MEGATRON + FORKS
