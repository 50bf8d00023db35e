"""Which of Megatron's names an installed core has, read from its sources without importing them.

python core_names.py CORE...     prints ARCHITECTURE.md's table for these installations
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ARCHITECTURE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"
OPTIMIZER, DISTRIBUTED = "optimizer/optimizer", "optimizer/distrib_optimizer.DistributedOptimizer"
NAMES = tuple(
    f"{place}.{name}"
    for place, names in {
        DISTRIBUTED: (
            # wrapped, bound or called
            "__init__", "_build_model_and_main_param_groups", "_copy_model_grads_to_main_grads",
            "_copy_main_params_to_model_params", "_copy_model_params_to_main_params",
            "_get_model_param_range_map", "state_dict", "load_state_dict", "sharded_state_dict",
            # read
            "is_stub_optimizer", "ddp_config", "model_chunks", "buffers", "model_param_gbuf_map",
            "gbuf_idx_to_model_idx_map", "model_float16_groups", "model_fp32_groups",
            "shard_fp32_groups", "shard_fp32_from_float16_groups",
            # refused
            "get_parameter_state_dp_zero", "get_parameter_state_dp_reshardable",
            "get_parameter_state_fs_bucket_space", "save_parameter_state", "load_parameter_state",
            "_get_main_param_and_optimizer_states", "_set_main_param_and_optimizer_states",
            "_get_model_and_main_params_data_float16", "_get_fp8_params_and_shard_fp32_from_fp8",
            "_copy_main_params_to_param_buffer", "_init_optimizer_states_with_dummy_values",
        ),
        f"{OPTIMIZER}.MixedPrecisionOptimizer": (
            "step_with_ready_grads", "reload_model_params", "grad_scaler",
        ),
        f"{OPTIMIZER}.MegatronOptimizer": ("offload_to_cpu", "restore_from_cpu"),
        f"{OPTIMIZER}.ChainedOptimizer": ("__init__", "chained_optimizers"),
        f"{OPTIMIZER}.Float16OptimizerWithFloat16Params": ("__init__",),
        f"{OPTIMIZER}.FP32Optimizer": ("__init__",),
        OPTIMIZER: ("param_group_identifier_keys",),
        "dist_checkpointing/serialization": ("save", "load", "load_sharded_metadata"),
        "dist_checkpointing/mapping": ("ShardedObject",),
        "dist_checkpointing/strategies/async_utils.AsyncRequest": ("finalize_fns",),
        "optimizer/optimizer_config.OptimizerConfig": ("timers",),
        "timers.Timers": ("__call__", "log", "write"),
        "timers.Timer": ("_elapsed",),
        "parallel_state": (
            "get_data_parallel_rank", "get_tensor_model_parallel_rank",
            "get_pipeline_model_parallel_rank", "get_expert_model_parallel_rank",
            "get_expert_tensor_parallel_rank",
        ),
    }.items()
    for name in names
)  # fmt: skip


# Of DistributedOptimizer, what touches mains or moments and is bound to the store on the instance.
BOUND = ("_copy_model_grads_to_main_grads", "_copy_main_params_to_model_params",
         "_copy_model_params_to_main_params", "state_dict", "load_state_dict",
         "sharded_state_dict")  # fmt: skip
# What names mains or moments and reads none of their values, and why.
HARMLESS = {
    "__init__": "before the store takes over, with handles",
    "_build_model_and_main_param_groups": "wrapped: makes the handles",
    "zero_grad": "drops gradients",
    "_get_state": "the inner optimizer's state, where the store's counter is alone",
    "_set_state": "likewise",
    "_extract_common_per_param_step": "of a state dict that is passed",
    "_restore_common_per_param_step": "likewise",
    "_expand_quantized_param_shard_for_cast": "of quantised parameters, which are refused",
}
_MAINS = {"shard_fp32_from_float16_groups", "fp32_from_float16_groups", "shard_main_param",
          "main_param", "state"}  # fmt: skip


def methods_on_mains(core: Path) -> set[str]:
    """Methods of DistributedOptimizer and the classes above it that name mains or moments."""
    found = set()
    for module, kinds in {
        "distrib_optimizer": ["DistributedOptimizer"],
        "optimizer": ["MixedPrecisionOptimizer", "MegatronOptimizer"],
    }.items():
        tree = ast.parse((core / "megatron" / "core" / "optimizer" / f"{module}.py").read_text())
        for kind in tree.body:
            if isinstance(kind, ast.ClassDef) and kind.name in kinds:
                found |= {
                    method.name
                    for method in kind.body
                    if isinstance(method, ast.FunctionDef) and _words(method) & _MAINS
                }
    return found


def _words(tree: ast.AST) -> set[str]:
    """Attributes, names and short texts, which getattr and the like may take."""
    words = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
    return words


def names_in(core: Path) -> dict[str, bool]:
    """Whether megatron/core at `core` has each of NAMES."""
    trees: dict[str, ast.Module] = {}
    found = {}
    for full in NAMES:
        place, name = full.rsplit(".", 1)
        module, _, kind = place.partition(".")
        if module not in trees:
            file = core / "megatron" / "core" / f"{module}.py"
            trees[module] = ast.parse(file.read_text() if file.is_file() else "")
        found[full] = name in _defined(trees[module], kind)
    return found


def _defined(tree: ast.Module, kind: str) -> set[str]:
    """Names that a module, or a class of it, defines or assigns."""
    body = tree.body
    if kind:
        classes = [n for n in body if isinstance(n, ast.ClassDef) and n.name == kind]
        body = classes[0].body if classes else []
    defined = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        for inner in ast.walk(node) if kind else [node]:
            targets = inner.targets if isinstance(inner, ast.Assign) else []
            targets = [*targets, inner.target] if isinstance(inner, ast.AnnAssign) else targets
            for target in targets:
                parts = target.elts if isinstance(target, ast.Tuple) else [target]
                defined |= {p.id if isinstance(p, ast.Name) else p.attr
                            for p in parts if isinstance(p, ast.Name | ast.Attribute)}  # fmt: skip
    return defined


def table_of(releases: dict[str, Path]) -> list[str]:
    """The lines of the table: one a name, grouped by place."""
    columns = {release: names_in(core) for release, core in releases.items()}
    lines = [f"| name | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for name in NAMES:
        marks = ["yes" if found[name] else "-" for found in columns.values()]
        lines.append(f"| `{name}` | {' | '.join(marks)} |")
    return lines


def documented() -> dict[str, dict[str, bool]]:
    """ARCHITECTURE.md's table: release -> name -> there."""
    columns: list[str] = []
    found: dict[str, dict[str, bool]] = {}
    for line in ARCHITECTURE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| name | 0."):
            columns = cells[1:]
            found = {release: {} for release in columns}
        elif columns and (match := re.match(r"`([\w/.]+)`$", cells[0])):
            for release, mark in zip(columns, cells[1:], strict=True):
                found[release][match[1]] = mark == "yes"
    return found


if __name__ == "__main__":
    print("\n".join(table_of({Path(core).name: Path(core) for core in sys.argv[1:]})))
