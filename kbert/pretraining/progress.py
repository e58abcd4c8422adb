"""The progress bar of pre-training: time left, tokens per second, and the share of what the machine can do."""

from __future__ import annotations

import math
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from tqdm import tqdm

from kbert.model import BertForPreTraining
from kbert.pretraining.rates import flops_per_token, matrix_peak
from kbert.training.progress import say

if TYPE_CHECKING:
    from kbert.pretraining.options import PretrainingOptions

# Updates over which rates are taken.
_WINDOW = 50
_FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt} {unit} [{elapsed}{postfix}]"


class PretrainingProgress:
    """One bar over the budget, and a line for each tenth of it, which stays.

    Nothing is shown or measured with ``options.verbose=0``, or without standard error.

    Parameters
    ----------
    options : PretrainingOptions
    model : BertForPreTraining
    n_devices : int
        How many share the work.
    step, seconds
        What of the budget is used already.
    """

    def __init__(
        self,
        options: PretrainingOptions,
        model: BertForPreTraining,
        n_devices: int = 1,
        step: int = 0,
        seconds: float = 0.0,
    ):
        self.bar: Any = None
        if not options.verbose or sys.stderr is None:
            return
        self.options, self.nsp = options, model.choices["nsp"]
        self.peak = n_devices * matrix_peak(model.compute_dtype)
        self.flops = [
            flops_per_token(model.config, length, options.mask_rate, self.nsp) for length, _ in options.phases
        ]
        self.phase = 0
        self.tokens, self.operations = 0, 0.0
        # Step, seconds, tokens and operations after each of the last updates.
        self.window: deque[tuple[int, float, int, float]] = deque(maxlen=_WINDOW)
        self.tokens_per_second: float | None = None
        self.seconds_per_step: float | None = None
        self.flops_per_second: float | None = None
        in_steps = options.max_seconds is None
        self.bar = tqdm(
            total=options.max_steps if options.max_seconds is None else math.ceil(options.max_seconds),
            initial=step if in_steps else int(seconds),
            unit="steps" if in_steps else "s",
            desc="pretrain",
            bar_format=_FORMAT,
            dynamic_ncols=True,
        )
        self.tenths = 10 * self.bar.n // self.bar.total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def pause(self) -> None:
        """Leave the time until the next update out of the rates: it is spent on an evaluation or a checkpoint."""
        if self.bar is not None:
            self.window.clear()

    def advance(
        self, phase: int, step: int, seconds: float, tokens: int, record: dict[str, float] | None
    ) -> dict[str, float]:
        """Count an update.

        Parameters
        ----------
        phase : int
            Which of ``options.phases`` it belongs to.
        step, seconds, tokens
            Updates, time and tokens without padding so far.
        record : dict or None
            The newest losses that are known.

        Returns
        -------
        dict of float
            ``peak_share``: the arithmetic of training on the tokens of the last updates (`flops_per_token`), over what
            matrix products alone could do in the same time (`matrix_peak`). Nothing where that is not known yet.
        """
        if self.bar is None:
            return {}
        if phase != self.phase and not self.options.mixed:
            self.tokens_per_second, self.seconds_per_step, self.flops_per_second = None, None, None
            self.window.clear()
        self.phase = phase
        self.operations += (tokens - self.tokens) * self.flops[phase]
        self.tokens = tokens
        self.window.append((step, seconds, tokens, self.operations))
        n_steps, duration, n_tokens, n_operations = (
            last - first for first, last in zip(self.window[0], self.window[-1], strict=True)
        )
        if duration > 0:
            self.tokens_per_second, self.seconds_per_step = n_tokens / duration, duration / n_steps
            self.flops_per_second = n_operations / duration
        rates: dict[str, float] = {}
        if self.flops_per_second is not None:
            rates["peak_share"] = self.flops_per_second / self.peak
        self._show(step, seconds, rates, record)
        return rates

    def seconds_left(self, step: int, seconds: float) -> float | None:
        """The time to the end of the budget; None where it is not known yet.

        Steps of phases to come are taken to last as much longer as they have more arithmetic; those of mixed phases
        have about as much.
        """
        options = self.options
        if options.max_seconds is not None:
            return max(0.0, options.max_seconds - seconds)
        if options.max_steps is None or self.seconds_per_step is None:
            return None
        if options.mixed:
            return (options.max_steps - step) * self.seconds_per_step
        work = [length * flops for (length, _), flops in zip(options.phases, self.flops, strict=True)]
        total, end, left = sum(share for _, share in options.phases), 0.0, 0.0
        for (_, share), of_step in zip(options.phases, work, strict=True):
            begin, end = end, end + options.max_steps * share / total
            left += max(0.0, end - max(step, begin)) * of_step / work[self.phase]
        return left * self.seconds_per_step

    def _show(self, step: int, seconds: float, rates: dict[str, float], record: dict[str, float] | None) -> None:
        left = self.seconds_left(step, seconds)
        shown = [f"{tqdm.format_interval(left)} left"] if left is not None else []
        if rates:
            shown += [f"{self.tokens_per_second:,.0f} tokens/s", f"peak {rates['peak_share']:.0%}"]
        if record is not None:
            shown += self._losses(record)
        self.bar.set_postfix_str(", ".join(shown), refresh=False)
        done = step if self.options.max_steps is not None else min(int(seconds), self.bar.total)
        self.bar.update(done - self.bar.n)
        tenths = 10 * done // self.bar.total
        if record is not None and tenths > self.tenths:
            self.tenths = tenths
            say(f"pretrain {10 * tenths}%: step {step:,}, {seconds:,.0f} s, {', '.join(self._losses(record))}")

    def _losses(self, record: dict[str, float]) -> list[str]:
        """The losses of a skipped step are NaN, and the record leaves them out."""
        shown = [f"mlm {record.get('mlm_loss', math.nan):.3f}"]
        return shown + [f"nsp {record.get('nsp_accuracy', math.nan):.2f}"] * self.nsp
