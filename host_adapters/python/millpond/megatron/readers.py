"""Methods of DistributedOptimizer that read or write mains or moments. A main is an empty handle:
what is not bound must refuse, since reading one ends the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from .. import abi
from ..errors import StateError

# Whatever a release calls them, families of readers begin with these words.
PREFIXES = (
    "get_parameter_state",
    "load_parameter_state",
    "save_parameter_state",
    "sharded_param_state",
)
READERS = {
    "_get_main_param_and_optimizer_states": "",
    "_set_main_param_and_optimizer_states": "",
    "_get_model_and_main_params_data_float16": "",
    "_get_fp8_params_and_shard_fp32_from_fp8": "",
    "_get_nvfp4_params_and_shard_fp32_from_nvfp4": "",
    "_copy_main_params_to_param_buffer": "Leave out --reuse-grad-buf-for-mxfp8-param-ag.",
    "_init_optimizer_states_with_dummy_values": "",
    "offload_to_cpu": "Call millpond.megatron.suspend() instead.",
    "restore_from_cpu": "Call millpond.megatron.resume() instead.",
    "offload_states": "Leave out --offload-optimizer-states.",
    "reload_offloaded_states": "Leave out --offload-optimizer-states.",
    "split_state_dict_if_needed": "",
}
_LEGACY = "Use --ckpt-format torch_dist."


def refuse_readers(optimizer: Any) -> None:
    """Replaces each on the instance by a refusal in words."""
    kind = type(optimizer)
    for name in dir(kind):
        if name in READERS or name.startswith(PREFIXES):
            remedy = READERS.get(name) or _LEGACY
            setattr(optimizer, name, _refusal(name, remedy))


def _refusal(name: str, remedy: str) -> Callable[..., NoReturn]:
    def refused(*_: Any, **__: Any) -> NoReturn:
        raise StateError(
            f"{name}: the mains and moments of this optimizer are in Millpond's store, and "
            f"Megatron's own reader of them cannot work. {remedy}",
            code=abi.E_UNSUPPORTED,
            field=name,
        )

    return refused
