"""The ways to train that must give the same bits streamed as resident."""

from __future__ import annotations

from models import Case

CASES = {
    case.name: case
    for case in (
        Case("net"),
        Case("net_bf16_grads", fp32_grads=False),
        Case("net_overlapped", overlap=True, bucket_size=4000, micro_batches=2),
        Case("net_overlapped_bf16", overlap=True, bucket_size=4000, fp32_grads=False),
        Case("net_chunks", chunks=2, bucket_size=4000),
        Case("net_chunks_overlapped", chunks=2, bucket_size=4000, overlap=True),
        Case("net_native_fp32", native_fp32=True),
        Case("net_padding", padding=True),
        Case("net_found_inf", inf_at=7, loss_scale=128.0),
        Case("net_fp16", dtype="fp16", inf_at=3),
        Case("net_fused", inf_at=2, loss_scale=128.0, one_bias=True),
        Case("net_unclipped", clip=0.0, micro_batches=3),
        Case("gpt", model="gpt"),
        Case("gpt_overlapped", model="gpt", overlap=True, bucket_size=20000, fp32_grads=False),
        Case("gpt_tp2", model="gpt", tp=2),
        Case("gpt_pp2", model="gpt", pp=2),
        Case("gpt_gated", model="gpt", gated=True),
        Case("gpt_gated_tp2", model="gpt", gated=True, tp=2),
        Case("gpt_experts", model="gpt", ep=2, experts=4),
        Case("gpt_experts_whole", model="gpt", experts=4),
        Case("gpt_tp2_experts", model="gpt", tp=2, ep=2, etp=1, experts=4),
    )
}
