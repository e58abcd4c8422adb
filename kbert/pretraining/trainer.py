"""Pre-training: updates to the end of a budget, with evaluation, and checkpoints to go on from."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kbert.data.frames import data_frame
from kbert.errors import DivergedError, ParameterWarning
from kbert.model import BertForPreTraining
from kbert.model.base import to_numpy
from kbert.pretraining.batches import PretrainingBatch
from kbert.pretraining.checkpoints import Checkpoint, digest_of_text, only_run_in, read_checkpoint
from kbert.pretraining.evaluation import held_out_scores, require_words_that_fit, scores_on, step_batch
from kbert.pretraining.history import HISTORY, History, HistoryFile, TensorBoard
from kbert.pretraining.instances import Documents, DocumentSource, require_documents, require_tokens, warn_of_unknown
from kbert.pretraining.masking import NO_WORD_FITS, Masking
from kbert.pretraining.objective import REPORTED, pretraining_losses
from kbert.pretraining.options import PretrainingOptions, warn_of_long_warmup
from kbert.pretraining.progress import PretrainingProgress
from kbert.pretraining.shards import Shards, vocabulary_hash
from kbert.pretraining.stream import BatchStream, Cursor
from kbert.text import WordPieceTokenizer
from kbert.training.backends import able_to_train
from kbert.training.checkpoint_folders import SECONDS_BETWEEN, write_checkpoint
from kbert.training.distribution import (
    agreed,
    check_layout,
    checked,
    n_devices,
    n_parts,
    process_number,
    same_everywhere,
    trainer_on,
)
from kbert.training.finite_outputs import may_overflow, require_finite_weights
from kbert.training.hyperparameters import HyperparameterFactory
from kbert.training.interruption import Interruption
from kbert.training.memory import memory_kept
from kbert.training.non_finite import NonFiniteGuard
from kbert.training.schedule import LinearSchedule, warn_of_high_rate
from kbert.training.segments import check_segments
from kbert.training.step import StepBatch
from kbert.training.updater import Update, Updater
from kbert.warn import warn_user

# What messages call settings under which a user does not know them.
_CALLED = {"config": "architecture or dropout", "held_out_mask_rate": "mask_rate", "n": "text"}


class BatchRead(NamedTuple):
    """Of a batch: how far the run has read with it, and what `PretrainingBatch` says of its texts."""

    cursor: Cursor
    n_tokens: int
    longest: int
    n_masked: int


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
        Where checkpoints are written, and beside them the history so far, as ``history.csv``. If there is a checkpoint
        already, the run goes on from it.
    on_step_end : callable, optional
        ``on_step_end(step)`` after each update, counted from 1.
    distribution : "auto", None or a distribution, default="auto"
        The devices that share each batch. "auto": all that JAX or TensorFlow sees, and on PyTorch those of the
        processes that torchrun has started; None: one. Of your own: a ``keras.distribution.DataParallel`` or
        ``ModelParallel`` on JAX, a ``tf.distribute.MirroredStrategy`` on TensorFlow.

        On JAX they may belong to several processes, on one machine or many, where each ran
        ``keras.distribution.initialize`` first; on PyTorch each ran ``torch.distributed.init_process_group``. All make
        the same call, on files that all of them see, and the first one writes the checkpoints and shows the progress.
    start : str, optional
        What the weights that the model has now are called. The run goes on from a checkpoint only if that was of a run
        from the same ones.

    Attributes
    ----------
    step : int
        Updates so far.
    seconds : float
        Time that they took.
    tokens : int
        Tokens without padding that were read for them.
    longest : int
        Tokens of the longest text among them. At the end of `run` the model's config says that these positions are
        trained, unless it was not known which were before.

    Raises
    ------
    ValueError
        If a phase is longer than the model allows, ``source`` or ``held_out`` has no token, pairs are to be drawn and
        it is one document, or ``tokenizer`` is not that of the shards or has more pieces than the model.
    TypeError
        If ``source`` or ``held_out`` is no text in tokens.

    Warns
    -----
    UnknownWordsWarning
        If the vocabulary lacks much of the text.
    ParameterWarning
        If the warm-up takes all of the budget.

    Examples
    --------
    >>> from kbert import BertConfig, BertForPreTraining, WordPieceTokenizer
    >>> from kbert.pretraining import Corpus, Pretraining, PretrainingOptions, write_shards
    >>> texts = ["It rained. We stayed in.", "The sun shone. We went out."] * 10
    >>> tokenizer = WordPieceTokenizer.train(texts)
    >>> shards = write_shards(Corpus(texts), tokenizer, "shards")
    >>> model = BertForPreTraining(BertConfig.from_size("tiny"))
    >>> options = PretrainingOptions(max_steps=2, phases=((32, 1.0),), batch_size=4)
    >>> run = Pretraining(model, tokenizer, shards, options, folder="run")
    >>> history = run.run()
    >>> run.step, len(history)
    (2, 2)

    After a run that was stopped, the same lines go on from its last checkpoint.
    """

    def __init__(
        self,
        model: BertForPreTraining,
        tokenizer: WordPieceTokenizer,
        source: DocumentSource,
        options: PretrainingOptions,
        held_out: Documents | None = None,
        folder: str | Path | None = None,
        on_step_end: Callable[[int], Any] | None = None,
        distribution: Any = "auto",
        start: str | None = None,
    ):
        self.start = start
        self.model, self.tokenizer, self.source, self.options = model, tokenizer, source, options
        self.held_out, self.on_step_end = held_out, on_step_end
        self.folder = None if folder is None else Path(folder).expanduser()
        self.nsp = model.choices["nsp"]
        check_segments(model, self.nsp, instead="Set nsp=False")
        require_documents(source, held_out)
        require_tokens(source, "source", self.nsp)
        if held_out is not None:
            require_tokens([held_out], "held_out", self.nsp)
            warn_of_unknown([held_out], tokenizer, "the held-out text")
        self._vocabulary = vocabulary_hash(tokenizer)
        if isinstance(source, Shards) and vocabulary_hash(source.tokenizer) != self._vocabulary:
            raise ValueError("The shards have another vocabulary than the tokenizer. Give theirs: shards.tokenizer.")
        if tokenizer.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"The tokenizer has {tokenizer.vocab_size} pieces, and the model a vocab_size of "
                f"{model.config.vocab_size}. Make the model for the tokenizer: "
                "dataclasses.replace(config, vocab_size=tokenizer.vocab_size)."
            )
        self.masking = Masking(tokenizer, options.mask_rate, options.whole_word)
        lengths = [length for length, _ in options.phases]
        warn_of_unknown(source, tokenizer, "the text")
        warn_of_long_warmup(options)
        warn_of_high_rate(options.learning_rate)
        if max(lengths) > model.config.max_position_embeddings:
            raise ValueError(
                f"A phase has {max(lengths)} tokens, and the model has {model.config.max_position_embeddings} "
                "positions."
            )
        self.distribution = checked(distribution, options.batch_size)
        n = n_parts(self.distribution)
        if any(rows % n for rows in options.batch_sizes):
            longest = max(lengths)
            raise ValueError(
                f"The batches of {longest} tokens a row have {options.batch_sizes[lengths.index(longest)]} rows, which "
                f"cannot be divided evenly among {n} devices. Take a batch_size that is a multiple of "
                f"{n * math.ceil(longest / min(lengths))}."
            )
        check_layout(self.distribution, model)
        self.stream = BatchStream(
            source,
            tokenizer,
            model.config,
            nsp=self.nsp,
            masking=self.masking,
            lengths=lengths,
            batch_sizes=options.batch_sizes,
            seed=options.seed,
            fixed=options.fixed,
        )
        self.process, self.n_processes = process_number()
        if self.n_processes > 1 and options.max_seconds is not None:
            raise ValueError("Give max_steps where there are several processes: their clocks differ.")
        self.tokens = self.longest = 0
        self._of_held_out = None if held_out is None else digest_of_text([held_out])
        self.guard = NonFiniteGuard(
            model.compute_dtype == "float16", "a lower learning_rate, a longer warmup, or dtype='float32'"
        )
        if held_out is not None:
            require_words_that_fit(
                tokenizer, held_out, self._held_out_masking(), max(lengths), self.nsp, "held-out text"
            )
        self._told_of_nothing = False  # that an update had nothing to predict
        self.cursors = [Cursor(phase) for phase in range(len(lengths))]
        self.phase = 0  # that of the last update; after a checkpoint was read, that of the next one
        self.history = History()
        self._history_file: HistoryFile | None = None
        self._written = 0.0  # when the newest checkpoint was
        # Made by the first `run`, with the weights that the model has then.
        self._updater: Updater | None = None

    @property
    def step(self) -> int:
        """Updates so far."""
        return 0 if self._updater is None else self._updater.n_updates

    @property
    def seconds(self) -> float:
        """Time that they took."""
        return 0.0 if self._updater is None else self._updater.seconds

    @able_to_train()
    def run(self) -> Any:
        """Train to the end of the budget, and give the history.

        After an interruption, a further call goes on: from the newest checkpoint in ``folder``, or without one from the
        last update. When the budget is used up, it only gives the history.

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
            If five updates in a row gave a loss or gradients that are not finite; such an update changes nothing. Or
            if an update destroyed the weights: weights that are not finite go into no checkpoint.
        ValueError
            If the folder's checkpoint is of a run with other options or another model, was written by another version
            of kbert, or another run is writing to the folder.
        WeightsMismatchError
            If all checkpoints in the folder are damaged.
        ImportError
            If ``options.tensorboard`` is given, and tensorboard is not installed.
        """
        options = self.options
        updater = self._updater = self._updater or self._new_updater()
        updater.stop_clock()
        with self._alone():
            return self._run(updater, options)

    def _alone(self) -> AbstractContextManager[None]:
        """Be the only run in the folder; of processes that train together the first one is."""
        if self.folder is None or self.process > 0:
            return nullcontext()
        return only_run_in(self.folder)

    def _run(self, updater: Updater, options: PretrainingOptions) -> Any:
        self._written = time.perf_counter()
        self._history_file = None if self.folder is None else HistoryFile(self.folder)
        self._resume(updater)
        if self.folder is not None and self.step == 0 and (self.folder / HISTORY).exists():
            raise ValueError(
                f"{self.folder} holds a {HISTORY} and no checkpoint that it goes with. Give a new folder, or remove it."
            )
        if self.process > 0:
            options = replace(options, verbose=0, tensorboard=None)
        with (
            memory_kept(),
            PretrainingProgress(options, self.model, n_devices(self.distribution), self.step, self.seconds) as progress,
            TensorBoard(options.tensorboard, self.history) as board,
            Interruption(self.folder is not None) as interruption,
        ):
            if updater.share >= 1 and self.held_out is not None and "val_loss" not in self.history.record(-1):
                self._evaluate_now()  # the run has ended, and had no such text, or another one
                self._write(updater)
            try:
                self._train(updater, progress, board, interruption)
            except KeyboardInterrupt:
                if self.n_processes == 1:  # with several, the others would have to do the same
                    updater.trainer.write_back()  # somebody may use the model
                    self._note_trained_positions()
                raise
            self.guard.read_all()
            board.write(self.history)
            updater.trainer.write_back()
            self._require_usable_model()
            self._note_trained_positions()
        return data_frame(self.history.columns())

    def _note_trained_positions(self) -> None:
        """Let the configs of the model and its encoder say how far training has reached, if they say so at all."""
        before = self.model.config.num_trained_positions
        if before is not None:
            trained = max(before, self.longest)
            for model in (self.model, self.model.encoder):
                model.config = replace(model.config, num_trained_positions=trained)

    def _train(
        self, updater: Updater, progress: PretrainingProgress, board: TensorBoard, interruption: Interruption
    ) -> None:
        """Make the updates that are left of the budget."""
        while updater.share < 1:
            with closing(updater.updates(self._step_batches(updater))) as updates:
                for update in updates:
                    self._take_in(update, progress)
                    self._after_update(updater, progress, board, interruption)
                    if updater.share >= 1 or self._is_over(updater):
                        break

    def _require_usable_model(self) -> None:
        """Refuse a model that training has destroyed. The last update may have done that, of which no loss tells."""
        require_finite_weights((to_numpy(v.value) for v in self.model.trainable_variables), self.step)
        if may_overflow(self.model) and not np.isfinite(scores_on(self.model, [self.first_batch()])["loss"]):
            raise DivergedError(
                f"After update {self.step} the loss is not a finite number. Train with a lower learning_rate, a longer "
                "warmup, or dtype='float32'."
            )

    def first_batch(self) -> PretrainingBatch:
        """The first one of all, to look at."""
        return self.stream.first_batch()

    def evaluate(self) -> dict[str, float]:
        """Losses and accuracies on the held-out text, under masks that are always the same.

        Where phases come one after the other, its rows are as long as those of the phase that the run is in.
        """
        if self.held_out is None:
            raise ValueError("There is no text to evaluate on: give held_out.")
        if self._updater is not None:
            self._updater.trainer.write_back()
        lengths = self.stream.lengths
        length = max(lengths) if self.options.mixed else lengths[self.phase]
        masking = self._held_out_masking()
        return held_out_scores(self.model, self.tokenizer, self.held_out, masking, self.options.batch_size, length)

    def _held_out_masking(self) -> Masking:
        rate = self.options.held_out_mask_rate or self.options.mask_rate
        return Masking(self.tokenizer, rate, self.options.whole_word)

    def _evaluate_now(self) -> None:
        """Add what `evaluate` gives to the newest line of the history."""
        self.history.add({f"val_{name}": value for name, value in self.evaluate().items()})

    def _new_updater(self) -> Updater:
        options = self.options
        return Updater(
            trainer_on(self.distribution, self.model, pretraining_losses, options.optimizer),
            LinearSchedule(options.learning_rate, options.max_steps, options.warmup, options.max_seconds),
            HyperparameterFactory(
                self.model, options.weight_decay, bias_correction=options.bias_correction, seed=options.seed
            ),
            self.guard,
            options.gradient_accumulation,
        )

    # --- The course of a run -------------------------------------------------------------------------------------

    def _is_over(self, updater: Updater) -> bool:
        """Whether the lengths come one after the other, and it is time for the next."""
        return not self.options.mixed and self.options.phase(updater.n_updates, updater.share) != self.phase

    def _step_batches(self, updater: Updater) -> Iterator[tuple[BatchRead, StepBatch]]:
        """The batches from here on, without end: of mixed lengths, or of the length that it is time for."""
        streams = [self.stream.batches(cursor) for cursor in self.cursors]
        phase = self.options.phase(updater.n_updates, updater.share)
        for n_updates in itertools.count(updater.n_updates):
            if self.options.mixed:  # a budget in seconds is looked at when a batch is made, a few updates ahead
                phase = self.options.phase(n_updates, updater.schedule.share(n_updates, updater.seconds))
            for cursor, batch in itertools.islice(streams[phase], updater.accumulation):
                note = BatchRead(cursor, batch.n_tokens, batch.longest, batch.n_masked)
                yield note, step_batch(self.model, batch)

    def _take_in(self, update: Update[BatchRead], progress: PretrainingProgress) -> None:
        """Count what an update has read, and note its losses once they are computed."""
        cursor = update.notes[-1].cursor
        self.cursors[cursor.phase], self.phase = cursor, cursor.phase
        self.tokens += sum(note.n_tokens for note in update.notes)
        self.longest = max(self.longest, *(note.longest for note in update.notes))
        record = {
            "step": self.step, "learning_rate": update.learning_rate, "tokens": self.tokens, "seconds": self.seconds,
        }  # fmt: skip
        newest = self.history.record(-1) if len(self.history) else None
        record |= progress.advance(self.phase, self.step, self.seconds, self.tokens, newest)
        n = len(update.losses)
        losses = update.losses[0] if n == 1 else sum(losses / n for losses in update.losses)
        n_masked = sum(note.n_masked for note in update.notes)
        if not n_masked and not self._told_of_nothing:
            self._told_of_nothing = True
            told = f"Update {self.step} had no word to predict, and there may be others. {NO_WORD_FITS}"
            warn_user(told, ParameterWarning)
        self.guard.record(self.step, losses, partial(self._append_to_history, record, n_masked))

    def _append_to_history(self, record: dict[str, float], n_masked: int, losses: np.ndarray) -> None:
        reported = dict(zip(REPORTED, losses.tolist(), strict=True))
        if not n_masked:
            unknown = ("mlm_loss", "mlm_accuracy") if self.nsp else ("loss", "mlm_loss", "mlm_accuracy")
            reported |= dict.fromkeys(unknown, math.nan)
        self.history.append(record | reported)

    def _after_update(
        self, updater: Updater, progress: PretrainingProgress, board: TensorBoard, interruption: Interruption
    ) -> None:
        """Evaluate, and write a checkpoint, where it is time for that."""
        options, is_last = self.options, updater.share >= 1
        evaluate = self.held_out is not None and (is_last or self.step % options.evaluate_every == 0)
        wanted = interruption.came or self._is_checkpoint_old()
        is_asked = self.folder is not None and agreed(wanted, self.step, self.distribution)
        write = self.folder is not None and (is_last or is_asked or self.step % options.checkpoint_every == 0)
        if evaluate or write:
            self.guard.read_all()
        if evaluate:
            self._evaluate_now()
        board.write(self.history)
        if write:
            self._write(updater)
        if evaluate or write:
            progress.pause()
        if self.on_step_end is not None:
            self.on_step_end(self.step)
        if is_asked:
            interruption.pass_on()

    # --- Checkpoints ---------------------------------------------------------------------------------------------

    def _is_checkpoint_old(self) -> bool:
        return time.perf_counter() - self._written >= SECONDS_BETWEEN

    @cached_property
    def _digest_of_text(self) -> str:
        return digest_of_text(self.source)

    def _settings(self) -> dict[str, Any]:
        """What a run must have in common with the one that it goes on from."""
        values = asdict(self.options)
        own = ("verbose", "evaluate_every", "checkpoint_every", "tensorboard")
        values = {name: values[name] for name in values if name not in own}
        values["phases"] = [list(phase) for phase in self.options.phases]
        shapes = [list(variable.shape) for variable in self.model.trainable_variables]
        return {
            **values,
            # Which positions are trained follows from the lengths, and earlier versions did not write it.
            "config": replace(self.model.config, num_trained_positions=None).to_dict(),
            "dtype": self.model.dtype_policy.name,
            "vocabulary": self._vocabulary,
            "nsp": self.nsp,
            "start": self.start,
            "shapes": shapes,
            "n": len(self.source),
            "text": self._digest_of_text,
        }

    def _write(self, updater: Updater) -> None:
        if self.folder is None:
            return
        # In every process: weights that are divided among devices come together, and all stop where one must.
        arrays = updater.trainer.state()
        self._written = time.perf_counter()
        require_finite_weights(arrays, self.step)
        if self._history_file is None or self.process > 0:
            return
        facts = {
            "settings": self._settings(), "tokens": self.tokens, "longest": self.longest,
            "held_out": self._of_held_out, "cursors": self.cursors, "updater": updater.state(),
        }  # fmt: skip
        write_checkpoint(self.folder, self.step, Checkpoint(arrays, self.history.columns(), facts).files(), facts)
        self._history_file.write(self.history)

    def _resume(self, updater: Updater) -> None:
        """Go on from the newest checkpoint, where there is one."""
        found = None if self.folder is None else read_checkpoint(self.folder, rename=self.process == 0)
        if not same_everywhere(-1 if found is None else found.facts["updater"]["updates"]):
            raise ValueError(
                f"The processes found different checkpoints in {self.folder}. It has to be a folder that all of them "
                "see."
            )
        if found is None:
            return
        facts, settings = found.facts, self._settings()
        different = [name for name in settings if facts["settings"].get(name) != settings[name]]
        if "longest" not in facts and facts["settings"].get("start") is None:
            different = [name for name in different if name != "start"]  # which earlier versions' `kbert` did not write
        different = sorted({_CALLED.get(name, name) for name in different})
        if different:
            raise ValueError(
                f"{self.folder} holds the checkpoints of a run with another {', '.join(different)}. Give another "
                "folder for another run, or the same options to go on."
                + " start: these are the weights that training starts from."
                * ("start" in different)
            )
        updater.trainer.restore(found.arrays)
        updater.restore(facts["updater"])
        self.history, self.tokens = History(found.history), facts["tokens"]
        # Earlier versions wrote neither of these two.
        self.longest = facts.get("longest") or max(self.stream.lengths)
        if "held_out" in facts and self._of_held_out not in (None, facts["held_out"]):
            self.history.forget("val_")  # which were of another text
        self._of_held_out = self._of_held_out or facts.get("held_out")
        self.cursors = [Cursor(*cursor) for cursor in facts["cursors"]]
        self.phase = self.options.phase(self.step, updater.share)
