# ruff: noqa: SIM905
"""Arguments: what is refused at start-up, with which sentence, and what options they become.

python test_arguments.py     prints the table of host_adapters/python/millpond/megatron/REFUSED.md
"""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

import pytest
from millpond import MillpondError, RefusedError
from millpond.megatron import add_arguments, check_arguments, options_from
from millpond.megatron.rules import RULES

FINE = {
    "optimizer": "adam", "use_distributed_optimizer": True, "ckpt_format": "torch_dist",
    "non_persistent_ckpt_type": None, "ft_components": ["rollout"], "offload_train": False,
    "colocate": False,
}  # fmt: skip

# What must be refused, written by hand: the attribute, a value, and the option in the message.
WANTED = [
    ("optimizer_cpu_offload", True, "--optimizer-cpu-offload"),
    ("offload_optimizer_states", True, "--offload-optimizer-states"),
    ("chunked_optimizer_state_offload", True, "--chunked-optimizer-state-offload"),
    ("use_precision_aware_optimizer", True, "--use-precision-aware-optimizer"),
    ("optimizer", "sgd", "--optimizer"),
    ("optimizer", "lion", "--optimizer"),
    ("optimizer", "muon", "--optimizer"),
    ("optimizer", "dist_muon", "--optimizer"),
    ("optimizer", "soap", "--optimizer"),
    ("use_layer_wise_distributed_optimizer", True, "--use-layer-wise-distributed-optimizer"),
    ("use_distributed_optimizer", False, "--use-distributed-optimizer"),
    ("multi_lora", True, "--multi-lora"),
    ("multi_lora_n_adapters", 2, "--multi-lora-n-adapters"),
    ("reset_optimizer_states", True, "--reset-optimizer-states"),
    ("use_stateless_adam", True, "--use-stateless-adam"),
    ("save_local_weight_checksum", True, "--save-local-weight-checksum"),
    ("enable_witness", True, "--enable-witness"),
    ("fp8_param_gather", True, "--fp8-param-gather"),
    ("fp8_param", True, "--fp8-param-gather"),
    ("fp4_param_gather", True, "--fp4-param-gather"),
    ("fp4_param", True, "--fp4-param-gather"),
    ("reuse_grad_buf_for_mxfp8_param_ag", True, "--reuse-grad-buf-for-mxfp8-param-ag"),
    ("use_megatron_fsdp", True, "--use-megatron-fsdp"),
    ("use_custom_fsdp", True, "--use-custom-fsdp"),
    ("use_torch_fsdp2", True, "--use-torch-fsdp2"),
    ("optimizer_cuda_graph", True, "--optimizer-cuda-graph"),
    ("indep_dp", True, "--indep-dp"),
    ("log_params_norm", True, "--log-params-norm"),
    ("qk_clip", True, "--qk-clip"),
    ("rl_offload_optimizer_during_inference", True, "--rl-offload-optimizer-during-inference"),
    ("load_main_params_from_ckpt", True, "--load-main-params-from-ckpt"),
    ("ckpt_format", "torch", "--ckpt-format"),
    ("ckpt_format", "torch_dcp", "--ckpt-format"),
    ("ckpt_format", "fsdp_dtensor", "--ckpt-format"),
    ("non_persistent_ckpt_type", "local", "--non-persistent-ckpt-type"),
    ("ft_components", ["train", "rollout"], "--ft-components"),
]


# What trainers around Megatron pass, several attributes together.
TRAINERS = [
    ({"offload_train": True}, "--offload-train-target"),
    ({"offload_train": True, "offload_train_target": "cpu"}, "--offload-train-target"),
    ({"colocate": True}, "--colocate"),
]
REFUSED = (
    Path(__file__).resolve().parents[2]
    / "host_adapters" / "python" / "millpond" / "megatron" / "REFUSED.md"
)  # fmt: skip


def namespace(**changed: object) -> argparse.Namespace:
    return argparse.Namespace(**(FINE | changed))


def test_what_can_go_together_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    check_arguments(namespace())
    check_arguments(argparse.Namespace())


@pytest.mark.parametrize(("attribute", "value", "option"), WANTED)
def test_B42_each_is_refused_with_its_sentence(attribute: str, value: object, option: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        check_arguments(namespace(**{attribute: value}))
    assert [one.subject for one in refusal.value.refusals] == [option]
    only = refusal.value.refusals[0]
    assert len(only.reason) > 20 and len(only.remedy) > 10
    for text in (option, only.reason, only.remedy, repr(value)):
        assert text in str(refusal.value)


def test_every_rule_is_in_the_table_above() -> None:
    assert {rule.argument for rule in RULES} == {attribute for attribute, _, _ in WANTED}


def test_all_reasons_are_listed() -> None:
    with pytest.raises(RefusedError) as refusal:
        check_arguments(namespace(optimizer="muon", log_params_norm=True, indep_dp=True))
    assert len(refusal.value.refusals) == 3


def table() -> list[str]:
    """One line a refused setting, with the sentence that check_arguments itself says."""
    lines = ["| option | attribute and value | why | remedy |", "|---|---|---|---|"]
    settings = [({attribute: value}, option) for attribute, value, option in WANTED]
    for changed, option in [*settings, *TRAINERS]:
        with pytest.raises(RefusedError) as refusal:
            check_arguments(namespace(**changed))
        (only,) = refusal.value.refusals
        given = ", ".join(f"{attribute}={value!r}" for attribute, value in changed.items())
        reason = only.reason.split(" (it is ")[0]
        lines.append(f"| `{option}` | `{given}` | {reason} | {only.remedy} |")
    return lines


def test_the_table_of_refusals_is_what_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    written = [line for line in REFUSED.read_text().splitlines() if line.startswith("|")]
    print("\n".join(difflib.unified_diff(written, table(), "REFUSED.md", "said", lineterm="")))
    assert written == table()


@pytest.mark.parametrize(("changed", "option"), TRAINERS)
def test_a_paused_trainer_needs_the_disk(changed: dict[str, object], option: str) -> None:
    with pytest.raises(RefusedError, match=option):
        check_arguments(namespace(**changed))
    check_arguments(namespace(colocate=True, offload_train=True, offload_train_target="disk"))


def test_the_memory_savers_binary_itself_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary = tmp_path / "torch_memory_saver_hook_mode_preload.abi3.so"
    monkeypatch.setenv("LD_PRELOAD", f"/usr/lib/other.so:{binary}")
    for content, good in ((b"TMS_INIT_ENABLE", False), (b"\0TMS_INIT_ENABLE_DISK_BACKUP\0", True)):
        binary.write_bytes(content)
        if good:
            check_arguments(namespace())
        else:
            with pytest.raises(RefusedError, match="LD_PRELOAD"):
                check_arguments(namespace())


def test_options_of_our_arguments() -> None:
    parser = add_arguments(argparse.ArgumentParser())
    parsed = parser.parse_args(
        "--stream-optimizer-state-to-disk --stream-optimizer-state-dir /a,/b "
        "--stream-optimizer-state-moments bf16 --stream-optimizer-state-host-memory 1.5 "
        "--stream-optimizer-state-chunk-mb 16".split()
    )
    assert parsed.stream_optimizer_state_to_disk
    assert options_from(parsed) == {
        "scratch": ["/a", "/b"], "moments": "bf16", "host_memory_bytes": 3 << 29,
        "tile_elements": 4 << 20,
    }  # fmt: skip


def test_names_of_other_launch_scripts_are_fallbacks() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stream-optimizer-state-to-disk", action="store_true")
    parser.add_argument("--offload-train-disk-dir")
    parser.add_argument("--offload-train-disk-chunk-mb", type=int)
    parsed = add_arguments(parser).parse_args(
        "--stream-optimizer-state-to-disk --offload-train-disk-dir /nvme/job "
        "--offload-train-disk-chunk-mb 64".split()
    )
    assert options_from(parsed) == {
        "scratch": "/nvme/job/millpond", "moments": "fp32", "host_memory_bytes": "auto",
        "tile_elements": 16 << 20,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({}, "stream_optimizer_state_dir"),
        (
            {"stream_optimizer_state_dir": "/a", "stream_optimizer_state_host_memory": "much"},
            "stream_optimizer_state_host_memory",
        ),
    ],
)
def test_bad_values_name_their_option(changed: dict[str, object], field: str) -> None:
    with pytest.raises(MillpondError) as error:
        options_from(namespace(**changed))
    assert error.value.field == field


if __name__ == "__main__":
    print("\n".join(table()))
