"""Whether `torch.compile` pays on a CPU: derivatives of transformers' BERT, as it is and compiled.

    KERAS_BACKEND=torch python benchmarks/compiled_layers.py

The shape is that of minilm-l6, under bfloat16 autocast, on 32 rows of 15 tokens, dropout 0.1. It needs transformers and
a C++ compiler for PyTorch's own one (inductor). Printed are the seconds until the first step has ended, and the median
of later ones, in turns.
"""

import time
from statistics import median

import torch
from transformers import BertConfig, BertModel

ROWS, LENGTH, STEPS = 32, 15, 30
SHAPE = dict(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)


def main() -> None:
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SHAPE)).train()
    ids = torch.randint(1000, 5000, (ROWS, LENGTH))
    forms = {"as it is": model, "compiled": torch.compile(model)}

    def step(form) -> float:
        begin = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16):
            loss = form(ids).last_hidden_state[:, 0].float().square().mean()
        loss.backward()
        model.zero_grad(set_to_none=True)
        return time.perf_counter() - begin

    first = {name: step(form) for name, form in forms.items()}
    later = {name: [] for name in forms}
    for _ in range(STEPS):
        for name, form in forms.items():
            later[name].append(step(form))
    for name in forms:
        print(f"{name:10} first step {first[name]:6.1f} s, later ones {1e3 * median(later[name]):6.1f} ms")


if __name__ == "__main__":
    main()
