"""Pre-training: steps over instances that are drawn anew each epoch, to a budget, with checkpoints to go on from."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np

from kbert.data.frames import data_frame
from kbert.model import BertForPreTraining
from kbert.pretraining.batches import PretrainingBatch, batches_of
from kbert.pretraining.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from kbert.pretraining.history import History, HistoryFile, TensorBoard
from kbert.pretraining.instances import Documents, draw_pairs, draw_runs
from kbert.pretraining.interruption import Interruption
from kbert.pretraining.masking import Masking
from kbert.pretraining.objective import REPORTED, TASKS, mean_scores, pretraining_losses, score_sums
from kbert.pretraining.options import PretrainingOptions
from kbert.pretraining.progress import PretrainingProgress
from kbert.text import WordPieceTokenizer
from kbert.training.bad_steps import BadSteps
from kbert.training.distribution import all_devices, checked, n_devices, process_number, same_everywhere, trainer_on
from kbert.training.loop import backend_step, check_segments
from kbert.training.memory import memory_kept
from kbert.training.optimizer import BETA_1, BETA_2, Hyper, decays_of
from kbert.training.prefetch import prefetched

# Numbers that tell the seeds of held-out rows from those of training.
_HELD_OUT = 10**6


class Pretraining:
    """A run of pre-training.

    Parameters
    ----------
    model : BertForPreTraining
    tokenizer : WordPieceTokenizer
    source : sequence of Documents
        `Shards`, or a list. Pairs are drawn from the documents of one element, one element at a time.
    options : PretrainingOptions
    held_out : Documents, optional
        Text to evaluate on.
    folder : str or Path, optional
        Where checkpoints are written and, if there is one, gone on from; and beside them the history so far, as
        ``history.csv``.
    on_step_end : callable, optional
        ``on_step_end(step)`` after each update, counted from 1.
    distribution : "auto", None, keras.distribution.DataParallel or tf.distribute.MirroredStrategy, default="auto"
        The devices that share each batch. "auto": all that JAX or TensorFlow sees; None: one. On JAX they may belong to
        several processes, on one machine or many, where each ran ``keras.distribution.initialize`` first: all make the
        same call, on files that all of them see, and the first one writes the checkpoints and shows the progress.
    """

    def __init__(
        self,
        model: BertForPreTraining,
        tokenizer: WordPieceTokenizer,
        source: Sequence[Documents],
        options: PretrainingOptions,
        held_out: Documents | None = None,
        folder: str | Path | None = None,
        on_step_end: Callable[[int], Any] | None = None,
        distribution: Any = "auto",
    ):
        self.model, self.tokenizer, self.source, self.options = model, tokenizer, source, options
        self.held_out, self.on_step_end = held_out, on_step_end
        self.folder = None if folder is None else Path(folder).expanduser()
        self.nsp = model.choices["nsp"]
        check_segments(model, self.nsp)
        self.masking = Masking(tokenizer, options.mask_rate, options.whole_word)
        longest = max(length for length, _ in options.phases)
        if longest > model.config.max_position_embeddings:
            raise ValueError(
                f"A phase has {longest} tokens, and the model has {model.config.max_position_embeddings} positions."
            )
        if isinstance(distribution, str) and distribution == "auto":
            distribution = all_devices()
        self.distribution = checked(distribution, options.batch_size)
        self.process, self.n_processes = process_number()
        if self.n_processes > 1 and options.max_seconds is not None:
            raise ValueError("Give max_steps where there are several processes: their clocks differ.")
        self.step, self.seconds, self.tokens = 0, 0.0, 0
        self.bad_steps = BadSteps(
            model.compute_dtype == "float16", "a lower learning_rate, a longer warmup, or dtype='float32'"
        )
        self.place = (0, 0, 0, 0)  # phase, epoch, how many of its elements, how many batches of the next one
        self.history = History()
        self._history_file = None if self.folder is None else HistoryFile(self.folder)
        self.decays = np.asarray(decays_of(model, options.weight_decay), "float32")

    def run(self):
        """Train to the end of the budget, and give the history.

        Returns
        -------
        DataFrame
            A line for each update: ``step``, ``loss``, ``mlm_loss``, ``mlm_accuracy``, ``nsp_loss``,
            ``nsp_accuracy``, ``learning_rate``, ``tokens`` (no padding, in all) and ``seconds``; with ``verbose``,
            ``peak_share``, the arithmetic of training over what the machine's matrix products can do; and where it was
            evaluated the losses and accuracies of the held-out text, with ``val_`` before.

        Raises
        ------
        DivergedError
            If five updates in a row gave a loss or gradients that are not finite; such an update changes nothing.
        ValueError
            If the folder's checkpoint is of a run with other options or another model.
        ImportError
            If ``options.tensorboard`` is given, and tensorboard is not installed.
        """
        options = self.options
        trainer = trainer_on(self.distribution, self.model, pretraining_losses, options.optimizer)
        self._resume(trainer)
        if self.process > 0:
            options = replace(options, verbose=0, tensorboard=None)
        with (
            memory_kept(),
            PretrainingProgress(options, self.model, n_devices(self.distribution), self.step, self.seconds) as progress,
            TensorBoard(options.tensorboard, self.history) as board,
            # Alone: a process that stops at another step than the others would leave them waiting for it.
            Interruption(self.folder is not None and self.n_processes == 1) as interruption,
        ):
            self._train(trainer, progress, board, interruption)
        return data_frame(self.history.columns())

    def _train(self, trainer, progress: PretrainingProgress, board: TensorBoard, interruption: Interruption) -> None:
        options = self.options
        waiting: list[tuple[dict[str, float], Any]] = []
        began, before = time.perf_counter(), self.seconds
        while (share := self._share()) < 1:
            phase = self._phase(share)
            if phase != self.place[0]:
                self.place = (phase, 0, 0, 0)
            # One group of batches an update, until the phase or the budget ends.
            stream = prefetched(self._groups(self.place))
            for place, group in stream:
                if self._share() >= 1 or self._phase(self._share()) != phase:
                    break
                rate = self._rate(self._share())
                losses = self._update(trainer, group, rate)
                self.place, self.step = place, self.step + 1
                self.tokens += sum(batch.n_tokens for batch in group)
                self.seconds = before + time.perf_counter() - began
                record = {"step": self.step, "learning_rate": rate, "tokens": self.tokens, "seconds": self.seconds}
                newest = self.history.record(-1) if len(self.history) else None
                record |= progress.advance(phase, self.step, self.seconds, self.tokens, newest)
                waiting.append((record, losses))
                if len(waiting) > self.bad_steps.delay:
                    self._take_in(waiting.pop(0))
                last = self._share() >= 1
                evaluate = self.held_out is not None and (last or self.step % options.evaluate_every == 0)
                stop = interruption.came
                due = last or stop or self.step % options.checkpoint_every == 0
                write = self.folder is not None and due
                if evaluate or write:
                    while waiting:
                        self._take_in(waiting.pop(0))
                if evaluate:
                    trainer.write_back()
                    self.history.add({f"val_{name}": value for name, value in self.evaluate().items()})
                board.write(self.history)
                if write:
                    self._write(trainer)
                if evaluate or write:
                    progress.pause()
                if self.on_step_end is not None:
                    self.on_step_end(self.step)
                if stop:
                    interruption.pass_on()
            stream.close()
        while waiting:
            self._take_in(waiting.pop(0))
        board.write(self.history)
        trainer.write_back()

    # --- The budget ----------------------------------------------------------------------------------------------

    def _share(self) -> float:
        """How much of the budget is used."""
        if self.options.max_steps is not None:
            return self.step / self.options.max_steps
        return min(1.0, self.seconds / self.options.max_seconds)

    def _phase(self, share: float) -> int:
        total, used = sum(part for _, part in self.options.phases), 0.0
        for phase, (_, part) in enumerate(self.options.phases):
            used += part / total
            # Shares such as 0.9 of 10 steps are no exact numbers.
            if share < used - 1e-9:
                return phase
        return len(self.options.phases) - 1

    def _rate(self, share: float) -> float:
        """Linear warm-up, then linear decay to 0, by the share of the budget that is used."""
        options = self.options
        warmup = options.warmup
        if isinstance(warmup, int):
            # In steps, which under max_seconds are not known beforehand.
            if options.max_steps is None:
                if self.step < warmup:
                    return options.learning_rate * (self.step + 1) / warmup
                return options.learning_rate * (1 - share)
            warmup = warmup / options.max_steps
        if share < warmup:
            # The first update is not wasted at rate zero.
            step = 1 / options.max_steps if options.max_steps else share / max(self.step, 1)
            return options.learning_rate * min(1.0, (share + step) / warmup)
        return options.learning_rate * (1 - share) / (1 - warmup) if warmup < 1 else options.learning_rate

    # --- Batches -------------------------------------------------------------------------------------------------

    def first_batch(self) -> PretrainingBatch:
        """The first one of all, to look at."""
        _, (batch, *_) = next(self._groups((0, 0, 0, 0)))
        return batch

    def _groups(self, place: tuple[int, int, int, int]) -> Iterator[tuple[tuple, list[PretrainingBatch]]]:
        """The batches of each update from a place on, without end, and the place after them."""
        phase, first_epoch, first_element, done = place
        length, _ = self.options.phases[phase]
        group: list[PretrainingBatch] = []
        for epoch in itertools.count(first_epoch):
            order = np.random.default_rng([self.options.seed, phase, epoch]).permutation(len(self.source))
            for n_elements in range(first_element, len(order)):
                made = self._batches(int(order[n_elements]), length, [phase, epoch])
                for n_batches, batch in enumerate(itertools.islice(made, done, None), done + 1):
                    group.append(batch)
                    if len(group) == self.options.gradient_accumulation:
                        yield (phase, epoch, n_elements, n_batches), group
                        group = []
                done = 0
            first_element = 0

    def _batches(self, number: int, length: int, seed: list[int]) -> Iterator[PretrainingBatch]:
        """Those of one element of the source in one epoch."""
        options = self.options
        seed = [options.seed, number, *([0, 0] if options.fixed else seed)]
        draw = draw_pairs if self.nsp else draw_runs
        instances = draw(self.source[number], self.tokenizer, length, [*seed, 0])
        return batches_of(instances, self.masking, options.batch_size, length, self.tokenizer.pad_id, [*seed, 1])

    # --- Steps ---------------------------------------------------------------------------------------------------

    def _update(self, trainer, group: list[PretrainingBatch], rate: float):
        """One update; its losses, which may still be under way."""
        # How many numbers were drawn for dropout before follows from the step.
        n = len(group)
        if n == 1:
            return trainer.train(*_arrays(self.model, group[0]), self._hyper(rate, self.step, 1))
        gradients, total = None, 0.0
        for i, batch in enumerate(group):
            hyper = self._hyper(rate, self.step * n + i, 1)
            gradients, losses = trainer.accumulate(*_arrays(self.model, batch), hyper, gradients)
            total = total + losses / n
        return total + trainer.update(gradients, self._hyper(rate, self.step * n, n))

    def _hyper(self, rate: float, n_batches: int, divisor: int) -> Hyper:
        t = self.step + 1
        correction = (1 - BETA_1**t, 1 - BETA_2**t) if self.options.bias_correction else (1.0, 1.0)
        return Hyper(
            np.full(len(self.decays), rate, "float32"),
            self.decays,
            *map(np.float32, correction),
            np.float32(self.bad_steps.loss_scale * divisor),
            np.random.SeedSequence([self.options.seed, n_batches]).generate_state(2, "uint32"),
        )

    def _take_in(self, waiting: tuple[dict[str, float], Any]) -> None:
        """Note the losses of an update."""
        record, losses = waiting
        values = np.asarray(keras.ops.convert_to_numpy(losses), "float64")
        record |= dict(zip(REPORTED, values.tolist(), strict=True))
        self.history.append(record)
        self.bad_steps.look_at(record["step"], values[0], stacklevel=4)

    # --- Held-out text -------------------------------------------------------------------------------------------

    def evaluate(self) -> dict[str, float]:
        """Losses and accuracies on the held-out text, under masks that are always the same."""
        length = self.options.phases[self.place[0]][0]
        return held_out_scores(self.model, self.tokenizer, self.held_out, self.masking, self.options.batch_size, length)

    # --- Checkpoints ---------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        """What a run must have in common with the one that it goes on from."""
        values = asdict(self.options)
        own = ("verbose", "evaluate_every", "checkpoint_every", "tensorboard")
        values = {name: values[name] for name in values if name not in own}
        values["phases"] = [list(phase) for phase in self.options.phases]
        shapes = [list(variable.shape) for variable in self.model.trainable_variables]
        return {
            **values,
            "config": self.model.config.to_dict(),
            "nsp": self.nsp,
            "shapes": shapes,
            "n": len(self.source),
        }

    def _write(self, trainer) -> None:
        if self.process > 0:
            return
        facts = {
            "settings": self._settings(), "step": self.step, "seconds": self.seconds, "tokens": self.tokens,
            "bad_steps": self.bad_steps.state(), "place": self.place,
        }  # fmt: skip
        write_checkpoint(self.folder, self.step, Checkpoint(trainer.state(), self.history.columns(), facts))
        self._history_file.write(self.history)

    def _resume(self, trainer) -> None:
        found = None if self.folder is None else read_checkpoint(self.folder)
        if not same_everywhere(-1 if found is None else found.facts["step"]):
            raise ValueError(
                f"The processes found different checkpoints in {self.folder}. It has to be a folder that all of them "
                "see."
            )
        if found is None:
            return
        facts, settings = found.facts, self._settings()
        different = sorted(name for name in settings if facts["settings"].get(name) != settings[name])
        if different:
            raise ValueError(
                f"{self.folder} holds the checkpoints of a run with another {', '.join(different)}. Give another "
                "folder for another run, or the same options to go on."
            )
        trainer.restore(found.arrays)
        self.history = History(found.history)
        self.step, self.seconds, self.tokens = facts["step"], facts["seconds"], facts["tokens"]
        self.bad_steps.restore(facts["bad_steps"])
        self.place = tuple(facts["place"])


def held_out_scores(
    model: BertForPreTraining,
    tokenizer: WordPieceTokenizer,
    documents: Documents,
    masking: Masking,
    batch_size: int,
    max_length: int,
) -> dict[str, float]:
    """Losses and accuracies on documents, under instances and masks that are always the same.

    Returns
    -------
    dict of float
        ``loss``, ``mlm_loss``, ``mlm_accuracy`` and, with the next sentence, ``nsp_loss`` and ``nsp_accuracy``.
    """
    batches = held_out_batches(tokenizer, documents, masking, batch_size, max_length, model.choices["nsp"])
    predict = backend_step().predictor(model)

    def sums(batch):
        inputs, targets, weights = _arrays(model, batch)
        return score_sums(predict(inputs), targets, weights)

    scores = mean_scores(sums(batch) for batch in batches)
    return {name: scores[name] for name in REPORTED if name in scores}


def held_out_batches(
    tokenizer: WordPieceTokenizer,
    documents: Documents,
    masking: Masking,
    batch_size: int,
    max_length: int,
    nsp: bool = True,
) -> Iterator[PretrainingBatch]:
    """The batches under which documents are evaluated: always the same."""
    draw = draw_pairs if nsp else draw_runs
    instances = draw(documents, tokenizer, max_length, [_HELD_OUT, 0])
    return batches_of(instances, masking, batch_size, max_length, tokenizer.pad_id, [_HELD_OUT, 1])


def _arrays(model: BertForPreTraining, batch: PretrainingBatch) -> tuple[dict, dict, dict]:
    """Inputs, targets and weights as far as the model has heads for them."""
    tasks = TASKS if model.choices["nsp"] else TASKS[:1]
    return (
        {tensor.name: batch.inputs[tensor.name] for tensor in model.inputs},
        {task: batch.targets[task] for task in tasks},
        {task: batch.weights[task] for task in tasks},
    )
