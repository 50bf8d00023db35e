"""Models that the tests train with real Megatron: a small net, and a real GPTModel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer import transformer_block
from megatron.core.transformer.module import Float16Module, MegatronModule
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_config import TransformerConfig

VOCABULARY, SEQUENCE, WIDTH = 128, 16, 32


@dataclass(frozen=True)
class Case:
    """One way to train. Everything that a run needs beside its seed."""

    name: str
    model: str = "net"  # or "gpt"
    tp: int = 1
    ep: int = 1
    pp: int = 1  # more: gradients are made up, and no forward pass runs
    gated: bool = False  # linear_fc1 holds a part of the gate and one of the rest
    etp: int | None = None  # tensor parallelism of experts; None: as of the rest
    experts: int = 0
    chunks: int = 1
    fp32_grads: bool = True
    overlap: bool = False
    bucket_size: int | None = None
    dtype: str = "bf16"
    micro_batches: int = 1
    inf_at: int | None = None  # a step whose last gradient gets an infinity on rank 1
    native_fp32: bool = False
    padding: bool = False  # a model so small that a rank owns padding only
    one_bias: bool = False  # a group of one small parameter, which rank 1 has nothing of
    clip: float = 1.0
    loss_scale: float | None = None

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float16 if self.dtype == "fp16" else torch.bfloat16


class Net(MegatronModule):
    """Layers of odd sizes, a bias without decay, and where asked a native fp32 parameter."""

    def __init__(self, config: TransformerConfig, case: Case):
        super().__init__(config)
        width = 3 if case.padding else 67
        bias = not (case.padding or case.one_bias)
        self.first = torch.nn.Linear(width, 1 if case.padding else 129, bias=bias)
        self.second = torch.nn.Linear(1 if case.padding else 129, width, bias=not case.padding)
        if case.padding:
            self.second = None
        self.scale = torch.nn.Parameter(torch.ones(width)) if case.native_fp32 else None
        self.width = width

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.scale is not None:
            values = (values.float() * self.scale).to(values.dtype)
        hidden = torch.nn.functional.gelu(self.first(values))
        if self.second is None:
            return hidden.float().pow(2).mean()
        return (self.second(hidden) - values).float().pow(2).mean()

    def set_input_tensor(self, _tensor: Any) -> None:
        return None


def config_of(case: Case) -> TransformerConfig:
    moe: dict[str, Any] = {}
    if case.experts:
        moe = dict(
            num_moe_experts=case.experts, moe_router_topk=2, add_bias_linear=False,
            moe_token_dispatcher_type="alltoall", moe_router_load_balancing_type="none",
        )  # fmt: skip
    return TransformerConfig(
        num_layers=2, hidden_size=WIDTH, num_attention_heads=4, ffn_hidden_size=64,
        tensor_model_parallel_size=case.tp, pipeline_model_parallel_size=case.pp,
        gated_linear_unit=case.gated, expert_model_parallel_size=case.ep,
        expert_tensor_parallel_size=case.etp, sequence_parallel=case.tp > 1 and case.experts > 0,
        use_cpu_initialization=True, params_dtype=case.torch_dtype, bf16=case.dtype == "bf16",
        fp16=case.dtype == "fp16", pipeline_dtype=case.torch_dtype, hidden_dropout=0.0,
        attention_dropout=0.0, masked_softmax_fusion=False, bias_activation_fusion=False,
        bias_dropout_fusion=False, gradient_accumulation_fusion=False, persist_layer_norm=False,
        **moe,
    )  # fmt: skip


class SequenceNorm(torch.nn.LayerNorm):
    """torch's norm on a rank's part of the sequence, which Megatron's own wrapper refuses: its
    gradients are marked to be summed over the tensor-parallel ranks."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5):
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = True


def module_of(case: Case, config: TransformerConfig) -> torch.nn.Module:
    if case.model == "gpt":
        spec = get_gpt_layer_local_spec(case.experts or None)
        transformer_block.LayerNormImpl = WrappedTorchNorm
        if config.sequence_parallel:
            transformer_block.LayerNormImpl = SequenceNorm
            spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = SequenceNorm
        gpt = GPTModel(
            config, spec, vocab_size=VOCABULARY, max_sequence_length=SEQUENCE,
            position_embedding_type="learned_absolute", share_embeddings_and_output_weights=False,
            pre_process=parallel_state.is_pipeline_first_stage(),
            post_process=parallel_state.is_pipeline_last_stage(),
        )  # fmt: skip
        return Float16Module(config, gpt)
    net = Net(config, case).to(case.torch_dtype)
    if net.scale is not None:
        net.scale.data = net.scale.data.float()
    return net


def optimizer_config(case: Case, timers: Any = None) -> OptimizerConfig:
    newer = {"overlap_param_gather": case.overlap}  # fields that not every release has
    known = OptimizerConfig.__dataclass_fields__
    return OptimizerConfig(
        **{name: value for name, value in newer.items() if name in known}, optimizer="adam",
        lr=1e-2, weight_decay=0.1, bf16=case.dtype == "bf16",
        fp16=case.dtype == "fp16", params_dtype=case.torch_dtype, use_distributed_optimizer=True,
        clip_grad=case.clip, loss_scale=case.loss_scale,
        initial_loss_scale=2.0**12, timers=timers,
    )  # fmt: skip


def build(
    case: Case, seed: int = 7, timers: Any = None,
    make: Callable[[Case, TransformerConfig], torch.nn.Module] = module_of,
) -> tuple[list[Any], Any]:  # fmt: skip
    """Model chunks under DDP, and Megatron's own optimizer for them."""
    torch.manual_seed(seed)
    chunks = []
    for number in range(case.chunks):
        config = config_of(case)
        config.finalize_model_grads_func = None
        ddp = DistributedDataParallelConfig(
            grad_reduce_in_fp32=case.fp32_grads, overlap_grad_reduce=case.overlap,
            overlap_param_gather=case.overlap, use_distributed_optimizer=True,
            bucket_size=case.bucket_size,
        )  # fmt: skip
        chunks.append(
            DistributedDataParallel(
                config, ddp, make(case, config),
                disable_bucketing=number > 0 and not case.overlap,
            )
        )  # fmt: skip
    for chunk in chunks:
        chunk.broadcast_params()
    return chunks, get_megatron_optimizer(optimizer_config(case, timers), chunks)


def data(case: Case, step: int, micro: int) -> Any:
    """A batch of this data-parallel rank; the same for both runs."""
    rank = parallel_state.get_data_parallel_rank()
    source = torch.Generator().manual_seed(1000 * step + 10 * micro + rank)
    if case.model == "gpt":
        return torch.randint(0, VOCABULARY, (2, SEQUENCE + 1), generator=source)
    width = 3 if case.padding else 67
    return torch.randn(5, width, generator=source).to(case.torch_dtype)


def make_up_gradients(chunk: Any, step: int) -> None:
    """Another one for each parameter and step, in the place where a backward pass leaves them."""
    trained = [parameter for parameter in chunk.parameters() if parameter.requires_grad]
    for number, parameter in enumerate(trained):
        source = torch.Generator().manual_seed(1000 * step + number)
        parameter.main_grad.copy_(torch.randn(parameter.shape, generator=source))


def loss_of(case: Case, chunks: list[Any], batch: Any) -> torch.Tensor:
    if case.model != "gpt":
        return sum((chunk(batch) for chunk in chunks), torch.zeros(()))
    inputs, labels = batch[:, :-1], batch[:, 1:]
    positions = torch.arange(SEQUENCE).expand_as(inputs)
    mask = torch.ones(1, 1, SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1)
    return chunks[0](inputs, positions, mask, labels=labels).float().mean()
