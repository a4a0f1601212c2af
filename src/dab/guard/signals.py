"""What a guard watches without labels, each signal with its own small state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dab.parts.ring_buffer import RingBuffer
from dab.parts.schema import Array, Integer, Nested, Number, take
from dab.parts.transaction import Recorded

__all__ = [
    "Comparison",
    "Drift",
    "Failures",
    "Opinion",
    "UpdateNorm",
    "certainty_of",
    "effective_classes",
    "softened",
]

# The weights of the three parts of `Opinion.added_error`: by least squares on held-out streams, see
# docs/guard.md.
LOST, GAINED, CLASSES = 1.0, 0.6, 0.2
HELD = 512  # samples that a comparison holds at most
RECENT = 64  # images over which a running mean forgets
CONTEXT = 5000  # images that show which classes there are
CLOSE = 16  # images that a close look takes at least, over several calls if these are small
JUMP = 4  # times the usual norm of updates
USUAL = 32  # updates that the usual norm is a mean of
PRIOR, SPREAD = 4, 0.2  # samples with this deviation are assumed to have been seen before


def effective_classes(frequencies: Tensor) -> float:
    """exp(entropy) of class frequencies: how many classes there are, rare ones counting less.

    >>> round(effective_classes(torch.tensor([5.0, 5.0, 0.0])), 6), effective_classes(torch.ones(1))
    (2.0, 1.0)
    """
    share = frequencies / frequencies.sum()
    return math.exp(float(-torch.xlogy(share, share).sum()))


@dataclass(frozen=True)
class Opinion:
    """What a window of samples says about the adapted model, next to the source model.

    All are means over the window. y_a and y_s are the classes that the adapted and the source model
    predict, p_a and p_s their probabilities, N_a and N_s the effective numbers of predicted
    classes.

    The added error is estimated as `lost` - 0.6 `gained` + 0.2 `lost_classes`: where the two
    disagree, what it costs in the source's opinion minus what it brings in the adapted model's own,
    discounted for overconfidence; and collapse, which makes both opinions worthless.
    """

    samples: int
    agreement: float  # share of samples with y_a = y_s
    lost: float  # p_s(y_s) - p_s(y_a)
    gained: float  # p_a(y_a) - p_a(y_s)
    source_classes: float  # N_s
    lost_classes: float  # log N_s - log N_a, times the share of the stream's classes it shows
    added_error: float  # estimate of error(adapted) - error(source)
    uncertainty: float  # standard error of that estimate from sampling alone
    certainty: float  # of the source model: 1 - entropy of p_s / log C


class Comparison(Recorded):
    """The latest samples that both the adapted and the source model have predicted.

    Few classes in a window are normal on a sorted stream, and there the better model predicts
    fewer. So lost classes count in proportion to the share of classes that the window shows, of
    those that the source model has predicted recently.

    The certainty of the source model is that of the adapted model, a running mean over all images,
    plus the difference on those that were compared: a control variate, which follows a new domain
    before many of its images have been compared.

    Args:
        held: how many samples.
        temperature: divides the logits where certainty is measured.
    """

    def __init__(self, held: int = HELD, temperature: float = 1.0) -> None:
        self.temperature = temperature
        self._rows = RingBuffer(
            held,
            Array((None, None), torch.float32, least=0),  # p_s
            Array((None,), torch.int64, least=0),  # y_a
            Array((None,), torch.float64),  # gained
            Array((None,), torch.float64),  # certainty of p_s minus that of p_a
            Array((None,), torch.int64),  # position in the stream
        )
        self._images = 0  # of the stream
        self._cleared = 0  # images when the weights were replaced
        self._certainty = 0.0  # of the adapted model, recently

    def add(self, adapted: Tensor, source: Tensor, chosen: Tensor | None = None) -> None:
        """Add the adapted model's probabilities (n, C), and the source's (k, C) for those chosen.

        By default, for all.
        """
        p_a, p_s = adapted.cpu(), source.cpu()
        certainty = certainty_of(softened(p_a, self.temperature)).double()
        weight = 1.0 if not self._images else 1 - math.exp(-len(p_a) / RECENT)
        self._certainty += weight * (float(certainty.mean()) - self._certainty)
        self._images += len(p_a)
        if not len(p_s):
            return
        if chosen is not None:
            p_a, certainty = p_a[chosen], certainty[chosen]
        top, y_a = p_a.max(dim=1)
        gained = (top - p_a.gather(1, p_s.argmax(dim=1, keepdim=True))[:, 0]).double()
        more = certainty_of(softened(p_s, self.temperature)).double() - certainty
        self._rows.push(p_s.float(), y_a, gained, more, torch.full_like(y_a, self._images))

    def opinion(self, span: int) -> Opinion | None:
        """What the last `span` images say; None if nothing has been compared."""
        if not len(self._rows):
            return None
        p_s, y_a, gained, more = self._last(span, since=self._cleared)
        samples, classes = p_s.shape
        if not samples:
            return None
        top_s, y_s = p_s.max(dim=1)
        lost = top_s - p_s.gather(1, y_a[:, None])[:, 0]
        count_a, count_s = (y.bincount(minlength=classes).double() for y in (y_a, y_s))
        context = effective_classes(self._last(CONTEXT)[0].mean(dim=0))
        shown = min(1.0, effective_classes(p_s.mean(dim=0)) / context)
        # What each sample contributes to log N_s - log N_a; the mean is just that.
        lost_classes = shown * (count_a[y_a].log() - count_s[y_s].log())
        parts = LOST * lost - GAINED * gained + CLASSES * lost_classes
        added = parts.mean()
        # A handful of samples that happen to be alike is not certain.
        squares = float((parts - added).square().sum()) + PRIOR * SPREAD**2
        return Opinion(
            samples=samples,
            agreement=float((y_a == y_s).double().mean()),
            lost=float(lost.mean()),
            gained=float(gained.mean()),
            source_classes=effective_classes(count_s),
            lost_classes=float(lost_classes.mean()),
            added_error=float(added),
            uncertainty=math.sqrt(squares / (samples + PRIOR) / samples),
            certainty=self._certainty + float(more.mean()),
        )

    def _last(self, span: int, since: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The columns for the samples of the last images, those of the last call at least."""
        p_s, y_a, gained, more, at = self._rows.columns
        chosen = at > max(since, min(self._images - span, int(at.max()) - 1))
        return p_s[chosen].double(), y_a[chosen], gained[chosen], more[chosen]

    def clear(self) -> None:
        """Other weights predict from now on; what the source predicted is still the context."""
        self._cleared = self._images

    @property
    def classes(self) -> int | None:
        """How many there are, if known."""
        return self._rows.columns[0].shape[1] if len(self._rows) else None

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._rows.columns)

    def savepoint(self) -> Any:
        return dict(vars(self)), self._rows.savepoint()

    def rollback(self, token: Any) -> None:
        attributes, rows = token
        vars(self).update(attributes)
        self._rows.rollback(rows)

    def release(self) -> None:
        self._rows.release()

    def state_dict(self) -> dict[str, Any]:
        return {
            "rows": self._rows.state_dict(),
            "images": self._images,
            "cleared": self._cleared,
            "certainty": self._certainty,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        count = Integer()
        rows, self._images, self._cleared, self._certainty = take(
            state, rows=Nested(), images=count, cleared=count, certainty=Number()
        )
        self._rows.load_state_dict(rows)


def certainty_of(p: Tensor) -> Tensor:
    """1 - entropy / log C of predictions (n, C): 0 for all classes alike, 1 for a single one.

    >>> certainty_of(torch.tensor([[0.5, 0.5], [0.0, 1.0]]))
    tensor([0., 1.])
    """
    return 1 + torch.xlogy(p, p).sum(dim=1) / math.log(p.shape[1])


def softened(p: Tensor, temperature: float) -> Tensor:
    """Probabilities as if the logits had been divided by a temperature."""
    return p if temperature == 1 else (p.clamp_min(1e-30).log() / temperature).softmax(dim=1)


class Drift(Recorded):
    """How far the trained numbers are from the source, relative to their size."""

    def __init__(self) -> None:
        self.distance = 0.0
        self._seen = 0.0  # the distance at the last close look
        self._looked = 0  # images of a close look that is not complete

    def follow(self, distance: float) -> None:
        self.distance = distance
        self._seen = min(self._seen, distance)  # after a return, it starts over

    @property
    def due(self) -> bool:
        """Whether a close look is due: the numbers are twice as far away as at the last one."""
        return self.distance > 2 * self._seen

    def looked(self, images: int) -> None:
        """A close look has been taken at so many images, of which it takes a few."""
        self._looked += images
        if self._looked >= CLOSE:
            self._seen, self._looked = self.distance, 0

    def doubt(self) -> None:
        """Have a close look due, whatever the distance."""
        self._seen, self._looked = 0.0, 0

    def clear(self, distance: float) -> None:
        """Other weights have taken their place, which nobody has looked at."""
        self.distance, self._seen, self._looked = distance, 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return {"distance": self.distance, "seen": self._seen, "looked": self._looked}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        number = Number(least=0)
        self.distance, self._seen, self._looked = take(
            state, distance=number, seen=number, looked=Integer()
        )


class UpdateNorm(Recorded):
    """How large updates are, relative to the size of the trained numbers.

    >>> norm = UpdateNorm()
    >>> [norm.follow(size) for size in (0.01, 0.02, 0.01, 0.1, 0.1, 0.1)]
    [False, False, False, True, False, False]
    """

    def __init__(self) -> None:
        self.latest = 0.0
        self._usual = 0.0  # a running mean
        self._updates = 0

    def follow(self, norm: float) -> bool:
        """Whether this update is much larger than they usually were: data or rate have changed."""
        if not math.isfinite(norm):
            return True
        jumped = 0 < self._usual < norm / JUMP
        self._updates = min(USUAL, self._updates + 1)
        self._usual += (norm - self._usual) / self._updates
        self.latest = norm
        return jumped

    def clear(self) -> None:
        """Other weights are updated from now on, or at another rate."""
        self._usual, self._updates = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return {"latest": self.latest, "usual": self._usual, "updates": self._updates}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        number = Number(least=0)
        self.latest, self._usual, self._updates = take(
            state, latest=number, usual=number, updates=Integer(below=USUAL + 1)
        )


class Failures(Recorded):
    """Calls in a row that learned nothing because a number was not finite."""

    def __init__(self) -> None:
        self.count = 0

    def follow(self, skipped: bool) -> None:
        self.count = self.count + 1 if skipped else 0

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        (self.count,) = take(state, count=Integer())
