"""One training step on PyTorch that several processes make together, as `torchrun` starts them: each has some rows."""

import numpy as np
import torch
from torch import distributed

from kbert.model.setup import keras
from kbert.training.hyperparameters import Hyperparameters
from kbert.training.step import DROPOUT_STREAMS, Loss, StepBatch, rows_of_part
from kbert.training.step_torch import Trainer


class ProcessesTrainer(Trainer):
    """The trainer of `kbert.training.step_torch` in each of several processes.

    Every process is given the same whole batches, and computes the gradients of its part. They are added up, and each
    process makes the same update. Losses are sums over the texts of a batch, so those of the parts are added up too.

    Parameters
    ----------
    model, loss, optimizer
        As there.
    group : torch.distributed.ProcessGroup
    """

    can_be_recorded = False  # the sum over the processes is in every step

    def __init__(self, model: keras.Model, loss: Loss, optimizer: str, group: distributed.ProcessGroup):
        super().__init__(model, loss, optimizer)
        self.group = group
        with torch.no_grad():
            for variable in model.weights:
                value = variable.value.contiguous()
                distributed.broadcast(value, 0, group=group)
                variable.value.copy_(value)

    def _gradients(self, batch: StepBatch, hyper: Hyperparameters) -> tuple[list[torch.Tensor], torch.Tensor]:
        number, n = self.group.rank(), self.group.size()
        seed = hyper.seed + np.array([0, number * DROPOUT_STREAMS], "uint32")
        own: StepBatch = keras.tree.map_structure(lambda array: rows_of_part(array, number, n), batch)
        gradients, losses = super()._gradients(own, hyper._replace(seed=seed))
        tensors = [*gradients, losses]
        flat = torch.cat([tensor.ravel() for tensor in tensors])  # one sum is quicker than one for each
        distributed.all_reduce(flat, group=self.group)
        parts = flat.split([tensor.numel() for tensor in tensors])
        *summed, losses = (some.view_as(tensor) for some, tensor in zip(parts, tensors, strict=True))
        return summed, losses
